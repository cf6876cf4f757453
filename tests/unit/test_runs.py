"""The rows of runs and revisions: which snapshots are still needed, whose branches may go, what overtakes a run; and
what runs say of their stages, batches, checks and totals. No Spark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from altneu.algorithms.graph.proof_records import GraphCounts, Proof, ProofScope
from altneu.pipeline.errors import AltneuError, RevisionConflict
from altneu.pipeline.state import clock, process_identity, totals
from altneu.pipeline.state.failed_runs import Attempt, describe_attempt, list_unpublished, newest_unresolved
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import EMPTY, RunKind, RunState, StagedBatch, StageState
from altneu.pipeline.state.schema import runs
from altneu.pipeline.state.stage_results import (
    AuditFacts,
    CompactFacts,
    EdgesFacts,
    FailedFacts,
    IngestFacts,
    PublishFacts,
    Size,
)
from tests import home_helpers
from tests.report.seed import audit, check

Clock = Callable[[float], None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let seconds pass on the clock that rows are stamped with; each look at it takes one."""
    time = [datetime(2026, 1, 1, tzinfo=UTC)]

    def passed(seconds: float) -> None:
        time[0] += timedelta(seconds=seconds)

    def read_next_second() -> datetime:
        passed(0.001)
        return time[0]

    monkeypatch.setattr(clock, "read_clock", read_next_second)
    return passed


@pytest.fixture
def ledger(tmp_path: Path, wait: Clock) -> Ledger:
    return home_helpers.open_database(f"sqlite:///{tmp_path / 'altneu.db'}")


def publish(ledger: Ledger, run_id: str, epoch: int = 1, kind: RunKind = RunKind.RUN, **pins: int) -> None:
    """A run of one epoch, published on what is the newest revision."""
    parent = ledger.revisions.get().revision
    ledger.runs.create(run_id, parent, epochs=[epoch], config={}, kind=kind)
    ledger.outputs.put_batches(run_id, [StagedBatch(epoch, f"of {run_id}", 1, 5, 0)])
    ledger.outputs.put_totals(run_id, ["edges"], [("edges", 0, epoch, 5)])
    frontier = max(
        epoch,
        *([] if parent == 0 or ledger.revisions.get().frontier is None else [ledger.revisions.get().frontier]),
        epoch,
    )
    ledger.publish_revision(run_id, parent, frontier=frontier, snapshots=pins, digest="digest", mark=None)


# -- revisions ----------------------------------------------------------------------------------------------------


def test_a_published_run_says_so_and_its_former_failure_is_gone(ledger: Ledger) -> None:
    ledger.runs.create("a", 0, epochs=[1], config={})
    ledger.runs.create("other", 0, epochs=[1], config={})
    ledger.runs.finish("a", RunState.FAILED, "no memory")
    assert (ledger.runs.get("a").state, ledger.runs.get("a").error) == ("failed", "no memory")
    failed_at = ledger.runs.get("a").finished_at
    ledger.runs.acquire_lease("a")
    assert (ledger.runs.get("a").state, ledger.runs.get("a").error, ledger.runs.get("a").finished_at) == (
        "running",
        None,
        None,
    )
    ledger.publish_revision("a", 0, frontier=1, snapshots={}, digest="digest", mark=None)
    run = ledger.runs.get("a")
    assert (run.state, run.error) == ("published", None) and run.finished_at and run.finished_at > str(failed_at)
    assert (ledger.runs.get("other").state, ledger.runs.get("other").finished_at) == ("running", None)


def test_the_newest_revision_and_those_before(ledger: Ledger) -> None:
    with pytest.raises(AltneuError, match="nothing is published yet"):
        ledger.revisions.require_published()
    for number in (1, 2, 3):
        publish(ledger, f"r{number}", number)
    assert [row.revision for row in ledger.revisions.list_all()] == [1, 2, 3]
    assert (ledger.revisions.get().run_id, ledger.revisions.get(2).run_id, ledger.revisions.get(0)) == (
        "r3",
        "r2",
        EMPTY,
    )
    assert (ledger.revisions.require_published(), ledger.revisions.require_published(1)) == (
        ledger.revisions.get(3),
        ledger.revisions.get(1),
    )
    assert [row.parent for row in ledger.revisions.list_all()] == [0, 1, 2]
    with pytest.raises(AltneuError, match="revision 4 was not published; the newest is 3"):
        ledger.revisions.get(4)


def test_a_rollback_hides_the_revisions_that_it_takes_back(ledger: Ledger) -> None:
    for number in (1, 2, 3):
        publish(ledger, f"r{number}", number, edges=number)

    def back(run_id: str, to: int) -> None:
        newest, again = ledger.revisions.get().revision, ledger.revisions.get(to)
        ledger.runs.create(run_id, newest, epochs=[], config={}, kind=RunKind.ROLLBACK)
        ledger.publish_revision(
            run_id,
            newest,
            frontier=again.frontier,
            snapshots=again.snapshots,
            digest="digest",
            mark=None,
            since=again.since,
            again=again,
        )

    back("to 2", 2)
    assert (ledger.revisions.get().revision, ledger.revisions.get().hidden) == (4, ((3, 3),))
    publish(ledger, "r5", 5)
    assert ledger.revisions.get().hidden == ((3, 3),)
    back("to 4", 4)
    assert (ledger.revisions.get().revision, ledger.revisions.get().hidden) == (6, ((3, 3), (5, 5)))
    back("to 1", 1)
    assert ledger.revisions.get().hidden == ((2, 6),)
    back("to 0", 0)
    assert (ledger.revisions.get().hidden, ledger.revisions.get().frontier) == (((1, 7),), None)
    with pytest.raises(AltneuError, match="revision 8 is empty, because it is a rollback to revision 0"):
        ledger.revisions.require_published()
    assert ledger.revisions.require_published(7).revision == 7


def test_which_epochs_a_revision_answers_after_a_compaction() -> None:
    assert EMPTY.knows_epoch(-5)
    folded = replace(EMPTY, since=3)
    assert [folded.knows_epoch(epoch) for epoch in (2, 3, 4)] == [False, True, True]


def test_a_compaction_changes_the_revisions_that_it_names(ledger: Ledger) -> None:
    for number in (1, 2, 3, 4):
        publish(ledger, f"r{number}", number, edges=number)
    ledger.runs.create("compaction", 4, epochs=[], config={}, kind=RunKind.COMPACT)
    ledger.revisions.repin("compaction", {"edges": 9}, [2, 3], 2, [1])
    assert [(row.snapshots, row.since) for row in ledger.revisions.list_all()] == [
        ({}, None),
        ({"edges": 9}, 2),
        ({"edges": 9}, 2),
        ({"edges": 4}, None),
    ]


# -- runs ---------------------------------------------------------------------------------------------------------


def test_runs_oldest_first_and_one_that_is_not_there(ledger: Ledger) -> None:
    for run_id in ("b", "a", "c"):
        ledger.runs.create(
            run_id, 0, epochs=[1, 2], config={"motifs": {"y": "a-b", "x": "b-c"}} if run_id == "a" else {}
        )
    assert [run.run_id for run in ledger.runs.list_all()] == ["b", "a", "c"]
    assert (ledger.runs.get("a").epochs, ledger.runs.get("a").kind, ledger.runs.get("a").is_alive) == (
        (1, 2),
        RunKind.RUN,
        True,
    )
    ledger.publish_revision("a", 0, frontier=2, snapshots={}, digest="digest", mark=None)
    assert (ledger.runs.list_motifs(ledger.revisions.get()), ledger.runs.list_motifs(EMPTY)) == (["y", "x"], [])
    with pytest.raises(AltneuError, match="there is no run 'none'"):
        ledger.runs.get("none")


def test_a_run_goes_on_from_its_parent_as_it_was_when_it_began(ledger: Ledger) -> None:
    publish(ledger, "r1", 1, edges=1)
    publish(ledger, "r2", 2, edges=2)
    ledger.runs.create("before", 2, epochs=[3], config={})
    ledger.runs.create("on the first", 1, epochs=[3], config={})
    ledger.runs.create("compaction", 2, epochs=[], config={}, kind=RunKind.COMPACT)
    ledger.revisions.repin("compaction", {"edges": 9}, [1, 2], 2, [])
    ledger.runs.create("after", 2, epochs=[3], config={})
    found = {run_id: ledger.runs.get_parent(ledger.runs.get(run_id)) for run_id in ("before", "on the first", "after")}
    assert {run_id: (row.revision, row.since, row.snapshots) for run_id, row in found.items()} == {
        "before": (2, None, {"edges": 2}),
        "on the first": (1, None, {"edges": 1}),
        "after": (2, 2, {"edges": 9}),
    }
    assert found["before"].run_id == "r2"
    with ledger.database.engine.begin() as connection:  # of before runs had one
        connection.execute(runs.update().where(runs.c.run_id == "before").values(base=None))
    assert ledger.runs.get_parent(ledger.runs.get("before")) == ledger.revisions.get(2)
    assert ledger.runs.get("r1").base and ledger.runs.get_parent(ledger.runs.get("r1")) == EMPTY


def test_snapshots_of_revisions_and_of_runs_that_may_go_on_are_needed(ledger: Ledger) -> None:
    publish(ledger, "r1", 1, edges=1, names=7)
    ledger.runs.create("overtaken", 1, epochs=[2], config={})
    publish(ledger, "r2", 2, edges=2, names=7)
    for run_id in ("open", "failed", "interrupted", "superseded", "compaction"):
        ledger.runs.create(
            run_id, 2, epochs=[3], config={}, kind=RunKind.COMPACT if run_id == "compaction" else RunKind.RUN
        )
    for state in (RunState.FAILED, RunState.INTERRUPTED, RunState.SUPERSEDED):
        ledger.runs.finish(str(state), state)
    assert ledger.runs.pinned_snapshots() == {"edges": {1, 2}, "names": {7}}
    ledger.revisions.repin("compaction", {"edges": 9}, [2], 2, [1])
    assert ledger.runs.pinned_snapshots() == {"edges": {2, 9}, "names": {7}}  # for the runs that began before
    assert ledger.runs.pinned_snapshots(without="open") == {"edges": {2, 9}, "names": {7}}
    for state in (RunState.FAILED, RunState.INTERRUPTED):
        ledger.runs.acquire_lease(str(state))
        ledger.runs.finish(str(state), RunState.SUPERSEDED)
    assert ledger.runs.pinned_snapshots(without="compaction") == {"edges": {2, 9}, "names": {7}}
    ledger.runs.finish("compaction", RunState.DONE)
    assert ledger.runs.pinned_snapshots(without="open") == {"edges": {9}}


def test_whose_branches_may_go(ledger: Ledger, wait: Clock) -> None:
    ledger.runs.create("silent", 0, epochs=[1], config={})
    ledger.runs.create("failed", 0, epochs=[1], config={})
    ledger.runs.finish("failed", RunState.FAILED, "its cause")
    publish(ledger, "r1", 1)
    ledger.runs.create("on the newest", 1, epochs=[2], config={})
    ledger.runs.finish("on the newest", RunState.INTERRUPTED)
    ledger.runs.create("compaction", 1, epochs=[], config={}, kind=RunKind.COMPACT)
    ledger.runs.create("done", 1, epochs=[], config={}, kind=RunKind.COMPACT)
    ledger.runs.finish("done", RunState.DONE)
    ledger.runs.create("refused", 1, epochs=[2], config={})
    ledger.runs.finish("refused", RunState.SUPERSEDED)
    assert ledger.runs.list_with_branches() == {
        "silent",
        "failed",
        "r1",
        "on the newest",
        "compaction",
        "done",
        "refused",
    }
    assert {*ledger.runs.list_dead()} == {"failed"}  # the others may be at work
    wait(process_identity.SILENCE + 1)
    assert {*ledger.runs.list_dead()} == {"silent", "failed", "r1", "compaction"}
    ledger.runs.renew_lease("silent")
    assert {*ledger.runs.list_dead()} == {"silent", "failed", "r1", "compaction"}  # a heartbeat without a lease is none
    ledger.runs.forget_branches(["r1", "failed"])
    assert {*ledger.runs.list_dead()} == {"silent", "compaction"}
    assert ledger.runs.list_with_branches() == {"silent", "on the newest", "compaction", "done", "refused"}


def test_a_killed_run_is_given_up_and_said_to_have_stopped(ledger: Ledger, wait: Clock) -> None:
    for run_id in ("silent", "failed"):
        ledger.runs.create(run_id, 0, epochs=[1], config={})
    beat = ledger.runs.get("silent").beat_at
    ledger.runs.finish("failed", RunState.FAILED, "its cause")
    publish(ledger, "r1", 1)
    ended = ledger.runs.get("failed").finished_at
    wait(process_identity.SILENCE + 1)
    assert ledger.runs.expire_dead() == ["silent", "failed", "r1"]
    silent, failed, published = (ledger.runs.get(run_id) for run_id in ("silent", "failed", "r1"))
    assert (silent.state, silent.finished_at, silent.owner) == ("failed", beat, None)
    assert silent.error == "it stopped without an error message (killed, or the machine went down)"
    assert (failed.state, failed.error, failed.finished_at) == ("failed", "its cause", ended)
    assert (published.state, published.error) == ("published", None)


@pytest.mark.parametrize("end", [RunState.FAILED, RunState.INTERRUPTED, RunState.SUPERSEDED])
def test_a_run_that_ends_meanwhile_is_not_given_up(
    ledger: Ledger, wait: Clock, monkeypatch: pytest.MonkeyPatch, end: RunState
) -> None:
    """Between the look and the end of the lease: another process takes it, or writes how it ended."""
    ledger.runs.create("a", 0, epochs=[1], config={})
    publish(ledger, "r1", 1)
    wait(process_identity.SILENCE + 1)
    rows = ledger.runs._dead_records()
    assert [row.run_id for row in rows] == ["a", "r1"]
    monkeypatch.setattr(ledger.runs, "_dead_records", lambda: rows[:1])
    ledger.runs.finish("a", end, "its cause")
    assert ledger.runs.expire_dead() == []
    monkeypatch.setattr(ledger.runs, "_dead_records", lambda: rows[1:])
    other = Ledger(ledger.home)
    other.runs.acquire_lease("r1")
    assert ledger.runs.expire_dead() == [] and ledger.runs.get("r1").owner == other.database.owner()
    assert (ledger.runs.get("a").state, ledger.runs.get("a").error) == (end, "its cause")


def test_what_overtakes_a_run(ledger: Ledger) -> None:
    ledger.runs.create("late", 0, epochs=[1], config={})
    ledger.runs.create("compaction", 0, epochs=[], config={}, kind=RunKind.COMPACT)
    ledger.runs.require_newest_parent("late")
    publish(ledger, "r1", 1)
    publish(ledger, "r2", 2)
    ledger.runs.require_newest_parent("compaction")
    ledger.runs.require_newest_parent("r1")
    overtaken = "run late builds on revision 0, but run r1 has published revision 1 meanwhile"
    with pytest.raises(RevisionConflict, match=overtaken):
        ledger.runs.require_newest_parent("late")
    run = ledger.runs.get("late")
    assert (run.state, run.error) == ("superseded", "superseded by revision 1") and run.finished_at
    ended = run.finished_at
    with pytest.raises(RevisionConflict, match=overtaken):
        ledger.runs.require_newest_parent("late")
    assert ledger.runs.get("late").finished_at == ended
    ledger.runs.finish("compaction", RunState.DONE)
    ledger.runs.require_newest_parent("compaction")
    assert {run.run_id: str(run.state) for run in ledger.runs.list_all()} == {
        "late": "superseded",
        "compaction": "done",
        "r1": "published",
        "r2": "published",
    }


# -- what runs say ------------------------------------------------------------------------------------------------


def test_checks_of_a_run_and_of_an_epoch(ledger: Ledger) -> None:
    for run_id in ("a", "b"):
        ledger.runs.create(run_id, 0, epochs=[1], config={})
    ledger.checks.put("a", 1, [check(1, "old")])
    ledger.checks.put("b", 1, [check(1, "other", passed=False)])
    ledger.checks.put("a", 1, [check(1, "one"), check(2, "two")])  # the stage tried again
    ledger.checks.put(None, 4, audit(2)[:1])
    ledger.checks.put(None, 5, audit(2)[:1])  # an audit replaces none

    def names(**of: Any) -> list[tuple[str, int]]:
        return [(row.name, row.revision) for row in ledger.checks.select(**of)]

    audits = [("vertex totals equal", 4), ("vertex totals equal", 5)]
    assert names() == [("other", 1), ("one", 1), ("two", 1), *audits]
    assert names(run_id="a") == [("one", 1), ("two", 1)]
    assert names(epoch=2) == [("two", 1), *audits]
    assert names(run_id="a", epoch=1) == [("one", 1)] and names(run_id="") == [] and names(epoch=0) == []
    assert [row.passed for row in ledger.checks.select("b")] == [False] and ledger.checks.select("b")[0].at


def test_batches_and_totals_as_of_a_revision(ledger: Ledger) -> None:
    publish(ledger, "r1", 2)
    publish(ledger, "r2", 1)
    ledger.runs.create("r3", 2, epochs=[2], config={})
    ledger.outputs.put_batches("r3", [StagedBatch.for_removed_epoch(2), StagedBatch(3, "of r3", 2, 7, 1)])
    ledger.outputs.put_totals("r3", ["edges"], [("edges", 0, 2, -5), ("edges", 0, 3, 0)])
    ledger.outputs.put_totals("r3", ["truss"], [("truss", 3, 2, 1)])
    assert [*ledger.outputs.published_batches()] == [1, 2]
    assert [batch.epoch for batch in ledger.outputs.staged_batches("r3")] == [2, 3]
    assert sorted(ledger.outputs.staged_totals("r3", 8)) == [("edges", 0, 2, 8, -5), ("truss", 3, 2, 8, 1)]
    ledger.publish_revision("r3", 2, frontier=3, snapshots={}, digest="digest", mark=None)
    assert {epoch: (batch.revision, batch.rows) for epoch, batch in ledger.outputs.published_batches().items()} == {
        1: (2, 5),
        3: (3, 7),
    }
    assert {epoch: batch.digest for epoch, batch in ledger.outputs.published_batches(2).items()} == {
        1: "of r2",
        2: "of r1",
    }
    assert [*ledger.outputs.published_batches(1)] == [2] and ledger.outputs.published_batches(0) == {}
    first = [("edges", 0, 2, 1, 5), ("edges", 0, 1, 2, 5)]
    assert sorted(ledger.outputs.total_diffs(2)) == sorted(first) and ledger.outputs.total_diffs(0) == []
    assert sorted(ledger.outputs.total_diffs()) == sorted([*first, ("edges", 0, 2, 3, -5), ("truss", 3, 2, 3, 1)])


def test_what_finished_stages_say(ledger: Ledger) -> None:
    publish(ledger, "r1", 1)
    ledger.runs.create("a", 1, epochs=[1], config={})
    ingest = IngestFacts(rows=3, quarantined=0, changed_rows=3, replaced_epochs=0, quarantine_sample=[])
    ledger.stages.record("a", "edges", StageState.RUNNING, 2000.0)
    assert [(row.state, row.seconds) for row in ledger.stages.select("a")] == [("running", None)]
    ledger.stages.record("a", "edges", StageState.FAILED, 2000.0, FailedFacts(error="x", snapshots={"edges": 4}))
    ledger.stages.record("a", "ingest", StageState.DONE, 1000.0, replace(ingest, snapshots={"upserts": 5}))
    assert [row.stage for row in ledger.stages.select("a")] == ["ingest", "edges"]
    assert ledger.stages.recorded_snapshots("a") == {"upserts": 5}
    assert ledger.stages.get_facts("a", IngestFacts).rows == 3
    with pytest.raises(AltneuError, match="run a: stage edges has not finished"):
        ledger.stages.get_facts("a", EdgesFacts)
    ledger.stages.record(
        "a", "edges", StageState.DONE, 3000.0, EdgesFacts(rows=1, broadcast=True, snapshots={"edges": 6})
    )
    assert (len(ledger.stages.select("a")), ledger.stages.get_facts("a", EdgesFacts).rows) == (2, 1)
    assert ledger.stages.recorded_snapshots("a") == {"upserts": 5, "edges": 6}
    done = ledger.stages.select("a")[1]
    assert done.started_at == "1970-01-01T00:50:00.000+00:00" and done.seconds and done.seconds > 10**9
    assert ledger.stages.list_recent(5) == []  # it is not published
    ledger.publish_revision("a", 1, frontier=1, snapshots={}, digest="digest", mark=None)
    ledger.stages.record("a", "audit", StageState.FAILED, 4000.0)
    assert {row.stage for row in ledger.stages.list_recent(1)} == {"ingest", "edges"}
    ledger.stages.record("r1", "audit", StageState.DONE, 1.0, AuditFacts(checks=1, failed=0, critical=0))
    assert {row.run_id for row in ledger.stages.list_recent(2)} == {"a", "r1"} and {
        row.run_id for row in ledger.stages.list_recent(1)
    } == {"a"}


def test_sizes_are_those_of_the_last_publication_or_compaction(ledger: Ledger) -> None:
    assert ledger.stages.table_sizes() == {}
    for run_id in ("a", "b", "c"):
        ledger.runs.create(run_id, 0, epochs=[1], config={})

    def published(run_id: str, at: float, rows: int, state: StageState = StageState.DONE) -> None:
        facts = PublishFacts(revision=1, tables={"edges": Size(rows=rows)})
        ledger.stages.record(run_id, "publish", state, at, facts)

    published("a", 20.0, 1)
    published("b", 10.0, 2)
    published("c", 30.0, 3, StageState.FAILED)
    assert ledger.stages.table_sizes() == {"edges": Size(rows=1)}
    folded = {"edges": Size(rows=9)}
    compacted = CompactFacts(
        since=None, revisions=[1, 1], dropped_revisions=0, expired_snapshots=0, orphans=0, tables=folded
    )
    ledger.stages.record("c", "compact", StageState.DONE, 40.0, compacted)
    assert ledger.stages.table_sizes() == folded


def test_runs_that_did_not_publish_by_epoch(ledger: Ledger, wait: Clock) -> None:
    ledger.runs.create("late", 0, epochs=[1, 2], config={})
    ledger.runs.create("early", 0, epochs=[2], config={})
    ledger.runs.create("compaction", 0, epochs=[2], config={}, kind=RunKind.COMPACT)
    publish(ledger, "r1", 2)
    ledger.runs.finish("early", RunState.FAILED, "its cause")
    wait(10)
    ledger.runs.finish("late", RunState.INTERRUPTED)
    found = list_unpublished(ledger)
    assert {epoch: [told.run_id for told in each] for epoch, each in found.items()} == {
        1: ["late"],
        2: ["early", "late"],
    }
    early, late = found[2]
    assert (early.state, early.error, early.epochs, late.epochs) == ("failed", "its cause", 1, 2)
    assert early.last_seen_at == early.finished_at and late.seconds is not None and 10 < late.seconds < 11
    assert describe_attempt(ledger.runs.get("compaction")).seconds is None
    wait(process_identity.SILENCE + 1)
    silent = describe_attempt(ledger.runs.get("compaction"))
    assert (silent.state, silent.error) == (
        "failed",
        f"run compaction stopped without an error message (last heartbeat {ledger.runs.get('compaction').beat_at})",
    )


def test_what_a_run_that_did_not_publish_still_says() -> None:
    def told(run_id: str, parent: int, state: RunState = RunState.FAILED) -> Attempt:
        return Attempt(run_id, state, None, RunKind.RUN, parent, "", None, "", 1)

    tried = [told("a", 3), told("b", 4), told("c", 5, RunState.SUPERSEDED)]
    assert [one and one.run_id for one in (newest_unresolved(tried, touched) for touched in (0, 3, 4, 5))] == [
        "b",
        "b",
        "b",
        None,
    ]
    assert newest_unresolved([], 0) is None and newest_unresolved(tried[2:], 0) is None


def test_the_proof_of_a_run_is_replaced_and_taken_away(ledger: Ledger) -> None:
    for run_id in ("a", "b"):
        ledger.runs.create(run_id, 0, epochs=[1], config={})
    one, other = (Proof({}, GraphCounts(n, 2, 1, 0, {3: n}), [], {}, n, 0, [], ProofScope(8, 3)) for n in (5, 6))
    for proof in (other, one):
        ledger.outputs.put_proof("a", proof.to_json())
    ledger.outputs.put_proof("b", other.to_json())
    assert (ledger.outputs.get_proof("a"), ledger.outputs.get_proof("b")) == (one, other)
    ledger.outputs.put_proof("b", None)
    assert (ledger.outputs.get_proof("a"), ledger.outputs.get_proof("b")) == (one, None)
    earlier = {name: said for name, said in json.loads(one.to_json()).items() if name != "between"}
    ledger.outputs.put_proof("a", json.dumps(earlier | {"part": {"edges": {"first": 1, "second": 2}}}))
    assert ledger.outputs.get_proof("a") == replace(one, scope=ProofScope()), (
        "of a part whose vertices are chosen otherwise by now"
    )


# -- totals -------------------------------------------------------------------------------------------------------


def test_totals_of_each_measure() -> None:
    diffs = [
        ("vertices", 0, 1, 1, 4),
        ("edges", 0, 1, 1, 5),
        ("triangles", 0, 1, 2, 2),
        ("wedges", 0, 1, 1, 8),
        ("truss", 3, 1, 1, 5),
        ("motif", 1, 1, 1, 6),
        ("motif", 0, 1, 1, 7),
        ("of a later version", 0, 1, 1, 9),
        ("motif", 1, 3, 1, -2),
        ("truss", 3, 3, 1, -5),
        ("truss", 2, 3, 1, 1),
        ("wedges", 0, 3, 1, -8),
        ("edges", 0, 9, 3, 1),
    ]
    points = totals.sum_totals(diffs, 8)
    assert [*points] == [1, 3] and [*totals.sum_totals(diffs)] == [1, 3, 9]
    assert [*totals.sum_totals(diffs, 3)] == [1, 3]
    first = {"vertices": 4, "edges": 5, "triangles": 2, "wedges": 8, "max_trussness": 3, "transitivity": 0.75}
    assert points[1] == first | {"trusses": {3: 5}, "motifs": {1: 6, 0: 7}, "revision": 2}
    then = first | {"wedges": 0, "max_trussness": 2, "transitivity": 0.0}
    assert points[3] == then | {"trusses": {2: 1}, "motifs": {1: 4, 0: 7}, "revision": 2}
    shown = totals.totals_at(points, [0, 1, 2, 3, 100])
    assert shown == {0: totals.NOTHING, 1: points[1], 2: points[1], 3: points[3], 100: points[3]}
    assert not any(totals.NOTHING.values()) and totals.totals_at({}, [1]) == {1: totals.NOTHING}
    gone = totals.sum_totals([("truss", 3, 1, 1, 5), ("truss", 3, 2, 1, -5)])[2]
    assert (gone["max_trussness"], gone["trusses"]) == (0, {})


# -- digests ------------------------------------------------------------------------------------------------------


def test_digests_are_remembered_and_renewed(ledger: Ledger) -> None:
    ledger.digests.put({})
    assert ledger.digests.read() == {}
    ledger.digests.put({"b": ("1", "x"), "a": ("1", "y")})
    ledger.digests.put({"b": ("2", "z")})
    assert ledger.digests.read() == {"a": ("1", "y"), "b": ("2", "z")}


def test_a_database_that_cannot_be_written_remembers_none_and_says_nothing(ledger: Ledger) -> None:
    ledger.digests.put({"a": ("1", "x")})
    path = ledger.database.engine.url.database
    ledger.database.engine.dispose()
    read_only = cast(Any, SimpleNamespace(database=f"sqlite:///file:{path}?mode=ro&uri=true"))
    reader = Ledger(read_only)
    reader.digests.put({"a": ("2", "y")})
    assert ledger.digests.read() == {"a": ("1", "x")}


def test_a_table_of_digests_that_is_lost_is_an_error(ledger: Ledger) -> None:
    with sqlite3.connect(str(ledger.database.engine.url.database)) as connection:
        connection.execute("DROP TABLE digests")
    with pytest.raises(Exception, match="no such table: digests"):
        ledger.digests.put({"a": ("1", "x")})
