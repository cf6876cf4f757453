"""How the work of a process on a run is recorded, whatever kind of run it is. No Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from altneu.pipeline.errors import LeaseLost, RevisionConflict, RunFailed
from altneu.pipeline.home.home import Home
from altneu.pipeline.interrupt import Interrupted
from altneu.pipeline.run import runner, stages
from altneu.pipeline.run.run_session import RunSession, classify
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunKind, RunState, StageState
from altneu.pipeline.state.stage_results import FailedFacts


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Home.open(tmp_path, create=True))


def begin_session(ledger: Ledger, kind: RunKind = RunKind.COMPACT) -> RunSession:
    return RunSession.begin_run(ledger, 0, kind, epochs=[], config={})


ENDS = {
    "failed": (OSError("no such device"), "OSError: no such device"),
    "interrupted": (KeyboardInterrupt(), "interrupted during compact"),
}


@pytest.mark.parametrize("state", ENDS)
def test_an_error_ends_the_stage_and_the_run_and_passes_unchanged(ledger: Ledger, state: str) -> None:
    error, words = ENDS[state]
    with pytest.raises(type(error)) as raised, begin_session(ledger) as session:
        session.start_stage()
        assert ledger.runs.get(session.run_id).owner == ledger.database.owner()
        raise error
    assert raised.value is error
    run, (stage,) = ledger.runs.get(session.run_id), ledger.stages.select(session.run_id)
    assert (run.state, run.error, run.owner, stage.stage, stage.state) == (state, words, None, "compact", state)
    assert isinstance(stage.facts, FailedFacts) and stage.facts.error == words


def test_the_first_error_is_the_one_on_record(ledger: Ledger) -> None:
    with pytest.raises(RunFailed, match="in other words"), begin_session(ledger, RunKind.ROLLBACK) as session:
        try:
            raise OSError("the cause")
        except OSError as error:
            session.record_failure(error)
            raise RunFailed("in other words") from error
    assert ledger.runs.get(session.run_id).error == "OSError: the cause"
    assert ledger.stages.select(session.run_id) == []  # a rollback has none


def test_what_is_done_stays_done(ledger: Ledger) -> None:
    """The answer to the last write may be lost."""
    with pytest.raises(OSError, match="no answer"), begin_session(ledger) as session:
        ledger.runs.finish(session.run_id, RunState.DONE)
        raise OSError("no answer")
    assert ledger.runs.get(session.run_id).state == "done"


def test_who_does_not_get_the_lease_changes_nothing(ledger: Ledger) -> None:
    session, other = begin_session(ledger), Ledger(ledger.home)
    other.database.owner = lambda: "elsewhere/1/1.00"
    other.runs.acquire_lease(session.run_id)
    before = ledger.runs.get(session.run_id)
    with pytest.raises(LeaseLost), session:
        raise AssertionError("not reached")
    assert ledger.runs.get(session.run_id) == before


def test_a_conflict_is_no_failure() -> None:
    conflict = RevisionConflict("another run was first", "run the same command again")
    outcome = classify(conflict, "publish")
    assert (outcome.state, outcome.what, outcome.next) == ("superseded", conflict.what, conflict.next)
    assert outcome.interruption is None
    assert classify(SystemExit(143), "edges").what == "interrupted during edges (SystemExit: 143)"


@pytest.mark.parametrize(
    ("config", "done", "during"),
    [
        ({}, stages.NAMES[:2], "triangles"),
        ({}, [name for name in stages.NAMES if name not in ("queries", "publish", "report")], "publish"),
        ({"queries": ["by_sender"]}, [name for name in stages.NAMES if name not in ("queries", "publish")], "queries"),
        # what is interrupted then is the command that has called the run
        ({}, [name for name in stages.NAMES if name != "queries"], None),
        ({"queries": ["by_sender"]}, stages.NAMES, None),
    ],
)
def test_an_interruption_between_stages_names_the_next_that_the_run_needs(
    config: dict[str, object], done: list[str], during: str | None, ledger: Ledger
) -> None:
    ledger.runs.create("r", 0, epochs=[1], config=config)
    for name in done:
        ledger.stages.record("r", name, StageState.DONE, time.time())
    with pytest.raises(Interrupted) as raised, runner._record_interruption(ledger, "r"):
        raise Interrupted("SIGTERM")
    run = ledger.runs.get("r")
    assert raised.value.during == during
    assert (run.state, run.error) == (RunState.INTERRUPTED, f"interrupted during {during or 'report'}")
