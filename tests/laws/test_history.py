"""Laws 2, 3, 7 and 9 over operations on history itself: rebuild, rollback, compaction, and following the ledger.

A `World` remembers what was landed and which window was in force at each published revision; every revision that can
be read is compared, edge by edge and vertex by vertex, with the plain reference of what was landed then.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.checking import audit
from pipeline.errors import AltneuError, RunFailed, UsageError
from pipeline.home.directory import Home
from pipeline.landing import frames as ingest
from pipeline.landing.survey import grid, survey
from pipeline.reading import epochs, views
from pipeline.reading.graph import Graph
from pipeline.run import meaning, planning, rollback, runner
from pipeline.run.compact import compact
from pipeline.state.ledger import Ledger
from pipeline.storage.declared import TABLES
from pipeline.storage.warehouse import Warehouse
from tests import homes, reference, seeds
from tests.reference import Row

GRAPHS, EPOCHS = 6, 5


@dataclass
class World:
    """A home, and what its readers should see at every revision."""

    spark: SparkSession
    path: Path
    seed: int = field(default_factory=seeds.one)
    landed: dict[int, list[Row]] = field(default_factory=dict)
    live_for: int | None = None
    retention: str = ""
    expected: dict[int, tuple[dict[int, list[Row]], int | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.path.mkdir()
        self.configure(self.live_for)

    def configure(self, live_for: int | None) -> None:
        self.live_for = live_for
        window = "" if live_for is None else f"[edges]\nlive_for = {live_for}\n"
        plan = f'[triangles]\nplan = "{self.rng.choice(["delta", "bulk", "resume"])}"\n'  # both hold the laws, and mix
        (self.path / "altneu.toml").write_text(window + self.retention + plan)
        self.home = Home.open(self.path)
        self.ledger = Ledger(self.home.database)

    def batch(self) -> list[Row]:
        rows: list[Row] = []
        for graph in range(GRAPHS):
            n = self.rng.randrange(3, 7)
            for _ in range(self.rng.randrange(0, 9)):
                src, dst = (graph * 100 + self.rng.randrange(n) for _ in range(2))
                op = "delete" if self.rng.random() < 0.25 else "upsert"
                rows.append((src, dst, None, op, self.rng.randrange(3)))
        return rows

    def land(self, epoch: int) -> None:
        self.landed[epoch] = self.batch()
        homes.put(self.home, epoch, self.landed[epoch])

    def published(self) -> None:
        self.expected[self.ledger.at().revision] = (copy.deepcopy(self.landed), self.live_for)

    def deliver(self, *epochs: int) -> None:
        for epoch in epochs:
            self.land(epoch)
        homes.run(self.home, self.ledger, epochs)
        self.published()

    def check(self, *revisions: int) -> None:
        """Every edge's trussness and every vertex's triangles, at every epoch that the revision answers for."""
        warehouse = Warehouse(self.spark, self.home)
        for revision in revisions:
            row = self.ledger.at(revision)
            landed, live_for = self.expected[revision]
            assert row.frontier is not None
            epochs = list(range(row.since or 0, row.frontier + 1))
            kept = audit.maintained(lambda table, row=row: warehouse.at(table, row), epochs)
            found = {(r.epoch, r.what, r.a, r.b): r.value for r in kept.collect() if r.what in KINDS}
            wanted: Counter[Any] = Counter()
            for epoch in epochs:
                graph = reference.edges(landed, epoch, live_for)
                for (a, b), k in reference.trussness(graph).items():
                    wanted[epoch, "trussness_of_edge", a, b] = k
                    wanted[epoch, "edge", a, b] = 1
                for corners in reference.triangles(graph):
                    wanted.update((epoch, "triangles_at_vertex", v, None) for v in corners)
            assert found == dict(wanted), (self.seed, revision)
            points = {p["epoch"]: p for p in views.totals(self.home, self.ledger, revision=revision, all_epochs=True)}
            for epoch in range(min(points), row.frontier + 1):  # totals answer for all epochs, folded ones too
                expected = reference.totals(reference.edges(landed, epoch, live_for))
                assert {key: points[epoch][key] for key in expected} == expected, (self.seed, revision, epoch)

    def changed_epochs(self, revision: int) -> dict[int, tuple[bool, bool]]:
        """The landed epochs whose graph is another one than a revision before; whether they were there, and are."""
        (old, old_window), (new, window) = self.expected.get(revision - 1, ({}, None)), self.expected[revision]
        return {
            epoch: (epoch in old, epoch in new)
            for epoch in sorted({*old, *new})
            if (epoch in old) != (epoch in new)
            or reference.edges(old, epoch, old_window) != reference.edges(new, epoch, window)
        }

    def state(self, revision: int) -> Counter[Any]:
        landed, live_for = self.expected[revision]
        frontier = self.ledger.at(revision).frontier
        assert frontier is not None
        return Counter((a, b, k) for (a, b), k in self.trusses(landed, frontier, live_for).items())

    @staticmethod
    def trusses(landed: dict[int, list[Row]], epoch: int, live_for: int | None) -> dict[tuple[int, int], int]:
        return reference.trussness(reference.edges(landed, epoch, live_for))


KINDS = ("edge", "trussness_of_edge", "triangles_at_vertex")


@pytest.mark.slow  # test_a_filter_and_value_columns rebuilds in the ordinary tier
def test_another_window_is_one_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path / "home", live_for=2)
    world.deliver(0, 1, 3)
    world.configure(4)
    world.land(2)
    with pytest.raises(UsageError, match="live_for: 2 → 4") as refused:
        homes.run(world.home, world.ledger, [2])
    assert "altneu rebuild" in (refused.value.next or "")
    world.landed.pop(2)
    homes.run_as_planned(world.home, world.ledger, planning.plan_rebuild(world.home, world.ledger, from_landing=False))
    world.published()
    assert world.ledger.at().revision == 2
    world.deliver(2)
    world.check(1, 2, 3)  # the old ones keep the old meaning


@pytest.mark.law(2, 3)
def test_a_filter_and_value_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A new value column needs nothing; a filter a rebuild; another type of a column a rebuild from the landing."""
    home, ledger = homes.make(tmp_path / "home")
    triangle = [(0, 1), (1, 2), (0, 2)]
    homes.put(home, 0, [(a, b, None, "upsert", 0) for a, b in triangle])
    homes.run(home, ledger, [0])

    def again(toml: str) -> Home:
        (home.path / "altneu.toml").write_text(toml)
        return Home.open(home.path)

    home = again('[values]\nw = "long"\n')
    homes.put(home, 1, [(2, 3, 5, "upsert", 0), (0, 3, -5, "upsert", 0)])
    assert homes.run(home, ledger, [1]) is not None
    assert views.totals(home, ledger)[0]["triangles"] == 2
    pins = ledger.at().snapshots
    for values, words in {"": "w: long → none", '[values]\nw = "double"\n': "w: long → double"}.items():
        with pytest.raises(UsageError, match=f"{words}. A compaction would lose"):
            compact(again(values), ledger, spark)
        assert ledger.at().snapshots == pins
    home = again('[values]\nw = "long"\n[edges]\nwhere = "w IS NULL OR w > 0"\n')
    homes.put(home, 2, [])
    with pytest.raises(UsageError, match="where: none → w IS NULL"):
        homes.run(home, ledger, [2])
    homes.run_as_planned(home, ledger, planning.plan_rebuild(home, ledger, from_landing=False))
    assert (views.totals(home, ledger)[0]["triangles"], views.totals(home, ledger)[0]["edges"]) == (1, 4)
    home = again('[values]\nw = "double"\n[edges]\nwhere = "w IS NULL OR w > 4.5"\n')
    with pytest.raises(UsageError, match="w: long → double") as refused:
        homes.run_as_planned(home, ledger, planning.plan_rebuild(home, ledger, from_landing=False))
    assert "--from-landing" in (refused.value.next or "")
    homes.run_as_planned(home, ledger, planning.plan_rebuild(home, ledger, from_landing=True))
    assert ledger.at().frontier == 2  # the landed epoch is taken along
    warehouse = Warehouse(spark, home)
    assert dict(warehouse.at("upserts", ledger.at()).dtypes)["w"] == "double"
    assert views.totals(home, ledger)[0]["edges"] == 4
    old = views.as_of(warehouse, ledger.at(2), "edges", 1)  # as published before the column had that type
    assert old.count() == 5


@pytest.mark.slow
def test_rollback_and_forward_again(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path / "home", live_for=3)
    world.deliver(0, 1)
    world.deliver(1, 2)
    world.deliver(4)
    right = copy.deepcopy(world.landed)
    row, epochs = rollback.rollback(world.home, world.ledger, 1)
    assert (row.revision, row.frontier, epochs) == (4, 1, [1, 2, 4])
    world.expected[4] = world.expected[1]
    world.check(1, 2, 3, 4)
    _, rows = grid(world.home, world.ledger)
    assert {e["epoch"]: e["state"] for e in rows} == {0: "published", 1: "changed", 2: "missing", 4: "missing"}
    homes.run(world.home, world.ledger, [1, 2, 4])
    world.landed = right
    world.published()
    world.check(5)
    assert world.state(5) == world.state(3)
    with pytest.raises(AltneuError, match="revision 9 was not published"):
        rollback.rollback(world.home, world.ledger, 9)
    # after a compaction the kept revisions share a snapshot: what a rollback takes back stays in it, and is not seen
    compact(world.home, world.ledger, spark, grace=3600)
    rollback.rollback(world.home, world.ledger, 1)
    world.expected[6] = world.expected[1]
    world.landed = copy.deepcopy(world.expected[1][0])
    world.check(1, 3, 5, 6)
    world.deliver(0, 5)
    world.check(6, 7)
    compact(world.home, world.ledger, spark, grace=0)
    world.check(5, 6, 7)


@pytest.mark.slow  # test_a_consumer_follows_names rolls back to nothing in the ordinary tier
def test_rollback_to_nothing_and_forward_again(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path / "home")
    world.deliver(0, 1)
    graph = Graph(world.home.path, spark)
    had = Counter((r.src, r.dst, r.trussness) for r in graph.edges().collect())
    row, epochs = rollback.rollback(world.home, world.ledger, 0)
    assert (row.revision, row.frontier, row.snapshots, epochs) == (2, None, {}, [0, 1])
    with pytest.raises(AltneuError, match="nothing is published"):
        graph.edges()
    taken = graph.changes_since(1).collect()
    assert Counter((r.src, r.dst, r.trussness) for r in taken) == had and {r.diff for r in taken} <= {-1}
    with pytest.raises(AltneuError, match="nothing is published"):
        compact(world.home, world.ledger, spark, grace=0)
    homes.run(world.home, world.ledger, [0, 1])
    world.expected[1] = (copy.deepcopy(world.landed), world.live_for)
    world.published()
    world.check(1, 3)
    assert graph.changes_since(1, 3).count() == 0
    compact(world.home, world.ledger, spark, grace=0)
    world.check(3)
    names = {name for table in TABLES for name in Warehouse(spark, world.home).metadata(table).refs()}
    assert names == {"main", "r1", "r2", "r3"}


def test_a_lost_file_is_named_and_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path / "home")
    world.deliver(0, 1)
    data = sorted((tmp_path / "home" / "warehouse" / "graph" / "trussness" / "data").rglob("*.parquet"))
    assert data
    for file in data:
        file.unlink()
    shutil.rmtree(tmp_path / "home" / "warm")  # else a stage may do without the old rows, and the audit reads them
    world.land(2)
    with pytest.raises(RunFailed, match=r"stage truss .*trussness.*\.parquet") as broken:
        homes.run(world.home, world.ledger, [2])
    assert "altneu rebuild" in (broken.value.next or "")
    landed = world.landed.pop(2)
    homes.run_as_planned(world.home, world.ledger, planning.plan_rebuild(world.home, world.ledger, from_landing=False))
    world.published()
    world.landed[2] = landed
    homes.run(world.home, world.ledger, [2])
    world.published()
    world.check(2, 3)
    # the landed rows themselves: only the landing has them
    for file in (tmp_path / "home" / "warehouse" / "graph" / "upserts" / "data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(RunFailed):
        homes.run_as_planned(
            world.home, world.ledger, planning.plan_rebuild(world.home, world.ledger, from_landing=False)
        )
    homes.run_as_planned(world.home, world.ledger, planning.plan_rebuild(world.home, world.ledger, from_landing=True))
    world.published()
    world.check(4)
    shutil.rmtree(world.home.landing / "epoch=1")
    with pytest.raises(UsageError, match="not in the landing any more"):
        planning.plan_rebuild(world.home, world.ledger, from_landing=True)


@pytest.mark.law(9)
@pytest.mark.parametrize(
    ("live_for", "short"), [(3, True), *(pytest.param(each, False, marks=pytest.mark.slow) for each in (3, None))]
)
def test_compaction_changes_no_kept_answer(
    spark: SparkSession, tmp_path: Path, live_for: int | None, short: bool
) -> None:
    """Law 9, with late and replaced epochs before and after, and a run at work while it happens."""
    world = World(spark, tmp_path / "home", live_for=live_for, retention="[retention]\nepochs = 4\nrevisions = 3\n")
    world.deliver(0, 2)
    world.deliver(1, 3)
    world.deliver(2, 4)  # replaced
    world.deliver(1, 5)  # replaced, and it will lie before `since`: later than the oldest revision that is kept
    world.land(6)  # a run at work: it has read its batch and made its edges when the compaction comes
    run_id = runner.begin(world.home, world.ledger, planning.plan_epochs(world.home, world.ledger, [6]))
    assert run_id
    for name in ("ingest", "edges"):
        runner.stage(world.home, world.ledger, run_id, name)
    facts = compact(world.home, world.ledger, spark, grace=3600)
    assert (facts.since, facts.revisions, facts.dropped_revisions) == (2, [2, 4], 1)
    assert all(size.files <= 1 for size in facts.tables.values())
    world.check(2, 3, 4)
    with pytest.raises(AltneuError, match="revision 1 cannot be read any more"):
        Warehouse(spark, world.home).at("edges", world.ledger.at(1))
    with pytest.raises(AltneuError, match="cannot be read any more"):
        rollback.rollback(world.home, world.ledger, 1)
    for name in ("triangles", "truss", "audit", "publish", "report"):
        runner.stage(world.home, world.ledger, run_id, name)
    world.published()
    world.check(4, 5)
    graph = Graph(world.home.path, spark)
    with pytest.raises(UsageError, match="epoch 1 was folded"):
        graph.edges(as_of=1, revision=4)
    assert graph.edges(as_of=1).count() == len(reference.edges(world.landed, 1, live_for))  # the run's own base
    world.deliver(2, 4, 7)  # late, at the first epoch that is kept, replaced, and new
    facts = compact(world.home, world.ledger, spark, grace=0)
    assert (facts.since, facts.revisions) == (4, [4, 6])
    assert facts.expired_snapshots > 0
    world.check(4, 5, 6)
    if short:
        return
    kept = world.landed[0]
    world.land(0)
    with pytest.raises(UsageError, match="epoch 0 cannot be replaced"):
        homes.run(world.home, world.ledger, [0])
    assert survey(world.home, world.ledger)[1][0].state == "folded"
    world.landed[0] = kept
    again = compact(world.home, world.ledger, spark, grace=0)
    assert again.tables == facts.tables  # nothing left to gain
    world.deliver(6)
    world.check(6, 7)
    assert_consolidated(world)
    homes.run_as_planned(world.home, world.ledger, planning.plan_rebuild(world.home, world.ledger, from_landing=False))
    world.published()
    world.check(8)  # and the totals of the folded epochs are still those of history
    world.configure(None if live_for else 9)
    assert meaning.changed_meaning(world.home, world.ledger)[1] == "reload"


def assert_consolidated(world: World) -> None:
    """No two rows of a table say the same thing at the same time, and none says nothing."""
    warehouse, row = Warehouse(world.spark, world.home), world.ledger.at()
    for table in TABLES:
        frame = warehouse.at(table, row)
        data = [column for column in frame.columns if column != "diff"]
        assert frame.groupBy(*data).count().where("count > 1").count() == 0, table
        assert frame.where("diff = 0").count() == 0, table


@pytest.mark.slow  # tests/protocol has a compaction and a writer in every order in the ordinary tier
def test_compaction_leaves_a_revision_published_meanwhile_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, tmp_path / "home")
    world.deliver(0, 1)
    world.deliver(2)
    ensure = Warehouse.ensure

    def overtaken(warehouse: Warehouse, retype: bool = False) -> None:
        monkeypatch.setattr(Warehouse, "ensure", ensure)
        world.deliver(3)
        ensure(warehouse, retype)

    monkeypatch.setattr(Warehouse, "ensure", overtaken)
    assert compact(world.home, world.ledger, spark, grace=0).revisions == [1, 2]
    world.check(1, 2, 3)


@pytest.mark.parametrize(
    "then", ["another batch", *(pytest.param(then, marks=pytest.mark.slow) for then in ("not a file of rows", "gone"))]
)
def test_a_landing_that_changes_while_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Files are read twice, to judge them and for their rows: a change in between is reported, and loses nothing."""
    world = World(spark, tmp_path / "home")
    world.deliver(0)
    world.land(1)
    judge = ingest.judge

    def judge_and_change(*arguments: Any, **options: Any) -> Any:
        found = judge(*arguments, **options)
        folder = world.home.landing / "epoch=1"
        if then == "gone":
            shutil.rmtree(folder)
        else:
            (folder / "rows.csv").write_text("src,dst\n1,2\n" if then == "another batch" else "rows\n")
        return found

    monkeypatch.setattr(ingest, "judge", judge_and_change)
    with pytest.raises(RunFailed, match="the landing changed while it was read"):
        homes.run(world.home, world.ledger, [1])
    assert world.ledger.at().revision == 1
    monkeypatch.setattr(ingest, "judge", judge)
    world.deliver(1)
    world.check(1, 2)


def test_compaction_gives_space_back(spark: SparkSession, tmp_path: Path) -> None:
    """What nobody can read goes only after the grace period, and the files that killed tasks have left go too."""
    world = World(spark, tmp_path / "home", retention="[retention]\nrevisions = 1\n")
    for epoch in range(3):
        world.deliver(epoch)

    def files() -> int:
        return len(list((tmp_path / "home" / "warehouse").rglob("*.parquet")))

    reader = Graph(world.home.path, spark).edges(revision=2)  # somebody reads revision 2 just now
    before, rows = files(), sorted(map(tuple, reader.collect()))
    assert compact(world.home, world.ledger, spark, grace=3600).expired_snapshots == 0
    assert sorted(map(tuple, reader.collect())) == rows
    facts = compact(world.home, world.ledger, spark, grace=0)
    assert facts.expired_snapshots >= 2 * 4
    assert files() == sum(size.files for size in facts.tables.values()) < before
    world.check(3)
    world.deliver(4)
    world.check(4)


def changed_epochs(world: World, revision: int) -> dict[int, tuple[bool, bool]]:
    """As `epochs.changed_epochs` says it."""
    found = epochs.changed_epochs(world.home, world.ledger, revision)
    return {each.epoch: (each.before is not None, each.after is not None) for each in found}


def test_a_consumer_follows_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    """Changes since a revision, applied exactly once each, give every revision: late ones, corrected, rolled back,
    rebuilt and compacted ones; and the collection with its epochs gives the state at every epoch."""
    world = World(spark, tmp_path / "home", live_for=3)
    graph = Graph(world.home.path, spark)
    held: Counter[Any] = Counter()
    triples: Counter[Any] = Counter()
    at = 0

    def follow() -> None:
        nonlocal at
        newest = world.ledger.at().revision
        for revision in range(at + 1, newest + 1):
            assert changed_epochs(world, revision) == world.changed_epochs(revision), (world.seed, revision)
        for row in graph.changes_since(at).collect():
            held[row.src, row.dst, row.trussness] += row["diff"]
        assert {key: n for key, n in held.items() if n} == dict(world.state(newest)), (world.seed, at, newest)
        for row in graph.changes_since(at, all_epochs=True).collect():
            triples[row.src, row.dst, row.trussness, row.epoch] += row["diff"]
        at = newest

    world.deliver(0, 2)
    follow()
    assert graph.changes_since(at).count() == 0
    world.deliver(1)
    world.deliver(3)
    follow()  # two at once
    rollback.rollback(world.home, world.ledger, 1)
    world.expected[4] = world.expected[1]
    follow()
    homes.run_as_planned(world.home, world.ledger, planning.plan_rebuild(world.home, world.ledger, from_landing=True))
    world.published()
    compact(world.home, world.ledger, spark, grace=3600)
    follow()
    world.deliver(2)
    follow()
    landed, live_for = world.expected[at]
    for epoch in range(4):
        state: Counter[Any] = Counter()
        for (a, b, k, when), n in triples.items():
            if when <= epoch:
                state[a, b, k] += n
        wanted = {(a, b, k): 1 for (a, b), k in World.trusses(landed, epoch, live_for).items()}
        assert {key: n for key, n in state.items() if n} == wanted, (world.seed, epoch)
    names = graph.register("t_")
    assert {"t_edges", "t_totals", "t_diffs_upserts"} <= set(names)
    found = spark.sql("SELECT src, dst, trussness FROM t_edges").collect()
    assert Counter(map(tuple, found)) == world.state(at)
    assert spark.sql("SELECT max(edges) FROM t_totals").first()[0] is not None


@pytest.mark.slow
def test_a_consumer_follows_names(spark: SparkSession, tmp_path: Path) -> None:
    """A dictionary of names that was made again, or went back, gives the same numbers to other names: changes speak of
    names, in whichever dictionary each side has them."""
    home, ledger = homes.make(tmp_path / "home", '[vertices]\nids = "string"\n')
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
        at = ledger.at().revision
        now = {} if ledger.at().frontier is None else graph.edges().collect()
        wanted = {(frozenset((row.src, row.dst)), row.trussness): 1 for row in now}
        assert {key: n for key, n in held.items() if n} == wanted, at
        assert {key: n for key, n in triples.items() if n} == wanted, at
        return at

    def land(epoch: int, *pairs: str) -> None:
        homes.put(home, epoch, [(pair[0], pair[1], None, "upsert", 0) for pair in pairs])

    land(0, "mn", "no", "mo")
    homes.run(home, ledger, [0])
    follow()
    land(1, "az", "bz")
    homes.run(home, ledger, [1])
    full = follow()
    (gone,) = graph.changes_since(1, full, vertex="a").collect()
    assert {gone.src, gone.dst} == {"a", "z"}
    rollback.rollback(home, ledger, 1)
    back = follow()
    (gone,) = graph.changes_since(full, back, vertex="a").collect()  # a name that the newer revision does not know
    assert ({gone.src, gone.dst}, gone["diff"]) == ({"a", "z"}, -1)
    land(1, "yn", "xy")  # the numbers that a, b and z had
    homes.run(home, ledger, [1])
    follow()
    homes.run_as_planned(home, ledger, planning.plan_rebuild(home, ledger, from_landing=True))
    assert graph.changes_since(follow() - 1).count() == 0
    (came,) = graph.changes_since(full, edge=("x", "y")).collect()
    assert {came.src, came.dst} == {"x", "y"}
    rollback.rollback(home, ledger, 0)
    follow()
    assert not any(held.values())
    with pytest.raises(UsageError, match="no vertex is called 'q'"):
        graph.changes_since(full, back, vertex="q")
