"""One process at a time works on a run: the lease, what a process that lost it may do (nothing), and how runs end."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

import altneu.pipeline.storage.session
from altneu.pipeline.errors import LeaseLost, RevisionConflict, RunFailed
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing.epoch_states import compare_with_ledger, list_epoch_rows
from altneu.pipeline.report import epoch_document
from altneu.pipeline.run import runner
from altneu.pipeline.state import clock, lease, process_identity
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import StagedBatch
from altneu.pipeline.state.stage_results import EdgesFacts
from tests import home_helpers

Clock = Callable[[float], None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let seconds pass on the clock that heartbeats are stamped with."""
    time = [datetime(2026, 1, 1, tzinfo=UTC)]
    monkeypatch.setattr(clock, "read_clock", lambda: time[0])

    def passed(seconds: float) -> None:
        time[0] += timedelta(seconds=seconds)

    return passed


@pytest.fixture
def ledger(tmp_path: Path, wait: Clock) -> Ledger:
    ledger = home_helpers.open_database(f"sqlite:///{tmp_path / 'altneu.db'}")
    ledger.runs.create("run", 0, epochs=[1], config={})
    return ledger


def other(ledger: Ledger, owner: str = "elsewhere/7/1.00") -> Ledger:
    """The same database in another process."""
    found = Ledger(ledger.home)
    found.database.owner = lambda: owner
    return found


WRITES: dict[str, Callable[[Ledger], object]] = {
    "stage": lambda ledger: ledger.stages.record("run", "edges", "done", 0.0),
    "batches": lambda ledger: ledger.outputs.put_batches("run", []),
    "totals": lambda ledger: ledger.outputs.put_totals("run", ["edges"], [("edges", 0, 1, 9)]),
    "checks": lambda ledger: ledger.checks.put("run", 1, []),
    "heartbeat": lambda ledger: ledger.runs.renew_lease("run"),
    "end": lambda ledger: ledger.runs.finish("run", "failed", "of the former owner"),
    "ledger row": lambda ledger: ledger.publish_revision("run", 0, frontier=1, snapshots={}, digest="d", mark=None),
    "compaction": lambda ledger: ledger.revisions.repin("run", {"edges": 1}, [1], None, []),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("then", ["at work", "given back", "given up"])
def test_a_process_that_lost_its_lease_changes_nothing(ledger: Ledger, wait: Clock, write: str, then: str) -> None:
    ledger.runs.acquire_lease("run")
    WRITES["stage"](ledger)
    wait(process_identity.SILENCE + 1)
    successor = other(ledger)
    if then == "given up":
        successor.runs.create("winner", 0, epochs=[2], config={})
        successor.publish_revision("winner", 0, frontier=2, snapshots={}, digest="d", mark=None)
        assert successor.runs.expire_dead() == ["run"]
    else:
        successor.runs.acquire_lease("run")
        successor.stages.record("run", "edges", "done", 0.0, EdgesFacts(rows=10, broadcast=True))
        if then == "given back":
            successor.runs.release_lease("run")
    before = [
        ledger.runs.get("run"),
        ledger.revisions.list_all(),
        ledger.stages.select("run"),
        ledger.outputs.staged_totals("run", 1),
    ]
    with pytest.raises(LeaseLost) as lost:
        WRITES[write](ledger)
    assert "run run" in lost.value.what and lost.value.next
    assert [
        ledger.runs.get("run"),
        ledger.revisions.list_all(),
        ledger.stages.select("run"),
        ledger.outputs.staged_totals("run", 1),
    ] == before


def test_a_lease_is_taken_over_when_it_is_free(ledger: Ledger, wait: Clock) -> None:
    ledger.runs.acquire_lease("run")
    successor = other(ledger)
    with pytest.raises(LeaseLost, match=rf"process {os.getpid()} on .* works on run run \(last heartbeat 2026"):
        successor.runs.acquire_lease("run")
    wait(process_identity.SILENCE - 1)
    ledger.runs.renew_lease("run")
    wait(2)
    with pytest.raises(LeaseLost):
        successor.runs.acquire_lease("run")
    ledger.runs.release_lease("run")
    successor.runs.acquire_lease("run")  # the next stage, in another process
    with pytest.raises(LeaseLost, match="process 7 on elsewhere"):
        ledger.runs.acquire_lease("run")
    wait(process_identity.SILENCE + 1)
    ledger.runs.acquire_lease("run")


def test_that_the_owner_has_ended_shows_on_its_machine(ledger: Ledger) -> None:
    machine, pid, began = process_identity.process_token().rsplit("/", 2)
    child = subprocess.Popen(["sleep", "600"])
    try:
        holder = other(ledger, process_identity.process_token(child.pid))
        holder.runs.acquire_lease("run")
        assert ledger.runs.get("run").is_alive
        with pytest.raises(LeaseLost):
            ledger.runs.acquire_lease("run")
    finally:
        child.kill()
    child.wait()
    assert not ledger.runs.get("run").is_alive
    ledger.runs.acquire_lease("run")
    assert process_identity.has_ended(f"{machine}/{pid}/1.00"), "another process has got its number since"
    assert not process_identity.has_ended(f"{machine}/{pid}/{began}")
    assert not process_identity.has_ended(f"another machine/{child.pid}/1.00")


def test_a_clock_that_is_set_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    token = process_identity.process_token()
    boot = psutil.boot_time()
    for change in (-3600, -1, 1, 3600):
        monkeypatch.setattr("psutil._psplatform.boot_time", lambda change=change: boot + change)
        assert process_identity.process_token() == token
        assert not process_identity.has_ended(token)


def test_a_process_number_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number, of two processes after one another: each has its own token."""
    began = iter(("1", "2"))
    monkeypatch.setattr(process_identity, "_process_start", lambda there: next(began))
    assert process_identity.process_token() != process_identity.process_token()


def test_two_take_it_at_once(ledger: Ledger) -> None:
    barrier, won = threading.Barrier(8), []

    def work(number: int) -> None:
        mine = other(ledger, f"elsewhere/{number}/1.00")
        barrier.wait()
        try:
            mine.runs.acquire_lease("run")
            won.append(mine.database.owner())
        except LeaseLost:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [ledger.runs.get("run").owner]


def test_the_heartbeat_goes_on_beside_the_work(ledger: Ledger, wait: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the block takes by the clock: each beat is seen by another process."""
    monkeypatch.setattr(lease, "BEAT", 0.001)
    beaten = threading.Event()
    beat = ledger.runs.renew_lease
    monkeypatch.setattr(ledger.runs, "renew_lease", lambda run_id: (beat(run_id), beaten.set()))
    with lease.hold_lease(ledger, "run"):
        for _ in range(3):
            wait(process_identity.SILENCE + 1)
            for _ in range(2):  # the first one may have looked at the clock before
                beaten.clear()
                assert beaten.wait(60)
            assert other(ledger).runs.get("run").is_alive
    assert ledger.runs.get("run").owner is None


def home_of(tmp_path: Path) -> tuple[Home, Ledger]:
    home = Home.open(tmp_path, create=True)
    (home.landing / "epoch=1").mkdir(parents=True, exist_ok=True)
    (home.landing / "epoch=1" / "a.csv").write_text("src,dst\n1,2\n")
    return home, Ledger(home)


def publish(ledger: Ledger, run_id: str) -> None:
    digest = compare_with_ledger(ledger)[1][1].digest
    ledger.outputs.put_batches(run_id, [StagedBatch(1, digest, 1, 1, 0)])
    ledger.publish_revision(
        run_id,
        ledger.runs.get(run_id).parent,
        frontier=1,
        snapshots={},
        digest=ledger.home.config.semantic_digest(),
        mark=None,
    )


def read_run_state(ledger: Ledger) -> tuple[str, str | None, str]:
    """Return what `status` and the pages say of epoch 1: state and error, and the page's state."""
    (row,) = list_epoch_rows(ledger)[1]
    return row["state"], row["error"], epoch_document(ledger, 1)["state"]


def test_who_loses_at_publish_is_superseded(tmp_path: Path) -> None:
    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    ledger.runs.create("b", 0, epochs=[1], config={})
    publish(ledger, "a")
    good = read_run_state(ledger)
    assert good == ("published", None, "unaudited")
    with pytest.raises(RevisionConflict, match="run a has published revision 1"):
        publish(ledger, "b")
    row = ledger.runs.get("b")
    assert (row.state, row.error) == ("superseded", "superseded by revision 1")
    assert row.finished_at and read_run_state(ledger) == good
    assert ledger.runs.list_dead() == ["b"] and ledger.runs.expire_dead() == ["b"]
    assert ledger.runs.get("b").state == "superseded"
    ledger.runs.finish("b", "failed", "whatever comes after")
    assert ledger.runs.get("b").state == "superseded"
    with pytest.raises(RevisionConflict):
        runner.execute_stage(ledger, "b", "edges")


def test_a_stage_of_an_overtaken_run_ends_before_it_works(tmp_path: Path) -> None:
    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    ledger.runs.create("b", 0, epochs=[1], config={})
    publish(ledger, "a")
    with pytest.raises(RevisionConflict, match="Nothing of this run was published"):
        runner.execute_stage(ledger, "b", "ingest")
    assert (ledger.runs.get("b").state, list(ledger.stages.select("b"))) == ("superseded", [])


@pytest.mark.parametrize("end", ["failed", "interrupted", "killed"])
def test_what_was_published_after_a_failure_is_not_red(tmp_path: Path, wait: Clock, end: str) -> None:
    """Run a began first and published last: how b ended in between is history."""
    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    wait(1)
    ledger.runs.create("b", 0, epochs=[1], config={})
    wait(1)
    if end != "killed":
        ledger.runs.finish("b", end, "its cause")
    wait(1)
    publish(ledger, "a")
    wait(process_identity.SILENCE + 1)
    assert read_run_state(ledger) == ("published", None, "unaudited")
    ledger.runs.expire_dead()
    assert read_run_state(ledger) == ("published", None, "unaudited")


@pytest.mark.parametrize(("state", "page"), [("failed", "failed"), ("interrupted", "running")])
def test_how_a_run_ended_is_told(tmp_path: Path, state: str, page: str) -> None:
    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    ledger.runs.finish("a", state, "its cause")
    assert read_run_state(ledger) == (state, "its cause", page)


def test_a_run_that_stopped_is_not_running(tmp_path: Path, wait: Clock) -> None:
    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    assert read_run_state(ledger)[0] == "running"
    wait(process_identity.SILENCE + 1)
    state, error, _ = read_run_state(ledger)
    assert state == "failed" and error and "run a stopped without an error message (last heartbeat 2026-01-01" in error


class Terminated(BaseException):
    """As Airflow ends a task."""


ENDS = (KeyboardInterrupt(), SystemExit(143), Terminated("SIGTERM received"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_what_ends_the_process_passes_a_stage_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException, clean: bool
) -> None:
    def work(*_: object) -> None:
        try:
            raise end
        finally:
            if not clean:  # as when Spark's JVM has ended as well
                raise ConnectionRefusedError("no JVM answers")

    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    monkeypatch.setattr(altneu.pipeline.storage.session, "session_for", work)
    with pytest.raises(type(end)) as raised:
        runner.execute_stage(ledger, "a", "edges")
    assert raised.value is end
    row, (stage,) = ledger.runs.get("a"), ledger.stages.select("a")
    assert (row.state, stage.state, row.owner) == ("interrupted", "interrupted", None)
    assert row.error and row.error.startswith("interrupted during edges")
    assert read_run_state(ledger) == ("interrupted", row.error, "running")


def test_a_failure_of_a_stage_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object) -> None:
        raise OSError("no such device")

    _, ledger = home_of(tmp_path)
    ledger.runs.create("a", 0, epochs=[1], config={})
    monkeypatch.setattr(altneu.pipeline.storage.session, "session_for", work)
    with pytest.raises(RunFailed, match="stage edges of run a failed: OSError: no such device"):
        runner.execute_stage(ledger, "a", "edges")
    assert (ledger.runs.get("a").state, ledger.runs.get("a").error) == ("failed", "edges: OSError: no such device")
