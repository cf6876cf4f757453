"""Serving tables (`[publish] tables`): at every epoch they say what plain Python says of the batches, after late
epochs, corrections, rollbacks, compactions and changes of the settings, as any reader of Iceberg sees them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from altneu.pipeline.errors import CheckFailed, UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.maintenance import rollback
from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.reading import external_access
from altneu.pipeline.run import approval, planning, runner, serving_tables
from altneu.pipeline.run.choices.plan_choices import MotifsChoice
from altneu.pipeline.run.forecast import forecast_run
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage import refs_without_spark
from altneu.pipeline.storage.relocate import relocate_home
from tests import home_helpers, seeds
from tests.e2e.conftest import Altneu
from tests.fingerprint_helpers import another_number
from tests.laws.serving_tables import ALL, CASES, History, Where, anything, assert_serving_tables, draw_batch
from tests.reference import Row

pytestmark = pytest.mark.usefixtures("tiny")


def read_tables(ledger: Ledger, ref: str = "main") -> dict[str, list[dict[str, Any]]]:
    """The serving tables as pyiceberg reads a branch or tag."""
    where = external_access.external_access(ledger).catalog
    catalog = load_catalog(where["name"], type="sql", uri=where["uri"], warehouse=where["warehouse"])
    found = {}
    for name in ledger.home.config.publish.tables:
        table = catalog.load_table(("graph", name))
        snapshot = table.snapshot_by_name(ref)
        assert snapshot is not None, (name, ref)
        found[name] = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    return found


class ServingTablesWorld:
    """A home, and the batches that are landed in it."""

    def __init__(self, path: Path, toml: str, live_for: int | None = None, where: Where = anything) -> None:
        self.home, self.ledger = home_helpers.make(path, ALL + toml)
        self.history: History = {}
        self.rule = live_for, where

    def land_batches(self, batches: History) -> None:
        for epoch, rows in batches.items():
            home_helpers.put(self.home, epoch, rows)

    def publish(self, batches: History) -> None:
        self.land_batches(batches)
        self.history |= batches
        home_helpers.run(self.ledger, batches)

    def reopen(self, path: Path) -> None:
        self.home = Home.open(path)
        self.ledger = Ledger(self.home)

    def assert_right(self, ref: str = "main", history: History | None = None, since: int | None = None) -> None:
        found = read_tables(self.ledger, ref)
        assert_serving_tables(self.home, found, history or self.history, *self.rule, since=since)


LIFE = (
    '[vertices]\nids = "string"\n[values]\nw = "long"\n[edges]\nlive_for = 4\n[motifs]\npath = "a-b, b-c"\n'
    "[retention]\nrevisions = 2\nepochs = 4\n"
)


@pytest.mark.law(4, 9, 12)
@pytest.mark.dear("all serving tables, motifs and a compaction, maybe first in its process")
def test_a_home_that_is_corrected_rolled_back_compacted_and_moved(
    spark: SparkSession, unaudited: None, tmp_path: Path
) -> None:
    rng = random.Random(seeds.one())
    world = ServingTablesWorld(tmp_path / "home", LIFE, 4)
    ledger = world.ledger

    def draw(*epochs: int) -> History:
        return {epoch: draw_batch(rng, values=True) for epoch in epochs}

    world.publish({1: [(1, 2, 0, "upsert", 0), (2, 3, 0, "upsert", 0)], **draw(3)})
    first, stored = dict(world.history), count_stored_motifs(world)
    world.publish(draw(2, 3, 6, 8) | {7: []})  # late, replaced, new and empty
    world.assert_right()
    second = dict(world.history)
    rollback.roll_back(ledger, 1)
    world.history = first
    world.assert_right()
    assert count_stored_motifs(world) == stored > 0, "a plan knows what is stored"
    rollback.roll_back(ledger, 2)
    world.history = second
    world.assert_right()
    compact(ledger, spark, 0.0)
    since = ledger.revisions.get().since
    assert since == 5
    world.assert_right(since=since)
    world.home.path.rename(tmp_path / "elsewhere")
    world.reopen(tmp_path / "elsewhere")
    relocate_home(world.home)
    world.assert_right(since=since)


@pytest.mark.law(4, 9, 12)
@pytest.mark.slow
def test_a_home_from_its_first_run_to_its_last(spark: SparkSession, unaudited: None, tmp_path: Path) -> None:
    """Switched off and on, held and approved, rolled back, changed, compacted, renamed."""
    rng = random.Random(seeds.one())
    toml = LIFE
    world = ServingTablesWorld(tmp_path / "home", toml, 4)
    home, ledger = world.home, world.ledger

    def draw(*epochs: int) -> History:
        return {epoch: draw_batch(rng, values=True) for epoch in epochs}

    world.publish({1: [(1, 2, 0, "upsert", 0), (2, 3, 0, "upsert", 0)], **draw(2, 3)})
    world.assert_right()
    first, stored = dict(world.history), count_stored_motifs(world)

    (home.path / "altneu.toml").write_text(toml)
    world.reopen(home.path)
    world.publish(draw(5, 4))
    assert not {*home.config.publish.tables} & {*ledger.revisions.get().snapshots}
    assert not any(read_tables(ledger).values())  # not kept up: nothing rather than what was
    (home.path / "altneu.toml").write_text(ALL + toml)
    world.reopen(home.path)
    before = dict(world.history)
    world.land_batches(more := {3: draw_batch(rng, values=True), 7: []})
    run = home_helpers.hold(ledger, more)
    assert not any(read_tables(ledger).values())  # nobody sees it
    approval.approve_run(ledger, run, None, None)
    runner.publish_held_run(ledger, run.run_id)
    world.history |= more
    world.assert_right()
    world.assert_right("r3")

    said: list[str] = []
    rollback.roll_back(ledger, 2, said.append)
    assert any("vertex_history" in line and "altneu rebuild" in line for line in said)
    assert not any(read_tables(ledger).values())
    rollback.roll_back(ledger, 1)
    world.history = first
    world.assert_right()
    assert count_stored_motifs(world) == stored > 0, "a plan knows what is stored"
    world.publish({epoch: before[epoch] for epoch in (4, 5)} | draw(2, 6, 8))  # late, on what was rolled back to
    world.assert_right()
    compact(ledger, spark, 0.0)
    since = ledger.revisions.get().since
    assert since == 5
    world.assert_right(since=since)
    home.path.rename(tmp_path / "elsewhere")
    world.reopen(tmp_path / "elsewhere")
    relocate_home(world.home)
    world.assert_right(since=since)
    world.publish(draw(8, 5))  # replaced, and at the first epoch that is kept
    world.assert_right(since=since)


def count_stored_motifs(world: ServingTablesWorld) -> int:
    """How many rows of motifs a plan says are stored."""
    home_helpers.put(world.home, 9, [(1, 9, 0, "upsert", 0)])
    plan = forecast_run(world.ledger, planning.plan_epochs(world.ledger, [9]))
    return next(each.stored_rows for each in plan.decisions if isinstance(each, MotifsChoice))


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ServingTablesWorld:
    """An audited home of one revision, so that no file holds rows that were taken out since."""
    world = ServingTablesWorld(tmp_path_factory.mktemp("serving") / "home", '[values]\nw = "long"\n')
    clique: list[Row] = [(a, b, 1, "upsert", 0) for a in range(5) for b in range(a)]
    gone: list[Row] = [(3, 4, None, "delete", 1), (4, 3, None, "delete", 1)]
    world.publish({1: [*clique, (0, 9, 1, "upsert", 0)], 2: [(0, 8, 1, "upsert", 0), *gone]})
    world.assert_right()
    return world


def test_each_table_is_audited_in_a_run_and_by_the_command(published: ServingTablesWorld, altneu: Altneu) -> None:
    home, ledger = published.home, published.ledger
    checks = {row.name: row for row in ledger.checks.select() if row.suite == "plain"}
    assert len(checks) == 3 and all(row.passed for row in checks.values())
    assert altneu("audit", home=home.path).code == 0
    whole = {file: file.read_bytes() for file in home.path.glob("warehouse/graph/*/data/*.parquet")}
    columns = {"vertex_history": "degree", "edge_now": "trussness", "epoch_totals": "wedges"}
    for table, column in columns.items():
        another_number(home.path, table, column, seeds.one())
    try:
        found = altneu("audit", home=home.path)
        assert found.code == 1 and all(f"{table} says" in found.out + found.err for table in columns), found
    finally:
        for file, content in whole.items():
            file.write_bytes(content)


def test_the_recipes_of_the_page_of_other_programs(
    published: ServingTablesWorld, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand there."""
    said = external_access.external_access(published.ledger).to_dict()
    monkeypatch.setattr("subprocess.check_output", lambda command: json.dumps(said))
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    first, second = re.findall(
        r"^```python\n(.*?)^```$", page.split("\n## Serving tables\n")[1].split("\n## ")[0], re.M | re.S
    )
    given: dict[str, Any] = {"spark": spark}
    exec(first, given)
    assert given["answer"][0] == (0, 6) and given["edge_now"].num_rows == 9
    spark.catalog.clearCache()
    exec(second, given)
    assert {tuple(row) for row in given["current"].collect()} >= {(0, 6), (9, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_any_order_of_batches(spark: SparkSession, unaudited: None, tmp_path: Path, name: str) -> None:
    """Deletions, re-insertions, late, replaced and empty epochs: at each revision's tag, at every epoch."""
    rng = random.Random(seeds.one())
    world = ServingTablesWorld(tmp_path / "home", *CASES[name])
    values = bool(world.home.config.values)
    for epochs in [[2, 5], [6], [3], [5, 4], [7, 8], [2]]:
        world.publish({epoch: draw_batch(rng, values=values) if epoch != 7 else [] for epoch in epochs})
        world.assert_right()
        world.assert_right(f"r{world.ledger.revisions.get().revision}")


@pytest.mark.slow
def test_a_longer_life(spark: SparkSession, unaudited: None, tmp_path: Path) -> None:
    """Rollbacks, compactions that fold and let revisions share, a rebuild, a moved home; switched off and on again."""
    rng = random.Random(seeds.one())
    toml = '[values]\nw = "long"\n[edges]\nlive_for = 4\n[retention]\nrevisions = 4\nepochs = 4\n'
    world = ServingTablesWorld(tmp_path / "home", toml, 4)
    home, ledger = world.home, world.ledger
    for epochs in ([1, 2, 3], [5, 4]):
        world.publish({epoch: draw_batch(rng, values=True) for epoch in epochs})
    before = dict(world.history)
    world.publish({3: draw_batch(rng, values=True), 6: draw_batch(rng, values=True)})
    world.assert_right()
    rollback.roll_back(ledger, 2)  # has its own snapshots
    world.history = before
    world.assert_right()
    world.publish({3: draw_batch(rng, values=True), 6: draw_batch(rng, values=True)})  # on what was rolled back to
    shared = dict(world.history)
    world.publish({7: draw_batch(rng, values=True)})
    at = ledger.revisions.get().revision
    compact(ledger, spark, 0.0)
    since = ledger.revisions.get().since
    assert since == 4
    world.assert_right(since=since)
    assert len(read_tables(ledger)["vertex_history"]) < 100
    rollback.roll_back(ledger, at - 1)  # shares its tables with the newest one
    now, world.history = world.history, shared
    world.assert_right(since=since)
    # after what was folded
    world.publish({7: now[7], 8: draw_batch(rng, values=True), 5: draw_batch(rng, values=True)})
    world.assert_right(since=since)
    written = read_tables(ledger)

    (home.path / "altneu.toml").write_text(toml)
    world.reopen(home.path)
    home_helpers.put(world.home, 8, rows := draw_batch(rng, values=True))
    home_helpers.run(world.ledger, [8])
    world.history[8] = rows
    assert not {*home.config.publish.tables} & {*ledger.revisions.get().snapshots}
    assert read_tables(ledger) == {table: [] for table in written}  # not kept up: nothing rather than what was
    (home.path / "altneu.toml").write_text(ALL + toml)
    world.reopen(home.path)
    world.publish({9: draw_batch(rng, values=True)})
    world.assert_right(since=since)
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=False))
    world.assert_right(since=since)
    home.path.rename(tmp_path / "elsewhere")
    world.reopen(tmp_path / "elsewhere")
    relocate_home(world.home)
    world.assert_right(since=since)
    world.publish({10: draw_batch(rng, values=True)})
    world.assert_right(since=since)


@pytest.mark.slow
def test_rollback_to_before_they_were_switched_on(spark: SparkSession, unaudited: None, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    first: History = {1: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)]}
    home_helpers.put(home, 1, first[1])
    home_helpers.run(ledger, [1])
    world = ServingTablesWorld(home.path, "")
    world.history = dict(first)
    world.publish({2: [(1, 3, None, "upsert", 0)]})
    world.assert_right()
    world.assert_right("r2")
    said: list[str] = []
    rollback.roll_back(ledger, 1, said.append)
    assert any("vertex_history" in line and "altneu rebuild" in line for line in said)
    assert not any(read_tables(ledger).values())
    world.history = dict(first)
    home_helpers.run_as_planned(ledger, planning.plan_rebuild(ledger, from_landing=False))
    world.assert_right()
    rollback.roll_back(ledger, 0)
    refs = [refs_without_spark.open_branches(home).load_metadata(table) for table in world.home.config.publish.tables]
    assert all(each.main_snapshot() == each.first_snapshot() for each in refs)


@pytest.mark.slow
def test_audited_as_the_rest(altneu: Altneu, tmp_path: Path) -> None:
    """In each run, and by `altneu audit`; what is planted in a published table is found, named, and repaired."""
    home, ledger = home_helpers.make(tmp_path / "home", ALL + '[motifs]\npath = "a-b, b-c"\n[values]\nw = "long"\n')
    for epoch in range(3):
        home_helpers.put(home, epoch, [(a, b, epoch, "upsert", 0) for a in range(epoch, 4) for b in range(a)])
    assert home_helpers.run(ledger, range(3))  # at once: no file holds rows that were taken out since
    checks = {row.name: row for row in ledger.checks.select() if row.suite == "plain"}
    assert len(checks) == 3 and all(row.passed for row in checks.values())
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


@pytest.mark.slow
def test_a_plan_after_a_rollback_knows_what_is_stored(altneu: Altneu, unaudited: None, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[motifs]\npath = "a-b, b-c"\n')
    for epoch in range(2):
        home_helpers.put(home, epoch, [(a, b, None, "upsert", 0) for a in range(3 + epoch) for b in range(a)])
        assert home_helpers.run(ledger, [epoch])
    home_helpers.put(home, 2, [(1, 9, None, "upsert", 0)])

    def stored() -> int:
        plan = forecast_run(ledger, planning.plan_epochs(ledger, [2]))
        return next(each.stored_rows for each in plan.decisions if isinstance(each, MotifsChoice))

    before = stored()
    assert altneu("rollback", "1").code == 0
    assert 0 < stored() < before == 6


@pytest.mark.slow
def test_a_fault_in_a_run_stops_it(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = ServingTablesWorld(tmp_path / "home", "")
    world.publish({1: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0), (1, 3, None, "upsert", 0)]})
    right = serving_tables._rows_after_run

    def wrong(run: Any, table: str, touched: Any = None) -> Any:
        rows = right(run, table, touched)
        return rows.where("vertex <> 1") if table == "vertex_history" else rows

    monkeypatch.setattr(serving_tables, "_rows_after_run", wrong)
    home_helpers.put(world.home, 2, [(1, 4, None, "upsert", 0)])
    with pytest.raises(CheckFailed, match="vertex_history says"):
        home_helpers.run(world.ledger, [2])
    assert world.ledger.revisions.get().revision == 1
    world.assert_right()
    monkeypatch.undo()
    world.publish({2: [(1, 4, None, "upsert", 0)]})
    world.assert_right()


@pytest.mark.slow
def test_held_and_discarded(altneu: Altneu, unaudited: None, tmp_path: Path) -> None:
    world = ServingTablesWorld(tmp_path / "home", "")
    world.publish({1: [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)]})
    for command in ("discard", "publish"):
        home_helpers.put(world.home, 2, rows := [(1, 3, None, "upsert", 0)])
        home_helpers.hold(world.ledger, [2])
        world.assert_right()  # nobody sees it
        assert altneu(command).code == 0
    world.history[2] = rows
    world.assert_right()


@pytest.mark.slow  # tests/e2e/test_move moves homes, and the one of a whole life has them in a renamed one
def test_moved(altneu: Altneu, unaudited: None, tmp_path: Path) -> None:
    """`altneu move` takes them along, and the revisions that can be read by their tags; the new home keeps them up."""
    rng = random.Random(seeds.one())
    world = ServingTablesWorld(tmp_path / "home", '[values]\nw = "long"\n[edges]\nlive_for = 3\n', 3)
    for epochs in ([1, 3], [2]):
        world.publish({epoch: draw_batch(rng, values=True) for epoch in epochs})
    history = dict(world.history)
    world.publish({2: draw_batch(rng, values=True), 4: [(1, 2, 0, "upsert", 0)]})
    new = tmp_path / "new"
    assert altneu("move", str(new)).code == 0
    world.home.path.rename(tmp_path / "gone")  # nothing leads back
    world.reopen(new)
    world.assert_right()
    world.assert_right("r2", history)
    world.publish({3: draw_batch(rng, values=True), 5: draw_batch(rng, values=True)})
    world.assert_right()


WRONG = {
    '[publish]\ntables = ["vertex_daily"]\n': 'a list of "vertex_history", "edge_now", "epoch_totals"',
    '[publish]\ntables = "edge_now"\n': 'a list of "vertex_history", "edge_now", "epoch_totals"',
    '[values]\nTrussness = "long"\n[publish]\ntables = ["edge_now"]\n': "rename the one in [values]",
}


@pytest.mark.parametrize("toml", WRONG)
def test_wrong_settings(tmp_path: Path, toml: str) -> None:
    (tmp_path / "altneu.toml").write_text(toml)
    with pytest.raises(UsageError, match=re.escape(WRONG[toml])):
        Home.open(tmp_path)
