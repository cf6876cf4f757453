"""Ctrl-C and SIGTERM at a stage of the real command: one line, code 130, no process left, and it works again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from altneu.pipeline.errors import Exit
from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.e2e.test_crash import group
from tests.report.seed import Seed
from tests.session import TINY

REPO = Path(__file__).resolve().parents[2]
CONF = "".join(f'"{key}" = "{value}", ' for key, value in TINY.items())
TOML = f'[spark]\nmaster = "local[1]"\nconf = {{ {CONF} "spark.driver.memory" = "1g" }}\n'

JVM = ""  # not what the command says: its JVM has begun to start
NOTHING = "nothing was published"


class Case(NamedTuple):
    """A command, what it says before the signal comes, the signal, where it says that it was, and what came of it."""

    arguments: list[str]
    after: str
    number: signal.Signals
    during: str
    outcome: str = NOTHING


CASES = {
    "Spark's start": Case(["run", "1"], JVM, signal.SIGINT, "ingest"),
    "edges": Case(["backfill", "--all"], "✓ ingest", signal.SIGTERM, "edges"),
    "triangles": Case(["run", "1"], "✓ edges", signal.SIGINT, "triangles"),
    "truss": Case(["run", "1"], "✓ triangles", signal.SIGTERM, "truss"),
    "audit": Case(["run", "1"], "✓ truss", signal.SIGINT, "audit"),
    "publish": Case(["run", "1"], "✓ audit", signal.SIGTERM, "publish"),
    "report": Case(["run", "1"], "✓ publish", signal.SIGINT, "report", "revision 2 is published"),
    "rebuild": Case(["rebuild"], "✓ triangles", signal.SIGINT, "truss"),
    "compact": Case(["compact"], "compact: ", signal.SIGINT, "compact"),
    "audit alone": Case(["audit"], "audit: ", signal.SIGTERM, "audit"),
    "repair": Case(["repair"], "audit: ", signal.SIGINT, "repair"),
}
SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """In a session of its own, as in a terminal."""
    env = os.environ | {"PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, env=env, cwd=home, start_new_session=True, stdout=pipe, stderr=pipe, text=True)


def interrupted(
    process: subprocess.Popen[str], after: str, number: signal.Signals, seconds: float = 240
) -> tuple[list[str], list[str]]:
    """Send the signal once the command has said `after`; what it had said, and what it said then."""
    assert process.stderr is not None
    guard = threading.Timer(seconds, process.kill)  # a command that hangs must not hang the suite
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


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "unaudited")
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_command_ends_cleanly(tmp_path: Path, case: str) -> None:
    arguments, after, number, during, outcome = CASES[case]
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    home_helpers.put(home, 0, [(a, b, None, "upsert", 0) for a in range(5) for b in range(a)])
    home_helpers.run(ledger, [0])
    home_helpers.put(home, 1, [(0, 9, None, "upsert", 0), (1, 9, None, "upsert", 0)])
    process = command(home.path, *arguments)
    before, said = interrupted(process, after, number)
    ends_cleanly(process, said, f"interrupted during {during}; {outcome}; run the same command to continue")
    assert before or after == JVM
    ledger = Ledger(home)
    assert ledger.revisions.get().revision == (1 if outcome == NOTHING else 2)
    if arguments[0] not in ("audit", "repair"):  # which record no run before they find something
        run = ledger.runs.list_all()[-1]
        assert run.owner is None
        if outcome == NOTHING:
            assert run.state == "interrupted" and f"interrupted during {during}" in (run.error or "")
        else:
            assert (run.state, run.error) == ("published", None)
    again = command(home.path, *arguments)
    assert again.wait(240) == 0, again.stderr.read() if again.stderr else ""
    assert Ledger(home).revisions.get().revision == (1 if arguments[0] in ("compact", "audit", "repair") else 2)


def ends_cleanly(process: subprocess.Popen[str], said: list[str], line: str) -> None:
    """With code 130 and this one line, no traces, and no process left."""
    assert process.returncode == Exit.INTERRUPTED, said
    assert [each for each in said if "interrupted" in each] == [line], said
    assert not [each for each in said if "py4j" in each or "Traceback" in each or "ERROR" in each], said
    assert group(process.pid) == {}, "a process stays behind"


@pytest.mark.slow
def test_an_interrupted_demo_goes_on(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path / "home", TOML)
    process = command(home.path, "demo")
    _, said = interrupted(process, "✓ ingest", signal.SIGINT)
    ends_cleanly(process, said, f"interrupted during edges; {NOTHING}; run the same command to continue")
    assert Ledger(home).runs.list_all()[-1].state == "interrupted"
    again = command(home.path, "demo")
    _, said = interrupted(again, "✓ report", signal.SIGTERM, seconds=1200)
    ends_cleanly(again, said, "interrupted during demo; revision 1 is published; run the same command to continue")
    run = Ledger(home).runs.list_all()[-1]
    assert (run.state, len(run.epochs)) == ("published", 193)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_interrupted_report_leaves_whole_pages(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    Seed(home).good_days(400)
    process = command(home, "report", "--all")
    while process.poll() is None and len(list(home.glob("reports/epoch=*.html"))) < 3:
        time.sleep(0.001)
    os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
    assert process.stderr is not None
    said = [line.rstrip() for line in process.stderr]
    process.wait()
    ends_cleanly(process, said, f"interrupted during report; {NOTHING}; run the same command to continue")
    written = [page.read_text() for page in home.glob("reports/epoch=*.html")]
    assert 3 <= len(written) < 400 and all("</html>" in page for page in written)
    again = command(home, "report", "--all")
    assert again.wait(240) == 0
    assert len(list(home.glob("reports/epoch=*.html"))) == 400
    assert {path.suffix for path in home.glob("reports/*")} <= {".html", ".json", ".css"}


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_interrupted_land_lands_nothing(tmp_path: Path, number: signal.Signals) -> None:
    home, _ = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 0, [(0, 1, None, "upsert", 0)])
    batch, before = (home.landing / "epoch=0" / "rows.csv").read_text(), (home.path / "altneu.toml").read_text()
    file = tmp_path / "many.csv"
    file.write_text("src,dst,weight\n" + "".join(f"{n},{n + 1},{n}.5\n" for n in range(1_000_000)))
    line = ["land", str(file), "--epoch", "0"]
    process = command(home.path, *line)
    _, said = interrupted(process, "understood as", number)
    assert process.returncode == Exit.INTERRUPTED, said
    assert said[-1] == "interrupted during land; nothing was landed; run the same command to continue", said
    assert len([row for row in said if not row.startswith(("  ", "reading "))]) == 1, said
    assert group(process.pid) == {}, "a process stays behind"
    assert (home.landing / "epoch=0" / "rows.csv").read_text() == batch
    assert (home.path / "altneu.toml").read_text() == before
    assert not [path for path in home.landing.glob("_work/*") if path.name != "lock"]
    again = command(home.path, *line)
    assert "landed 1,000,000 rows" in again.communicate(timeout=240)[0] and again.returncode == 0
