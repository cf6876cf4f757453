"""Plain tables (`[publish] tables`): at every epoch they say what plain Python says of the batches, after late epochs,
corrections, rollbacks, compactions and changes of the settings, as any reader of Iceberg sees them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from pipeline.errors import CheckFailed, UsageError
from pipeline.home.directory import Home
from pipeline.reading import outside
from pipeline.run import plain, planning, rollback
from pipeline.run.compact import compact
from pipeline.run.decisions import Motifs
from pipeline.run.forecast import forecast
from pipeline.state.ledger import Ledger
from pipeline.storage import unaided
from pipeline.storage.relocate import relocate
from tests import homes, reference, seeds
from tests.e2e.conftest import Altneu
from tests.prints import another_number
from tests.reference import Row

pytestmark = pytest.mark.usefixtures("tiny")

FOREVER = 2**63 - 1
ALL = '[publish]\ntables = ["vertex_history", "edge_now", "epoch_totals"]\n'
History = dict[int, list[Row]]


def tables(home: Home, ledger: Ledger, ref: str = "main") -> dict[str, list[dict[str, Any]]]:
    """The plain tables as pyiceberg reads a branch or tag."""
    where = outside.of(home, ledger).catalog
    catalog = load_catalog(where["name"], type="sql", uri=where["uri"], warehouse=where["warehouse"])
    found = {}
    for name in home.config.publish.tables:
        table = catalog.load_table(("graph", name))
        snapshot = table.snapshot_by_name(ref)
        assert snapshot is not None, (name, ref)
        found[name] = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    return found


def vertices(history: History, at: int, live_for: int | None, where: Any) -> dict[int, tuple[int, int, float, int]]:
    """vertex → degree, triangles, clustering, greatest trussness."""
    graph = reference.edges(history, at, live_for, where)
    truss, closed = reference.trussness(graph), Counter(v for each in reference.triangles(graph) for v in each)
    found = {}
    for vertex, near in reference.neighbours(graph).items():
        d, greatest = len(near), max(k for edge, k in truss.items() if vertex in edge)
        clustering = 2 * closed[vertex] / (d * (d - 1)) if d > 1 else 0.0
        found[vertex] = d, closed[vertex], pytest.approx(clustering), greatest
    return found


def check(
    home: Home,
    found: dict[str, list[dict[str, Any]]],
    history: History,
    live_for: int | None = None,
    where: Any = lambda value: True,
    since: int | None = None,
) -> None:
    frontier, name = max(history), str if home.config.vertices.ids == "string" else int
    rows = found["vertex_history"]
    assert len({(row["vertex"], row["epoch"]) for row in rows}) == len(rows)
    for at in range(min(history) if since is None else since, frontier + 1):
        there = [row for row in rows if row["epoch"] <= at < row["until"]]
        assert len({row["vertex"] for row in there}) == len(there), at
        expected = vertices(history, at, live_for, where)
        got = {row["vertex"]: (row["degree"], row["triangles"], row["clustering"], row["trussness"]) for row in there}
        assert got == {name(vertex): numbers for vertex, numbers in expected.items()}, at
    assert all(row["is_current"] == (row["until"] == FOREVER) for row in rows)
    assert all(row["epoch"] < row["until"] and row["epoch"] <= frontier for row in rows)
    graph = reference.edges(history, frontier, live_for, where)
    truss = reference.trussness(graph)
    alive = {
        key: value
        for key, (epoch, value) in reference.relation(history, frontier).items()
        if key[0] != key[1] and where(value) and (live_for is None or frontier < epoch + live_for)
    }
    value = next(iter(home.config.values), None)
    assert Counter(
        (row["src"], row["dst"], row["trussness"], row["both_ways"], row.get(value)) for row in found["edge_now"]
    ) == Counter(
        (name(a), name(b), truss[min(a, b), max(a, b)], (b, a) in alive, number if value else None)
        for (a, b), number in alive.items()
    )
    totals = sorted(found["epoch_totals"], key=lambda row: int(row["epoch"]))
    assert [row["epoch"] for row in totals] == list(range(min(history), frontier + 1))
    for row in totals:
        expected_totals = reference.totals(reference.edges(history, row["epoch"], live_for, where))
        assert {measure: row[measure] for measure in expected_totals} == pytest.approx(expected_totals), row["epoch"]
        assert row["label"] == home.schedule.label(row["epoch"])


def batch(rng: random.Random, values: bool, n: int = 9, most: int = 14) -> list[Row]:
    rows: list[Row] = []
    for _ in range(rng.randrange(most)):
        op = "delete" if rng.random() < 0.3 else "upsert"
        value = rng.randrange(-2, 4) if op == "upsert" and values else None
        rows.append((rng.randrange(n), rng.randrange(n), value, op, rng.randrange(3)))
    return rows


class World:
    """A home, and the batches that are landed in it."""

    def __init__(self, path: Path, toml: str, live_for: int | None = None, where: Any = lambda value: True) -> None:
        self.home, self.ledger = homes.make(path, ALL + toml)
        self.history: History = {}
        self.rule = live_for, where

    def land(self, batches: History) -> None:
        for epoch, rows in batches.items():
            homes.put(self.home, epoch, rows)
        self.history |= batches
        homes.run(self.home, self.ledger, batches)

    def check(self, ref: str = "main", history: History | None = None, since: int | None = None) -> None:
        check(self.home, tables(self.home, self.ledger, ref), history or self.history, *self.rule, since=since)


def positive(value: int | None) -> bool:
    return value is not None and value > 0


CASES = {
    "kept until deleted": ("", None, lambda value: True),
    "a window and a filter": ('[values]\nw = "long"\n[edges]\nlive_for = 3\nwhere = "w > 0"\n', 3, positive),
    "names": ('[vertices]\nids = "string"\n[values]\nw = "long"\n[edges]\nlive_for = 2\n', 2, lambda value: True),
    "values": ('[values]\nw = "long"\n', None, lambda value: True),
}


@pytest.mark.parametrize(
    ("name", "short"),
    [("a window and a filter", True), *(pytest.param(name, False, marks=pytest.mark.slow) for name in CASES)],
)
def test_any_order_of_batches(spark: SparkSession, unaudited: None, tmp_path: Path, name: str, short: bool) -> None:
    """Deletions, re-insertions, late, replaced and empty epochs: at each revision's tag, at every epoch."""
    toml, live_for, where = CASES[name]
    rng = random.Random(seeds.one())
    world = World(tmp_path / "home", toml, live_for, where)
    values = bool(world.home.config.values)
    whole: Iterable[list[int]] = [[2, 5], [6], [3], [5, 4], [7, 8], [2]]
    for epochs in [[2, 5], [3, 7], [5, 4]] if short else whole:
        world.land({epoch: batch(rng, values) if epoch != 7 else [] for epoch in epochs})
        world.check()
        world.check(f"r{world.ledger.at().revision}")


def test_a_home_from_its_first_run_to_its_last(spark: SparkSession, unaudited: None, tmp_path: Path) -> None:
    """Rollbacks, compactions that fold and let revisions share, a rebuild, a moved home; switched off and on again."""
    rng = random.Random(seeds.one())
    toml = '[values]\nw = "long"\n[edges]\nlive_for = 4\n[retention]\nrevisions = 4\nepochs = 4\n'
    world = World(tmp_path / "home", toml, 4)
    home, ledger = world.home, world.ledger
    for epochs in ([1, 2, 3], [5, 4]):
        world.land({epoch: batch(rng, True) for epoch in epochs})
    before = dict(world.history)
    world.land({3: batch(rng, True), 6: batch(rng, True)})
    world.check()
    rollback.rollback(home, ledger, 2)  # has its own snapshots
    world.history = before
    world.check()
    world.land({3: batch(rng, True), 6: batch(rng, True)})  # on what was rolled back to
    shared = dict(world.history)
    world.land({7: batch(rng, True)})
    at = ledger.at().revision
    compact(home, ledger, spark, 0.0)
    since = ledger.at().since
    assert since == 4
    world.check(since=since)
    assert len(tables(home, ledger)["vertex_history"]) < 100
    rollback.rollback(home, ledger, at - 1)  # shares its tables with the newest one
    now, world.history = world.history, shared
    world.check(since=since)
    world.land({7: now[7], 8: batch(rng, True), 5: batch(rng, True)})  # after what was folded
    world.check(since=since)
    written = tables(home, ledger)

    (home.path / "altneu.toml").write_text(toml)
    world.home = Home.open(home.path)
    homes.put(world.home, 8, rows := batch(rng, True))
    homes.run(world.home, ledger, [8])
    world.history[8] = rows
    assert not {*home.config.publish.tables} & {*ledger.at().snapshots}
    assert tables(home, ledger) == {table: [] for table in written}  # not kept up: nothing rather than what was
    (home.path / "altneu.toml").write_text(ALL + toml)
    world.home = Home.open(home.path)
    world.land({9: batch(rng, True)})
    world.check(since=since)
    homes.run_as_planned(world.home, ledger, planning.plan_rebuild(world.home, ledger, from_landing=False))
    world.check(since=since)
    home.path.rename(tmp_path / "elsewhere")
    world.home = Home.open(tmp_path / "elsewhere")
    world.ledger = Ledger(world.home.database)
    relocate(world.home)
    world.check(since=since)
    world.land({10: batch(rng, True)})
    world.check(since=since)


def test_rollback_to_before_they_were_switched_on(spark: SparkSession, unaudited: None, tmp_path: Path) -> None:
    home, ledger = homes.make(tmp_path / "home")
    first: History = {1: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)]}
    homes.put(home, 1, first[1])
    homes.run(home, ledger, [1])
    world = World(home.path, "")
    world.history = dict(first)
    world.land({2: [(1, 3, None, "upsert", 0)]})
    world.check()
    world.check("r2")
    said: list[str] = []
    rollback.rollback(world.home, ledger, 1, said.append)
    assert any("vertex_history" in line and "altneu rebuild" in line for line in said)
    assert not any(tables(world.home, ledger).values())
    world.history = dict(first)
    homes.run_as_planned(world.home, ledger, planning.plan_rebuild(world.home, ledger, from_landing=False))
    world.check()
    rollback.rollback(world.home, ledger, 0)
    refs = [unaided.branches(home).metadata(table) for table in world.home.config.publish.tables]
    assert all(each.main() == each.first() for each in refs)


def test_audited_as_the_rest(altneu: Altneu, tmp_path: Path) -> None:
    """In each run, and by `altneu audit`; what is planted in a published table is found, named, and repaired."""
    home, ledger = homes.make(tmp_path / "home", ALL + '[motifs]\npath = "a-b, b-c"\n[values]\nw = "long"\n')
    for epoch in range(3):
        homes.put(home, epoch, [(a, b, epoch, "upsert", 0) for a in range(epoch, 4) for b in range(a)])
    assert homes.run(home, ledger, range(3))  # at once: no file holds rows that were taken out since
    plain = {row.name: row for row in ledger.checks() if row.suite == "plain"}
    assert len(plain) == 3 and all(row.passed for row in plain.values())
    assert altneu("audit").code == 0
    for table, column in (("vertex_history", "degree"), ("edge_now", "trussness"), ("epoch_totals", "wedges")):
        whole = {file: file.read_bytes() for file in home.path.glob(f"warehouse/graph/{table}/data/*.parquet")}
        another_number(home.path, table, column, seeds.one())
        found = altneu("audit")
        assert found.code == 1 and f"{table} says" in found.err, table
        for file, content in whole.items():
            file.write_bytes(content)
    assert altneu("audit").code == 0
    assert altneu("rebuild").code == 0
    assert altneu("audit").code == 0


def test_a_plan_after_a_rollback_knows_what_is_stored(altneu: Altneu, unaudited: None, tmp_path: Path) -> None:
    home, ledger = homes.make(tmp_path / "home", '[motifs]\npath = "a-b, b-c"\n')
    for epoch in range(2):
        homes.put(home, epoch, [(a, b, None, "upsert", 0) for a in range(3 + epoch) for b in range(a)])
        assert homes.run(home, ledger, [epoch])
    homes.put(home, 2, [(1, 9, None, "upsert", 0)])

    def stored() -> int:
        plan = forecast(home, ledger, planning.plan_epochs(home, ledger, [2]))
        return next(each.stored for each in plan.decisions if isinstance(each, Motifs))

    before = stored()
    assert altneu("rollback", "1").code == 0
    assert 0 < stored() < before == 6


def test_a_fault_in_a_run_stops_it(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "home", "")
    world.land({1: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0), (1, 3, None, "upsert", 0)]})
    right = plain._new

    def wrong(run: Any, table: str, touched: Any = None) -> Any:
        rows = right(run, table, touched)
        return rows.where("vertex <> 1") if table == "vertex_history" else rows

    monkeypatch.setattr(plain, "_new", wrong)
    homes.put(world.home, 2, [(1, 4, None, "upsert", 0)])
    with pytest.raises(CheckFailed, match="vertex_history says"):
        homes.run(world.home, world.ledger, [2])
    assert world.ledger.at().revision == 1
    world.check()
    monkeypatch.undo()
    world.land({2: [(1, 4, None, "upsert", 0)]})
    world.check()


def test_the_recipes(spark: SparkSession, unaudited: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand on the page of other programs."""
    world = World(tmp_path / "home", "")
    world.land({1: [(a, b, None, "upsert", 0) for a in range(5) for b in range(a)] + [(0, 9, None, "upsert", 0)]})
    world.land({2: [(0, 8, None, "upsert", 0), (3, 4, None, "delete", 1), (4, 3, None, "delete", 1)]})
    said = outside.of(world.home, world.ledger).plain()
    monkeypatch.setattr("subprocess.check_output", lambda command: json.dumps(said))
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    first, second = re.findall(
        r"^```python\n(.*?)^```$", page.split("\n## Plain tables\n")[1].split("\n## ")[0], re.M | re.S
    )
    given: dict[str, Any] = {"spark": spark}
    exec(first, given)
    assert given["answer"][0] == (0, 6) and given["edge_now"].num_rows == 9
    spark.catalog.clearCache()
    exec(second, given)
    assert {tuple(row) for row in given["current"].collect()} >= {(0, 6), (9, 1)}


def test_held_and_discarded(altneu: Altneu, unaudited: None, tmp_path: Path) -> None:
    world = World(tmp_path / "home", "")
    world.land({1: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)]})
    for command in ("discard", "publish"):
        homes.put(world.home, 2, rows := [(1, 3, None, "upsert", 0)])
        homes.hold(world.home, world.ledger, [2])
        world.check()  # nobody sees it
        assert altneu(command).code == 0
    world.history[2] = rows
    world.check()


@pytest.mark.slow  # tests/e2e/test_move moves homes, and the one of a whole life has them in a renamed one
def test_moved(altneu: Altneu, unaudited: None, tmp_path: Path) -> None:
    """`altneu move` takes them along, and the revisions that can be read by their tags; the new home keeps them up."""
    rng = random.Random(seeds.one())
    world = World(tmp_path / "home", '[values]\nw = "long"\n[edges]\nlive_for = 3\n', 3)
    for epochs in ([1, 3], [2]):
        world.land({epoch: batch(rng, True) for epoch in epochs})
    history = dict(world.history)
    world.land({2: batch(rng, True), 4: [(1, 2, 0, "upsert", 0)]})
    new = tmp_path / "new"
    assert altneu("move", str(new)).code == 0
    world.home.path.rename(tmp_path / "gone")  # nothing leads back
    world.home = Home.open(new)
    world.ledger = Ledger(world.home.database)
    world.check()
    world.check("r2", history)
    world.land({3: batch(rng, True), 5: batch(rng, True)})
    world.check()


WRONG = {
    '[publish]\ntables = ["vertex_daily"]\n': '"vertex_history", "edge_now" and "epoch_totals"',
    '[publish]\ntables = "edge_now"\n': '"vertex_history", "edge_now" and "epoch_totals"',
    '[values]\nTrussness = "long"\n[publish]\ntables = ["edge_now"]\n': "rename the one of [values]",
}


@pytest.mark.parametrize("toml", WRONG)
def test_wrong_settings(tmp_path: Path, toml: str) -> None:
    (tmp_path / "altneu.toml").write_text(toml)
    with pytest.raises(UsageError, match=re.escape(WRONG[toml])):
        Home.open(tmp_path)
