"""Commands that work in the JVM of a daemon: their turn, their size, and their ends, however they end."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from altneu.pipeline.home import memory_budget
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import shared_jvm
from altneu.pipeline.storage.daemon_client import NoDaemon, caller, read_status
from tests import home_helpers
from tests.daemon_places import Place, await_truth
from tests.session import TINY

CONF = "".join(f'"{key}" = "{value}", ' for key, value in TINY.items())
TOML = f'[spark]\nmaster = "local[1]"\nconf = {{ {CONF} "spark.driver.memory" = "1g" }}\n'


def test_a_process_waits_for_its_turn_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, said = tmp_path / "turn", list[str]()
    monkeypatch.setattr(caller, "wait", 0.3)
    monkeypatch.setattr(caller, "name", "altneu audit")
    monkeypatch.setattr(caller, "show_line", said.append)
    with shared_jvm._take_turn(file):
        assert shared_jvm.describe_turn(file) == "altneu audit (for 0 s)"
        with pytest.raises(NoDaemon, match="is still busy"), shared_jvm._take_turn(file):
            pass
        assert said == ["waiting for the daemon, which works for altneu audit (for 0 s)"]
    assert shared_jvm.describe_turn(file) == ""
    with shared_jvm._take_turn(file):
        pass


def test_the_turn_of_a_killed_process_is_free(tmp_path: Path) -> None:
    file = tmp_path / "turn"
    child = os.fork()
    if not child:
        fcntl.flock(os.open(file, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
        file.write_text(json.dumps({"name": "altneu run", "since": time.monotonic()}))
        signal.pause()
    await_truth(lambda: shared_jvm.describe_turn(file))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with shared_jvm._take_turn(file):
        pass


def test_a_heap_is_for_the_rows_that_it_is_made_for() -> None:
    half = memory_budget.driver_memory_mb()
    for rows in (0, 100_000, 400_000, 1_000_000, 10**9):
        heap = memory_budget.heap_mb(rows)
        assert min(half, 1280) <= heap <= half
        assert heap == half or memory_budget.max_heap_rows(heap << 20) >= rows - 1000
    assert memory_budget.heap_mb(100_000) == min(half, 1280)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with landed epochs, none of which was run."""
    home, _ = home_helpers.make(tmp_path_factory.mktemp("seeded") / "home", TOML)
    for epoch in range(6):
        home_helpers.put(home, epoch, [(a, epoch, None, "upsert", 0) for a in range(5) if a != epoch])
    return home.path


@pytest.fixture
def served(seeded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A copy of that home with a real daemon."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shutil.copytree(seeded, tmp_path / "home")
    for mark in (tmp_path / "home" / "landing").glob("*/_SUCCESS"):
        mark.touch()  # a copy of the file that it vouches for may be newer
    place = Place(tmp_path / "home", dict(os.environ))
    code, _, err = place.run("daemon", "start")
    assert code == 0, err
    yield place
    place.end()


def await_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(lines)


def newest(place: Place) -> int:
    return Ledger(Home.open(place.path)).revisions.get().revision


def test_a_run_is_interrupted_and_the_daemon_and_the_next_run_go_on(served: Place) -> None:
    before = read_status(served.path)
    process = served.start("run", "0")
    await_line(process, "✓ ingest")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)  # what waits for a job of the JVM after all is killed after 15 s
    assert process.returncode == 130 and newest(served) == 0, err
    code, out, err = served.run("run", "0")
    assert code == 0 and "published revision 1" in out and "Spark starts" not in err, err
    after = read_status(served.path)
    assert (
        before is not None and after is not None and after.pid == before.pid and after.commands >= before.commands + 2
    )
    assert served.run("show", "totals") == served.run("show", "totals", "--no-daemon")


STAGES = ["ingest", "edges", "triangles", "truss", "audit", "publish"]


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("victim", ["client", "JVM", "daemon"])
def test_whoever_is_killed_the_next_command_works(served: Place, victim: str, stage: str) -> None:
    """Once a stage is done; nothing is lost, and the epochs are published in the end."""
    assert served.run("run", "0")[0] == 0
    status = read_status(served.path)
    assert status is not None
    process = served.start("run", "1")
    await_line(process, f"✓ {stage}")
    if victim == "client":
        process.kill()
    elif victim == "daemon":
        os.kill(status.pid, signal.SIGKILL)
    else:
        next(each for each in psutil.Process(status.pid).children() if each.name() == "java").kill()
    process.communicate(timeout=120)
    assert process.returncode != 0 or stage == "publish"
    code, _, err = served.run("run", "1")
    assert code == 0, err
    assert newest(served) == 2
    assert served.run("audit")[0] == 0


@pytest.mark.slow
def test_runs_by_daemon_publish_what_processes_publish(served: Place, seeded: Path, tmp_path: Path) -> None:
    alone = Place(tmp_path / "alone", served.environment)
    shutil.copytree(seeded, alone.path)
    for words in (["run", "1"], ["run", "0"], ["backfill", "--all"], ["rebuild"], ["audit"], ["compact"]):
        assert [each.run(*words)[0] for each in (served, alone)] == [0, 0], words
        for view in ("totals", "edges", "vertices"):
            by_daemon, by_process = (each.run("show", view, "--format", "csv") for each in (served, alone))
            assert by_daemon == by_process, (words, view)
