"""What a signal does to a run: recorded as interrupted wherever it comes, and whatever error comes of it. No Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import altneu.pipeline.storage.session
from altneu.pipeline import interrupt
from altneu.pipeline.errors import Exit
from altneu.pipeline.home.home import Home
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signals of these tests leave the suite's own children, log and errors as they are."""
    monkeypatch.setattr(interrupt, "_list_children", set)
    monkeypatch.setattr(interrupt, "_silence_hooks", lambda: None)
    monkeypatch.setattr(interrupt, "_first_signal", None)


@pytest.fixture
def landed(tmp_path: Path) -> tuple[Home, Ledger]:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 1, [(0, 1, None, "upsert", 0)])
    return home, ledger


@pytest.mark.parametrize("number", interrupt.SIGNALS, ids=lambda number: number.name)
def test_between_two_stages(landed: tuple[Home, Ledger], number: signal.Signals) -> None:
    _, ledger = landed

    def say(stage: str, text: str) -> None:
        with suppress(Exception):  # as a library may that takes everything for an error of its own
            os.kill(os.getpid(), number)

    with interrupt.handle_signals(), pytest.raises(interrupt.Interrupted) as raised:
        runner.execute_run(ledger, planning.plan_epochs(ledger, [1]), say)
    row = ledger.runs.list_all()[-1]
    assert (raised.value.during, row.state, row.error) == ("ingest", "interrupted", "interrupted during ingest")


def test_an_error_that_the_signal_has_caused(landed: tuple[Home, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object) -> None:
        with suppress(BaseException):  # a destructor loses what is raised in it
            os.kill(os.getpid(), signal.SIGTERM)
        raise ConnectionRefusedError("no JVM answers")

    _, ledger = landed
    ledger.runs.create("a", 0, epochs=[1], config={})
    monkeypatch.setattr(altneu.pipeline.storage.session, "session_for", work)
    with interrupt.handle_signals(), pytest.raises(interrupt.Interrupted):
        runner.execute_stage(ledger, "a", "edges")
    row = ledger.runs.get("a")
    assert (row.state, row.error, row.owner) == ("interrupted", "interrupted during edges", None)


TWICE = """
import os, signal, subprocess, sys
from altneu.pipeline import interrupt
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
child.stdout.read(1)
with interrupt.handle_signals():
    for again in range(2):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except interrupt.Interrupted:
            interrupt.SAME_SIGNAL_SECONDS = 0.0
    print("goes on")
"""


def test_a_library_that_takes_the_signal_for_itself_does_not_get_it() -> None:
    """PySpark does while its session is being made, which takes seconds on a busy machine."""
    before = signal.getsignal(signal.SIGTERM)
    with interrupt.handle_signals(), pytest.raises(interrupt.Interrupted), interrupt.preserve_sigint_handler():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with interrupt.preserve_sigint_handler():  # nobody handles signals
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) == signal.SIG_IGN


def test_a_second_signal_ends_everything_at_once() -> None:
    # the child has our pipe for its errors: this returns when both have ended
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (Exit.INTERRUPTED, "", "")
