"""Ctrl-C and SIGTERM at a stage of the real command: one line, code 130, no process left; the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.errors import Exit
from pipeline.state.ledger import Ledger
from tests import homes
from tests.conftest import TINY
from tests.e2e.test_crash import group

REPO = Path(__file__).resolve().parents[2]
CONF = "".join(f'"{key}" = "{value}", ' for key, value in TINY.items())
TOML = f'[spark]\nmaster = "local[1]"\nconf = {{ {CONF} "spark.driver.memory" = "1g" }}\n'

JVM = ""  # not what the command says: its JVM has begun to start

# the command, what it says before the signal comes, the signal, and where it says that it was then
CASES: dict[str, tuple[list[str], str, signal.Signals, str]] = {
    "Spark's start": (["run", "1"], JVM, signal.SIGINT, "ingest"),
    "edges": (["backfill", "--all"], "✓ ingest", signal.SIGTERM, "edges"),
    "triangles": (["run", "1"], "✓ edges", signal.SIGINT, "triangles"),
    "truss": (["run", "1"], "✓ triangles", signal.SIGTERM, "truss"),
    "audit": (["run", "1"], "✓ truss", signal.SIGINT, "audit"),
    "rebuild": (["rebuild"], "✓ triangles", signal.SIGINT, "truss"),
    "compact": (["compact"], "compact: ", signal.SIGINT, "compact"),
    "audit alone": (["audit"], "audit: ", signal.SIGTERM, "audit"),
    "repair": (["repair"], "audit: ", signal.SIGINT, "repair"),
}
ALWAYS = ("Spark's start",)


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """In a session of its own, as in a terminal."""
    env = os.environ | {"PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    line = [sys.executable, "-m", "pipeline.cli", "--home", str(home), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, env=env, cwd=home, start_new_session=True, stdout=pipe, stderr=pipe, text=True)


def interrupted(process: subprocess.Popen[str], after: str, number: signal.Signals) -> tuple[list[str], list[str]]:
    """Send the signal once the command has said `after`; what it had said, and what it said then."""
    assert process.stderr is not None
    guard = threading.Timer(240, process.kill)  # a command that hangs must not hang the suite
    guard.start()
    before: list[str] = []
    if after == JVM:
        while process.poll() is None and "java" not in group(process.pid).values():
            time.sleep(0.01)
    else:
        for line in process.stderr:
            before.append(line.rstrip())
            if after in line:
                break
        assert before and after in before[-1], before
    # Ctrl-C reaches every process of a terminal, SIGTERM the one that it is sent to
    os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
    said = [line.rstrip() for line in process.stderr if not line.startswith("revision 2:")]
    process.wait()
    guard.cancel()
    return before, said


@pytest.mark.parametrize("case", [c if c in ALWAYS else pytest.param(c, marks=pytest.mark.slow) for c in CASES])
def test_an_interrupted_command_ends_cleanly(tmp_path: Path, case: str) -> None:
    arguments, after, number, during = CASES[case]
    home, ledger = homes.make(tmp_path / "home", TOML)
    homes.put(home, 0, [(a, b, None, "upsert", 0) for a in range(5) for b in range(a)])
    first = command(home.path, "run", "0")
    assert first.wait(240) == 0, first.stderr
    homes.put(home, 1, [(0, 9, None, "upsert", 0), (1, 9, None, "upsert", 0)])
    process = command(home.path, *arguments)
    before, said = interrupted(process, after, number)
    assert process.returncode == Exit.INTERRUPTED, (before, said)
    told = [line for line in said if "interrupted" in line]
    assert told == [f"interrupted during {during}; nothing was published; the same command goes on"], said
    assert not [line for line in said if "py4j" in line or "Traceback" in line or "ERROR" in line], said
    assert group(process.pid) == {}, "a process stays behind"
    ledger = Ledger(home.database)
    assert ledger.at().revision == 1
    if arguments[0] not in ("audit", "repair"):  # which record no run before they find something
        run = ledger.runs()[-1]
        assert (run.state, run.owner) == ("interrupted", None), run
        assert f"interrupted during {during}" in (run.error or "")
    again = command(home.path, *arguments)
    assert again.wait(240) == 0, again.stderr.read() if again.stderr else ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_land_lands_nothing(tmp_path: Path, number: signal.Signals) -> None:
    home, _ = homes.make(tmp_path / "home")
    homes.put(home, 0, [(0, 1, None, "upsert", 0)])
    batch, before = (home.landing / "epoch=0" / "rows.csv").read_text(), (home.path / "altneu.toml").read_text()
    file = tmp_path / "many.csv"
    file.write_text("src,dst,weight\n" + "".join(f"{n},{n + 1},{n}.5\n" for n in range(1_000_000)))
    line = ["land", str(file), "--epoch", "0"]
    process = command(home.path, *line)
    _, said = interrupted(process, "understood as", number)
    assert process.returncode == Exit.INTERRUPTED, said
    assert said[-1] == "interrupted during land; nothing was landed; the same command goes on", said
    assert len([row for row in said if not row.startswith(("  ", "reading "))]) == 1, said
    assert group(process.pid) == {}, "a process stays behind"
    assert (home.landing / "epoch=0" / "rows.csv").read_text() == batch
    assert (home.path / "altneu.toml").read_text() == before
    assert not [path for path in home.landing.glob("_work/*") if path.name != "lock"]
    again = command(home.path, *line)
    assert "landed 1,000,000 rows" in again.communicate(timeout=240)[0] and again.returncode == 0
