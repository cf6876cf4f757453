"""Laws 2, 3, 7 and 9 over operations on history itself: rebuild, rollback, compaction, and following the ledger.

One history runs in the default tier, and holds law 12 on its way: it is corrected, rolled back, given another window,
and followed. A compaction while a run is at work is a scene of `tests/protocol` there, and a history of its own in the
wide sweeps."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.errors import AltneuError, RunFailed, UsageError, describe_error
from altneu.pipeline.home.home import Home
from altneu.pipeline.landing import spark_reader as ingest
from altneu.pipeline.landing.epoch_states import compare_with_ledger, list_epoch_rows
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run import planning, runner, semantic_settings
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import file_tiers
from altneu.pipeline.storage.table_schemas import TABLES
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, reference
from tests.builders import make_upserts, upsert
from tests.laws.difference import assert_difference, side_of, side_of_base, side_of_run
from tests.laws.world import Consumer, LawWorld, expected_trussness


@pytest.mark.dear("one history instead of five")
@pytest.mark.law(2, 3, 12)
def test_a_history_that_is_corrected_rolled_back_and_given_another_window(spark: SparkSession, tmp_path: Path) -> None:
    """A consumer who applies what each revision changes has every revision, and in the end every epoch."""
    world = LawWorld(spark, tmp_path / "home", live_for=2)
    consumer = Consumer(world)
    world.publish_epochs(0, 2)
    consumer.follow()
    world.settings = '[values]\nw = "long"\n'  # another value column needs no rebuild
    world.write_settings(2)
    world.publish_epochs(1, 2, 3)  # late, corrected and new
    right = copy.deepcopy(world.landed)
    world.roll_back(1)
    assert world.ledger.revisions.get().frontier == 2
    assert {e["epoch"]: e["state"] for e in list_epoch_rows(world.ledger)[1]} == {
        0: "published", 1: "missing", 2: "changed", 3: "missing",
    }  # fmt: skip
    consumer.follow()  # two revisions at once
    assert_difference(world, side_of(world, 2), side_of(world, 3), (right, world.landed))  # over what was taken back

    world.write_settings(4)
    with pytest.raises(UsageError, match="live_for: 2 → 4") as refused:
        home_helpers.run(world.ledger, [1])
    assert "altneu rebuild" in (refused.value.next or "")
    world.rebuild(from_landing=False)
    consumer.follow()
    world.landed = right
    home_helpers.run(world.ledger, [1, 2, 3])  # forward again
    world.record_revision()
    consumer.follow()
    world.assert_same_as_reference(2, 5)  # an old one keeps the old meaning
    for epoch in range(4):
        wanted = {(*edge, k): 1 for edge, k in expected_trussness(right, epoch, 4).items()}
        assert consumer.edges_at(epoch) == wanted, (world.seed, epoch)
    names = Graph(world.home.path, spark).register("t_")
    assert {"t_edges", "t_totals", "t_diffs_upserts"} <= set(names)
    found = spark.sql("SELECT src, dst, trussness FROM t_edges").collect()
    assert Counter(map(tuple, found)) == world.expected_edges(5)
    assert spark.sql("SELECT max(edges) FROM t_totals").first()[0] is not None


@pytest.mark.slow
@pytest.mark.law(9, 12)
def test_a_history_that_is_compacted_while_a_run_is_at_work(spark: SparkSession, tmp_path: Path) -> None:
    """Law 9, with a late and a replaced epoch; the run and a consumer go on over the compaction."""
    world = LawWorld(spark, tmp_path / "home", live_for=3, settings="[retention]\nepochs = 4\nrevisions = 1\n")
    consumer = Consumer(world)
    world.publish_epochs(0, 2, 3)
    world.publish_epochs(1, 2, 5)  # late and replaced: both lie before `since` in the end
    consumer.follow()
    world.land_batches(6)
    # it has read its batch and made its edges when the compaction comes
    run_id = begin_run(world, 6, "ingest", "edges")
    reader = Graph(world.home.path, spark).edges(revision=2)  # somebody reads just now
    rows = sorted(map(tuple, reader.collect()))
    facts = compact(world.ledger, spark, grace=3600)
    assert (facts.since, facts.revisions, facts.dropped_revisions) == (2, [2, 2], 1)
    assert facts.verified and facts.expired_snapshots == 0 and all(size.files <= 1 for size in facts.tables.values())
    assert sorted(map(tuple, reader.collect())) == rows
    assert_cannot_be_read_any_more(world, 1)

    run_stages(world, run_id, "triangles", "truss")
    run = world.ledger.runs.get(run_id)
    sides = side_of_base(world, run), side_of_run(world, run)
    assert_difference(world, *sides, (world.expected[2][0], world.landed))  # its base was written again meanwhile
    run_stages(world, run_id, "audit", "publish", "report")
    world.record_revision()
    consumer.follow()  # over the compaction
    world.assert_same_as_reference(2, 3)
    graph = Graph(world.home.path, spark)
    with pytest.raises(UsageError, match="epoch 1 was folded"):
        graph.edges(as_of=1, revision=2)
    assert graph.edges(as_of=1).count() == len(reference.edges(world.landed, 1, 3))  # the run's own base


def begin_run(world: LawWorld, epoch: int, *stages: str) -> str:
    """A run of one epoch that has done some of its stages."""
    run_id = runner.begin_run(world.ledger, planning.plan_epochs(world.ledger, [epoch]))
    assert run_id
    run_stages(world, run_id, *stages)
    return run_id


def run_stages(world: LawWorld, run_id: str, *stages: str) -> None:
    for stage in stages:
        runner.execute_stage(world.ledger, run_id, stage)


def assert_cannot_be_read_any_more(world: LawWorld, revision: int) -> None:
    with pytest.raises(AltneuError, match=f"revision {revision} cannot be read any more"):
        Warehouse(world.spark, world.home).read_table("edges", world.ledger.revisions.get(revision))
    with pytest.raises(AltneuError, match="cannot be read any more"):
        rollback.roll_back(world.ledger, revision)


def assert_consolidated(world: LawWorld) -> None:
    """No two rows of a table say the same thing at the same time, and none says nothing."""
    warehouse, row = Warehouse(world.spark, world.home), world.ledger.revisions.get()
    for table in TABLES:
        frame = warehouse.read_table(table, row)
        data = [column for column in frame.columns if column != "diff"]
        assert frame.groupBy(*data).count().where("count > 1").count() == 0, table
        assert frame.where("diff = 0").count() == 0, table


@pytest.mark.law(2, 3)
def test_a_filter_and_another_type_of_a_column_need_a_rebuild_from_the_landing(
    spark: SparkSession, tmp_path: Path
) -> None:
    home, ledger = publish_values(tmp_path / "home")
    pins = ledger.revisions.get().snapshots
    for values, words in {"": "w: long → none", '[values]\nw = "double"\n': "w: long → double"}.items():
        with pytest.raises(UsageError, match=f"{words}. A compaction would lose"):
            compact(reopen(home, values), spark)
        assert ledger.revisions.get().snapshots == pins
    ledger = reopen(home, '[values]\nw = "double"\n[edges]\nwhere = "w IS NULL OR w > 4.5"\n')
    home_helpers.put(home, 2, [])
    with pytest.raises(UsageError, match="w: long → double"):
        home_helpers.run(ledger, [2])
    with pytest.raises(UsageError, match="w: long → double") as refused:
        home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=False))
    assert "--from-landing" in (refused.value.next or "")
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=True))
    assert ledger.revisions.get().frontier == 2  # the landed epoch is taken along
    warehouse = Warehouse(spark, home)
    assert dict(warehouse.read_table("upserts", ledger.revisions.get()).dtypes)["w"] == "double"
    assert views.select_totals(ledger)[0]["edges"] == 4
    # as published before the column had that type
    assert views.select_as_of(warehouse, ledger.revisions.get(1), "edges", 1).count() == 5


@pytest.mark.law(2, 3)
@pytest.mark.slow
def test_a_filter_alone_needs_a_rebuild_of_the_stored_rows(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = publish_values(tmp_path / "home")
    ledger = reopen(home, '[values]\nw = "long"\n[edges]\nwhere = "w IS NULL OR w > 0"\n')
    home_helpers.put(home, 2, [])
    with pytest.raises(UsageError, match="where: none → w IS NULL"):
        home_helpers.run(ledger, [2])
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=False))
    (totals,) = views.select_totals(ledger)
    assert (totals["triangles"], totals["edges"]) == (1, 4)


def publish_values(path: Path) -> tuple[Home, Ledger]:
    """A triangle without values, then two edges with a value more, one of them below zero."""
    home, ledger = home_helpers.make(path, '[values]\nw = "long"\n')
    home_helpers.put(home, 0, make_upserts((0, 1), (1, 2), (0, 2)))
    home_helpers.put(home, 1, [upsert(2, 3, 5), upsert(0, 3, -5)])
    home_helpers.run(ledger, [0, 1])
    assert views.select_totals(ledger)[0]["triangles"] == 2
    return home, ledger


def reopen(home: Home, toml: str) -> Ledger:
    """Change the settings of a home, and return its ledger with them."""
    (home.path / "altneu.toml").write_text(toml)
    return Ledger(Home.open(home.path))


@pytest.mark.parametrize(
    "then", ["another batch", *(pytest.param(then, marks=pytest.mark.slow) for then in ("not a file of rows", "gone"))]
)
def test_a_landing_that_changes_while_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Files are read twice, to judge them and for their rows: a change in between is reported, and loses nothing."""
    world = LawWorld(spark, tmp_path / "home")
    world.land_batches(1)
    judge = ingest.count_rows

    def judge_and_change(*arguments: Any, **options: Any) -> Any:
        found = judge(*arguments, **options)
        folder = world.home.landing / "epoch=1"
        if then == "gone":
            shutil.rmtree(folder)
        else:
            (folder / "rows.csv").write_text("src,dst\n1,2\n" if then == "another batch" else "rows\n")
        return found

    monkeypatch.setattr(ingest, "count_rows", judge_and_change)
    with pytest.raises(RunFailed, match="the landing changed while it was read"):
        home_helpers.run(world.ledger, [1])
    assert world.ledger.revisions.get().revision == 0
    monkeypatch.setattr(ingest, "count_rows", judge)
    world.publish_epochs(1)
    world.assert_same_as_reference(1)


@pytest.mark.slow
def test_another_window_is_one_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    world = LawWorld(spark, tmp_path / "home", live_for=2)
    world.publish_epochs(0, 1, 3)
    world.write_settings(4)
    world.land_batches(2)
    with pytest.raises(UsageError, match="live_for: 2 → 4") as refused:
        home_helpers.run(world.ledger, [2])
    assert "altneu rebuild" in (refused.value.next or "")
    world.landed.pop(2)
    world.rebuild(from_landing=False)
    assert world.ledger.revisions.get().revision == 2
    world.publish_epochs(2)
    world.assert_same_as_reference(1, 2, 3)  # the old ones keep the old meaning


@pytest.mark.slow
def test_rollback_and_forward_again(spark: SparkSession, tmp_path: Path) -> None:
    world = LawWorld(spark, tmp_path / "home", live_for=3)
    world.publish_epochs(0, 1)
    world.publish_epochs(1, 2)
    world.publish_epochs(4)
    right = copy.deepcopy(world.landed)
    row, epochs = rollback.roll_back(world.ledger, 1)
    assert (row.revision, row.frontier, epochs) == (4, 1, [1, 2, 4])
    world.expected[4] = world.expected[1]
    world.assert_same_as_reference(1, 2, 3, 4)
    _, rows = list_epoch_rows(world.ledger)
    assert {e["epoch"]: e["state"] for e in rows} == {0: "published", 1: "changed", 2: "missing", 4: "missing"}
    home_helpers.run(world.ledger, [1, 2, 4])
    world.landed = right
    world.record_revision()
    world.assert_same_as_reference(5)
    assert world.expected_edges(5) == world.expected_edges(3)
    with pytest.raises(AltneuError, match="revision 9 was not published"):
        rollback.roll_back(world.ledger, 9)
    # after a compaction the kept revisions share a snapshot: what a rollback takes back stays in it, and is not seen
    compact(world.ledger, spark, grace=3600)
    rollback.roll_back(world.ledger, 1)
    world.expected[6] = world.expected[1]
    world.landed = copy.deepcopy(world.expected[1][0])
    world.assert_same_as_reference(1, 3, 5, 6)
    world.publish_epochs(0, 5)
    world.assert_same_as_reference(6, 7)
    compact(world.ledger, spark, grace=0)
    world.assert_same_as_reference(5, 6, 7)


@pytest.mark.slow  # tests/laws/test_fingerprints rolls back to nothing in the ordinary suite
def test_rollback_to_nothing_and_forward_again(spark: SparkSession, tmp_path: Path) -> None:
    world = LawWorld(spark, tmp_path / "home")
    world.publish_epochs(0, 1)
    graph = Graph(world.home.path, spark)
    had = Counter((r.src, r.dst, r.trussness) for r in graph.edges().collect())
    row, epochs = rollback.roll_back(world.ledger, 0)
    assert (row.revision, row.frontier, row.snapshots, epochs) == (2, None, {}, [0, 1])
    with pytest.raises(AltneuError, match="nothing is published"):
        graph.edges()
    taken = graph.changes_since(1).collect()
    assert Counter((r.src, r.dst, r.trussness) for r in taken) == had and {r.diff for r in taken} <= {-1}
    with pytest.raises(AltneuError, match="nothing is published"):
        compact(world.ledger, spark, grace=0)
    home_helpers.run(world.ledger, [0, 1])
    world.expected[1] = (copy.deepcopy(world.landed), world.live_for)
    world.record_revision()
    world.assert_same_as_reference(1, 3)
    assert graph.changes_since(1, 3).count() == 0
    compact(world.ledger, spark, grace=0)
    world.assert_same_as_reference(3)
    names = {name for table in TABLES for name in Warehouse(spark, world.home).load_metadata(table).ref_snapshots()}
    assert names == {"main", "r1", "r2", "r3"}


@pytest.mark.law(11)
@pytest.mark.slow
def test_a_lost_file_is_named_and_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    world = LawWorld(spark, tmp_path / "home")
    world.publish_epochs(0, 1)
    data = sorted((tmp_path / "home" / "warehouse" / "graph" / "trussness" / "data").rglob("*.parquet"))
    assert data
    for file in data:
        file.unlink()
    shutil.rmtree(tmp_path / "home" / "warm")  # else a stage may do without the old rows, and the audit reads them
    with pytest.raises(Exception, match=r"\.parquet") as read:
        Warehouse(spark, world.home).read_table("trussness", world.ledger.revisions.get()).collect()
    what, then = describe_error(read.value)
    assert "trussness" in what and ".parquet" in what and "altneu rebuild" in (then or "")
    world.land_batches(2)
    with pytest.raises(RunFailed, match=r"stage truss .*trussness.*\.parquet") as broken:
        home_helpers.run(world.ledger, [2])
    assert "altneu rebuild" in (broken.value.next or "")
    landed = world.landed.pop(2)
    world.rebuild(from_landing=False)
    assert world.ledger.outputs.fingerprints_of(2) == world.ledger.outputs.fingerprints_of(1), (
        "law 11: of the same contents"
    )
    world.landed[2] = landed
    home_helpers.run(world.ledger, [2])
    world.record_revision()
    world.assert_same_as_reference(2, 3)
    # the landed rows themselves: only the landing has them
    for file in (tmp_path / "home" / "warehouse" / "graph" / "upserts" / "data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(RunFailed):
        home_helpers.run_as_planned(world.ledger, planning.plan_rebuild(world.ledger, from_landing=False))
    world.rebuild(from_landing=True)
    world.assert_same_as_reference(4)
    shutil.rmtree(world.home.landing / "epoch=1")
    with pytest.raises(UsageError, match="not in the landing any more"):
        planning.plan_rebuild(world.ledger, from_landing=True)


@pytest.mark.law(9)
@pytest.mark.slow
@pytest.mark.parametrize("live_for", [3, None])
def test_compaction_changes_no_kept_answer(spark: SparkSession, tmp_path: Path, live_for: int | None) -> None:
    """Law 9, with late and replaced epochs before and after, and a run at work while it happens."""
    world = LawWorld(spark, tmp_path / "home", live_for=live_for, settings="[retention]\nepochs = 4\nrevisions = 3\n")
    world.publish_epochs(0, 2)
    world.publish_epochs(1, 3)
    world.publish_epochs(2, 4)  # replaced
    world.publish_epochs(1, 5)  # replaced, and it will lie before `since`: later than the oldest revision that is kept
    world.land_batches(6)  # a run at work: it has read its batch and made its edges when the compaction comes
    run_id = runner.begin_run(world.ledger, planning.plan_epochs(world.ledger, [6]))
    assert run_id
    for name in ("ingest", "edges"):
        runner.execute_stage(world.ledger, run_id, name)
    facts = compact(world.ledger, spark, grace=3600)
    assert (facts.since, facts.revisions, facts.dropped_revisions) == (2, [2, 4], 1)
    assert all(size.files <= 1 for size in facts.tables.values())
    world.assert_same_as_reference(2, 3, 4)
    with pytest.raises(AltneuError, match="revision 1 cannot be read any more"):
        Warehouse(spark, world.home).read_table("edges", world.ledger.revisions.get(1))
    with pytest.raises(AltneuError, match="cannot be read any more"):
        rollback.roll_back(world.ledger, 1)
    for name in ("triangles", "truss", "audit", "publish", "report"):
        runner.execute_stage(world.ledger, run_id, name)
    world.record_revision()
    world.assert_same_as_reference(4, 5)
    graph = Graph(world.home.path, spark)
    with pytest.raises(UsageError, match="epoch 1 was folded"):
        graph.edges(as_of=1, revision=4)
    assert graph.edges(as_of=1).count() == len(reference.edges(world.landed, 1, live_for))  # the run's own base
    world.publish_epochs(2, 4, 7)  # late, at the first epoch that is kept, replaced, and new
    facts = compact(world.ledger, spark, grace=0)
    assert (facts.since, facts.revisions) == (4, [4, 6])
    assert facts.expired_snapshots > 0
    world.assert_same_as_reference(4, 5, 6)
    kept = world.landed[0]
    world.land_batches(0)
    with pytest.raises(UsageError, match="epoch 0 cannot be replaced"):
        home_helpers.run(world.ledger, [0])
    assert compare_with_ledger(world.ledger)[1][0].state == "folded"
    world.landed[0] = kept
    again = compact(world.ledger, spark, grace=0)
    assert again.tables == facts.tables  # nothing left to gain
    world.publish_epochs(6)
    world.assert_same_as_reference(6, 7)
    assert_consolidated(world)
    world.rebuild(from_landing=False)
    world.assert_same_as_reference(8)  # and the totals of the folded epochs are still those of history
    world.write_settings(None if live_for else 9)
    assert semantic_settings.changed_meaning(world.ledger)[1] == "reload"


@pytest.mark.slow  # tests/protocol has a compaction and a writer in every order in the ordinary tier
def test_compaction_leaves_a_revision_published_meanwhile_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LawWorld(spark, tmp_path / "home")
    world.publish_epochs(0, 1)
    world.publish_epochs(2)
    ensure = Warehouse.ensure_tables

    def overtaken(warehouse: Warehouse, *, retype: bool = False) -> None:
        monkeypatch.setattr(Warehouse, "ensure_tables", ensure)
        world.publish_epochs(3)
        ensure(warehouse, retype=retype)

    monkeypatch.setattr(Warehouse, "ensure_tables", overtaken)
    assert compact(world.ledger, spark, grace=0).revisions == [1, 2]
    world.assert_same_as_reference(1, 2, 3)


@pytest.mark.law(9, 11)
@pytest.mark.slow
def test_a_compaction_writes_only_what_is_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is large and compact stays, also while rows that it has are corrected."""
    monkeypatch.setattr(file_tiers, "MERGED_ROWS", 0)  # everything counts as large
    world = LawWorld(spark, tmp_path / "home", settings="[retention]\nrevisions = 2\n")

    def files(table: str) -> set[str]:
        warehouse, pin = Warehouse(spark, world.home), world.ledger.revisions.get().snapshots[table]
        rows = spark.sql(f"SELECT file_path FROM {warehouse.table_name(table)}.files VERSION AS OF {pin}").collect()
        return {row[0] for row in rows}

    world.publish_epochs(0, 1, 2, 3, 4, 5)
    world.publish_epochs(6)
    compact(world.ledger, spark, grace=3600)
    before = files("upserts")
    world.publish_epochs(3)
    world.publish_epochs(7)
    assert len(before) == 1 and len(files("upserts")) == 3
    compact(world.ledger, spark, grace=0)
    assert before < files("upserts") and len(files("upserts")) == 2
    world.assert_same_as_reference(3, 4)
    world.publish_epochs(2)
    world.assert_same_as_reference(4, 5)


@pytest.mark.slow
def test_compaction_gives_space_back(spark: SparkSession, tmp_path: Path) -> None:
    """What nobody can read goes only after the grace period, and the files that killed tasks have left go too."""
    world = LawWorld(spark, tmp_path / "home", settings="[retention]\nrevisions = 1\n")
    for epoch in range(3):
        world.publish_epochs(epoch)

    def files() -> int:
        return len(list((tmp_path / "home" / "warehouse").rglob("*.parquet")))

    reader = Graph(world.home.path, spark).edges(revision=2)  # somebody reads revision 2 just now
    before, rows = files(), sorted(map(tuple, reader.collect()))
    assert compact(world.ledger, spark, grace=3600).expired_snapshots == 0
    assert sorted(map(tuple, reader.collect())) == rows
    facts = compact(world.ledger, spark, grace=0)
    assert facts.expired_snapshots >= 2 * 4
    assert files() == sum(size.files for size in facts.tables.values()) < before
    world.assert_same_as_reference(3)
    world.publish_epochs(4)
    world.assert_same_as_reference(4)


@pytest.mark.slow
def test_a_consumer_follows_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    """Changes since a revision, applied exactly once each, give every revision: late ones, corrected, rolled back,
    rebuilt and compacted ones; and the collection with its epochs gives the state at every epoch."""
    world = LawWorld(spark, tmp_path / "home", live_for=3)
    consumer = Consumer(world)
    world.publish_epochs(0, 2)
    consumer.follow()
    assert Graph(world.home.path, spark).changes_since(consumer.at).count() == 0
    world.publish_epochs(1)
    world.publish_epochs(3)
    consumer.follow()  # two at once
    rollback.roll_back(world.ledger, 1)
    world.expected[4] = world.expected[1]
    consumer.follow()
    world.rebuild(from_landing=True)
    compact(world.ledger, spark, grace=3600)
    consumer.follow()
    world.publish_epochs(2)
    consumer.follow()
    landed, live_for = world.expected[consumer.at]
    for epoch in range(4):
        wanted = {(*edge, k): 1 for edge, k in expected_trussness(landed, epoch, live_for).items()}
        assert consumer.edges_at(epoch) == wanted, (world.seed, epoch)


@pytest.mark.slow
def test_a_consumer_follows_names(spark: SparkSession, tmp_path: Path) -> None:
    """A dictionary of names that was made again, or went back, gives the same numbers to other names: changes speak of
    names, in whichever dictionary each side has them."""
    home, ledger = home_helpers.make(tmp_path / "home", '[vertices]\nids = "string"\n')
    graph = Graph(home.path, spark)
    held: Counter[Any] = Counter()
    triples: Counter[Any] = Counter()
    at = 0

    def follow() -> int:
        nonlocal at
        for row in graph.changes_since(at).collect():
            held[frozenset((row.src, row.dst)), row.trussness] += row["diff"]
        for row in graph.changes_since(at, all_epochs=True).collect():
            triples[frozenset((row.src, row.dst)), row.trussness] += row["diff"]
        at = ledger.revisions.get().revision
        now = {} if ledger.revisions.get().frontier is None else graph.edges().collect()
        wanted = {(frozenset((row.src, row.dst)), row.trussness): 1 for row in now}
        assert {key: n for key, n in held.items() if n} == wanted, at
        assert {key: n for key, n in triples.items() if n} == wanted, at
        return at

    def land(epoch: int, *pairs: str) -> None:
        home_helpers.put(home, epoch, [(pair[0], pair[1], None, "upsert", 0) for pair in pairs])

    land(0, "mn", "no", "mo")
    home_helpers.run(ledger, [0])
    follow()
    land(1, "az", "bz")
    home_helpers.run(ledger, [1])
    full = follow()
    (gone,) = graph.changes_since(1, full, vertex="a").collect()
    assert {gone.src, gone.dst} == {"a", "z"}
    rollback.roll_back(ledger, 1)
    back = follow()
    (gone,) = graph.changes_since(full, back, vertex="a").collect()  # a name that the newer revision does not know
    assert ({gone.src, gone.dst}, gone["diff"]) == ({"a", "z"}, -1)
    land(1, "yn", "xy")  # the numbers that a, b and z had
    home_helpers.run(ledger, [1])
    follow()
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=True))
    assert graph.changes_since(follow() - 1).count() == 0
    (came,) = graph.changes_since(full, edge=("x", "y")).collect()
    assert {came.src, came.dst} == {"x", "y"}
    rollback.roll_back(ledger, 0)
    follow()
    assert not any(held.values())
    with pytest.raises(UsageError, match="no vertex is called 'q'"):
        graph.changes_since(full, back, vertex="q")
