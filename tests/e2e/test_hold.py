"""Held runs: nothing that a reader sees moves before `publish`, and then it is what a run without hold publishes.

What becomes of held runs is decided around them: two of these tests run on real tables, the others without Spark."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.errors import RevisionConflict, RunFailed, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.interrupt import Interrupted
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.report import epoch_document
from altneu.pipeline.run import approval, approval_numbers, planning, runner
from altneu.pipeline.run.stages import publish as publish_stage
from altneu.pipeline.state import clock
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunRecord, RunState
from altneu.pipeline.storage.branches import Branches, branch_of
from altneu.pipeline.storage.relocate import relocate_home
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.canonical import History, land_correction
from tests.e2e.conftest import Altneu
from tests.ledger_only import LedgerOnly, run_without_spark
from tests.reference import Row
from tests.report.seed import check

K4: list[Row] = [(a, b, None, "upsert", 0) for a in range(4) for b in range(a + 1, 4)]
MORE: list[Row] = [(0, 9, None, "upsert", 0), (1, 9, None, "upsert", 0)]
LESS: list[Row] = [(0, 1, None, "delete", 0)]


def seen(ledger: Ledger) -> dict[str, Any]:
    """All that a reader sees."""
    graph, newest = Graph(ledger.home.path), ledger.revisions.get()
    frames = {
        "edges": graph.arrow.edges(),
        "vertices": graph.arrow.vertices(),
        "changes": graph.arrow.changes_since(0),
    }
    return {
        "row": newest,
        "totals": views.select_totals(ledger, all_epochs=True),
        "prints": ledger.outputs.fingerprints_of(newest.revision),
        "batches": ledger.outputs.published_batches(),
        **{name: sorted(map(repr, frame.to_pylist())) for name, frame in frames.items()},
    }


def say_alike(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out of what a reader sees the snapshots and times, and the numbers of revisions."""
    kept = {name: each for name, each in found.items() if name not in ("row", "batches")}
    return {**kept, "totals": [{**row, "revision": 0} for row in found["totals"]]}


def branches(tables: Branches) -> set[str]:
    """The branches of runs that are in some table."""
    return {
        name
        for table in tables.tables
        for name in tables.load_metadata(table).ref_snapshots()
        if name.startswith("run_")
    }


def publish(ledger: Ledger, run: RunRecord) -> None:
    approval.approve_run(ledger, run, "ada", "as expected")
    runner.publish_held_run(ledger, run.run_id)


@pytest.mark.usefixtures("tiny", "unaudited")
def test_a_held_run_changes_nothing_and_publishes_the_same(
    spark: SparkSession, tmp_path: Path, held_correction: History
) -> None:
    """On real tables, through a compaction; what was there before, and what a run publishes that is not held, is played
    without Spark."""
    home, ledger = held_correction.copy(tmp_path / "home")
    tables, (run,), before = Warehouse(spark, home), ledger.runs.list_held(), seen(ledger)
    with run_without_spark():
        other = land_correction(tmp_path / "other")
        assert say_alike(seen(other[1])) == say_alike(before)
        home_helpers.run(other[1], [0, 1])
        theirs = seen(other[1])
    assert (run.state, run.owner, run.parent) == (RunState.HELD, None, 1)
    assert branches(tables) == {branch_of(run.run_id)}
    with pytest.raises(RunFailed, match="needs an approval before it is published: it was begun with --hold"):
        runner.execute_stage(ledger, run.run_id, "publish")  # as a task of Airflow would
    compact(ledger, spark, grace=0)
    assert branches(tables) == {branch_of(run.run_id)}
    assert {**seen(ledger), "row": before["row"]} == before
    publish(ledger, ledger.runs.get(run.run_id))
    assert say_alike(seen(ledger)) == say_alike(theirs)
    assert branches(tables) == set() and ledger.runs.list_held() == []
    assert epoch_document(ledger, 1)["approval"]["because"] == "as expected"


@pytest.mark.usefixtures("tiny", "unaudited")
def test_a_home_that_has_moved_publishes_what_was_held(
    tmp_path: Path, altneu: Altneu, held_correction: History
) -> None:
    home, ledger = held_correction.copy(tmp_path / "home")
    (run,) = ledger.runs.list_held()
    home_helpers.put(home, 1, LESS)
    moved = home.path.with_name("moved")
    ledger.database.engine.dispose()
    home.path.rename(moved)
    relocate_home(Home.open(moved), original_gone=True)
    said = altneu("publish", run.run_id, home=moved)
    assert said.code == 0 and "landed again since they were computed" in said.err, said
    assert [row["edges"] for row in views.select_totals(Ledger(Home.open(moved)), all_epochs=True)]


def test_whatever_is_published_meanwhile_overtakes_it(ledger_only: LedgerOnly, tmp_path: Path, typed: Altneu) -> None:
    home, ledger = land_correction(tmp_path / "home")
    tables = ledger_only.tables(home)
    first, second = home_helpers.hold(ledger, [0]), home_helpers.hold(ledger, [1])
    listed = json.loads(typed("status", "--format", "json").out)
    assert [(each["run_id"], each["overtaken_by"]) for each in listed["held"]] == [
        (first.run_id, None),
        (second.run_id, None),
    ]
    assert [entry["state"] for entry in listed["epochs"]] == ["held", "held"]
    which = typed("publish")
    assert (which.code, "2 runs are held: say which one" in which.err) == (2, True), which
    said = typed("publish", second.run_id, "--by", "ada", "--because", "fine")
    assert (said.code, "published revision 2" in said.out) == (0, True), said
    assert branches(tables) == {branch_of(first.run_id)}  # it can be looked at
    refused = typed("publish")
    assert refused.code == 1 and "altneu run 0 --hold" in refused.err and "revision 2 was published" in refused.err
    assert "overtaken by revision 2" in typed("status").out
    assert {e["label"]: e["state"] for e in json.loads(typed("status", "--format", "json").out)["epochs"]} == {
        "0": "changed",
        "1": "published",
    }
    gone = typed("discard", "--by", "bob")
    assert (gone.code, "altneu run 0" in gone.out) == (0, True), gone
    assert ledger.runs.get(first.run_id).error == "rejected by bob"
    home_helpers.run(ledger, [0])
    assert branches(tables) == set()
    again = typed("publish", first.run_id)
    assert (again.code, "it was rejected by bob" in again.err) == (2, True), again
    done = typed("discard", second.run_id)
    assert (done.code, "it is published, as revision 2" in done.err) == (2, True), done


def test_rollback_expiry_and_settings(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Altneu
) -> None:
    home, ledger = land_correction(tmp_path / "home")
    tables = ledger_only.tables(home)
    run = home_helpers.hold(ledger, [1])
    rollback.roll_back(ledger, 0)
    with pytest.raises(RevisionConflict, match="revision 2 was published meanwhile"):
        approval.approve_run(ledger, run, None, None)
    rollback.roll_back(ledger, 1)  # the same state is another revision
    with pytest.raises(RevisionConflict):
        approval.approve_run(ledger, run, None, None)
    again = home_helpers.hold(ledger, [1])
    (home.path / "altneu.toml").write_text("[edges]\nlive_for = 3\n")
    with pytest.raises(UsageError, match="differ from those that held run"):
        approval.approve_run(Ledger(Home.open(home.path)), again, None, None)
    (home.path / "altneu.toml").write_text("")
    now = clock.read_clock()
    monkeypatch.setattr(clock, "read_clock", lambda: now + timedelta(days=6.9))
    compact(ledger, None)
    assert [each.run_id for each in ledger.runs.list_held()] == [run.run_id, again.run_id]
    monkeypatch.setattr(clock, "read_clock", lambda: now + timedelta(days=7.1))
    compact(ledger, None)
    assert (ledger.runs.list_held(), branches(tables)) == ([], set())
    shown = json.loads(typed("status", "--format", "json").out)
    assert (shown["held"], shown["epochs"][1]["state"]) == ([], "rejected")
    assert "nobody has decided within 7 day(s)" in shown["epochs"][1]["error"]
    found = epoch_document(ledger, 1)
    assert (found["state"], found["held"]["state"]) == ("empty", "rejected")


def test_stopped_while_it_publishes(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Altneu
) -> None:
    """A held run whose publication is stopped stays held, and the same command works afterwards."""
    home, ledger = land_correction(tmp_path / "home")
    run, before = home_helpers.hold(ledger, [0, 1]), seen(ledger)

    def stopped(_: Any) -> None:
        raise Interrupted("SIGTERM")

    def stop_publishing(held_run: RunRecord) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(publish_stage, "publish", stopped)
            with pytest.raises(Interrupted):
                publish(ledger, held_run)
        assert (ledger.runs.get(held_run.run_id).state, seen(ledger)) == (RunState.HELD, before)

    stop_publishing(run)
    # another process holds its lease: neither decision is taken
    theirs = Ledger(home)
    theirs.database.owner = lambda: "elsewhere/1/1.00"
    theirs.runs.acquire_lease(run.run_id)
    for command in ("publish", "discard"):
        refused = typed(command)
        assert (refused.code, "process 1 on elsewhere works on run" in refused.err) == (1, True), refused
    theirs.runs.release_lease(run.run_id)
    # what was approved is not what would be published after a stage has worked again
    runner.execute_stage(ledger, run.run_id, "audit")
    with pytest.raises(RunFailed, match="needs an approval"):
        runner.execute_stage(ledger, run.run_id, "publish")
    again = home_helpers.hold(ledger, [0, 1])
    stop_publishing(again)
    said = typed("publish", again.run_id)
    assert (said.code, ledger.revisions.get().run_id) == (0, again.run_id), said


@pytest.mark.parametrize("approve", ["always", "on warning"])
def test_settings_ask_for_a_decision(ledger_only: LedgerOnly, tmp_path: Path, typed: Altneu, approve: str) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", f'[publish]\napprove = "{approve}"\n')
    home_helpers.put(home, 0, K4)
    home_helpers.put(home, 1, MORE)
    if approve == "on warning":
        assert typed("run", "0").out.startswith("published revision 1")
        ledger_only.checks = lambda run: [check(1, "rows as usual", False, suite="volumes", severity="warning")]
    said = typed("backfill", "--all")
    assert said.code == 0 and "held: run" in said.out and "altneu publish" in said.out and "approve" in said.out, said
    (run,) = ledger.runs.list_held()
    assert typed("status").out.count(run.run_id) == 2
    assert typed("publish", "--because", "seen").code == 0
    assert ledger.revisions.get().run_id == run.run_id and planning.plan_run(ledger, lambda epoch: True).run == ()


def test_a_rule_holds_what_moves_more_and_publishes_the_rest(
    ledger_only: LedgerOnly, tmp_path: Path, typed: Altneu
) -> None:
    rule = "moved > 40 % or restated > 1 or warnings > 0"
    home, ledger = home_helpers.make(tmp_path / "home", f'[publish]\napprove = {{ when = "{rule}", by = ["ada"] }}\n')
    home_helpers.put(home, 0, K4)
    assert typed("run", "0").out.startswith("published revision 1")  # a first load moves nothing that is published
    home_helpers.put(home, 1, MORE)
    assert typed("run", "1").out.startswith("published revision 2")  # nor does a new epoch
    home_helpers.put(home, 0, [*K4, (7, 8, None, "upsert", 0)])
    said = typed("run", "0")
    assert "restated = 2" in said.out and rule in said.out, said  # the edge is there at both epochs
    (run,) = ledger.runs.list_held()
    refused = typed("publish", "--by", "bob")
    assert (refused.code, ledger.revisions.get().revision) == (2, 2) and "bob may not approve" in refused.err, refused
    assert ledger.runs.list_held() == [run]
    assert typed("publish", "--by", "ada", "--because", "as the source says").code == 0
    assert ledger.revisions.get().run_id == run.run_id
    home_helpers.put(home, 0, K4[:1])
    assert "held: run" in typed("run", "0").out and typed("discard", "--by", "bob").code == 0  # anybody may discard


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("moved > 100 %", None),
        ("moved >= 50 %", "moved = 100.00%"),  # all six edges leave the 4-truss
        ("moved > 60 % and restated > 1", None),
        ("restated = 1 and warnings = 0", "restated = 1, warnings = 0"),
        ("triangles > 2 or edges > 1", None),
        ("truss_4 >= 6", "truss_4 = 6"),
        ("not (epochs = 2 and rows = 7)", None),
        ("epochs = 2 and rows between 7 and 7", "epochs = 2, rows = 7"),
        ("vertices > 0 or max_trussness = 1", "vertices = 1, max_trussness = 1"),
        ("quarantined > 0 or truss_99 > 0", None),
    ],
)
def test_numbers_of_a_rule(ledger_only: LedgerOnly, tmp_path: Path, rule: str, shown: str | None) -> None:
    """A correction takes one edge of a K4 away, and a triangle that lacks this edge comes later."""
    _, ledger = land_correction(tmp_path / "home")
    run = home_helpers.hold(ledger, [0, 1])
    said = approval_numbers.explain_rule(ledger, run, rule)
    assert said == (None if shown is None else f"{shown}, and [publish] approve when {rule}")


def test_a_backfill_of_several_revisions_holds_the_first(
    ledger_only: LedgerOnly, tmp_path: Path, typed: Altneu
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", "[ingest]\nmax_revision_mb = 0.00001\n")
    home_helpers.put(home, 0, K4)
    home_helpers.put(home, 1, MORE)
    said = typed("backfill", "--all", "--hold")
    assert (said.code, "1 epoch(s) are left: type the same command again" in said.out) == (0, True), said
    assert [run.epochs for run in ledger.runs.list_held()] == [(0,)]
