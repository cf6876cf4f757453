"""Laws 2, 3 and 4 where the graph is too large for one task: a tiny limit makes the truss stage work in parts; and
nothing that grows with the graph is brought into one partition then."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.home import memory_budget
from altneu.pipeline.run import planning, runner
from altneu.pipeline.run.run_context import RunContext
from altneu.pipeline.state import home_identity
from altneu.pipeline.state.records import RunState
from altneu.pipeline.state.stage_results import TrussFacts
from altneu.pipeline.storage import bsp_round_tables, relocate
from altneu.pipeline.storage.table_schemas import CERTIFICATES
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.laws.world import LawWorld
from tests.plans.executed import broadcast_packs, coalesced_tables, executed, partitions, single_partitions


@pytest.mark.dear("rounds over partitions are many jobs")
@pytest.mark.law(2, 3, 4)
def test_beyond_the_limit_the_truss_stage_works_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published from one task; then the limit is lowered, and an epoch is late: those after it are replayed. The home
    says that it holds three million rows: they fill six partitions."""
    world = LawWorld(spark, tmp_path / "home", live_for=2)
    world.publish_epochs(0, 2)
    assert world.ledger.stages.get_facts(world.ledger.revisions.get().run_id, TrussFacts).rounds is None
    world.settings = "[truss]\nlimit_edges = 6\n"
    monkeypatch.setattr(memory_budget, "max_cell_edges", lambda config: 6)
    world.write_settings(world.live_for)
    shutil.rmtree(world.home.path / "warm")  # of few edges a run would go on from there
    world.land_batches(1)
    said: list[str] = []
    plan = planning.plan_epochs(world.ledger, [1])
    for count in ("count_read_rows", "count_stored_rows"):
        monkeypatch.setattr(RunContext, count, lambda run: 3_000_000)
    with executed(spark) as plans:
        runner.execute_run(world.ledger, plan, lambda stage, text: said.append(f"{stage}: {text}"))
    cut = [number for text in plans for number in partitions(text)]
    held = min(int(found[1]) for line in said if (found := re.search(r"(\d+) parts hold", line)))
    assert cut.count(6) > 20 and len(set(cut)) <= 3, "by size, and as many as there are parts, twice"
    assert min(cut) >= min(6, held), "not fewer than there are parts"
    assert [line for text in plans for line in single_partitions(text)] == []
    assert [line for text in plans for line in coalesced_tables(text)] == []
    assert [line for text in plans for line in broadcast_packs(text)] == []
    world.record_revision()
    world.assert_same_as_reference(1, 2)
    facts = world.ledger.stages.get_facts(world.ledger.revisions.get().run_id, TrussFacts)
    told = [line for line in said if line.startswith("truss: epoch ") and ": round " in line]
    looked = [int(re.search(r"looked at ([\d,]+) edges", line)[1].replace(",", "")) for line in told]
    assert facts.methods == {"parts": facts.epochs}
    assert (len(told), sum(looked)) == (facts.rounds, facts.looked_at)
    assert any(line.startswith("truss: epoch 1: (1 of 2) ") for line in said)
    assert Warehouse(spark, world.home).round_table_names() == {CERTIFICATES}, "what the rounds kept is gone"


def test_what_a_killed_run_has_kept_is_swept(tiny: SparkSession, tmp_path: Path) -> None:
    """A run that is at work keeps its rounds; of one that is over, or that nobody works on, they go."""
    home, ledger = home_helpers.make(tmp_path / "home")
    warehouse = Warehouse(tiny, home)
    warehouse.ensure_tables()
    for run_id in ("alive", "failed", "mine"):
        ledger.runs.create(run_id, 0, epochs=[1], config={})
        ledger.runs.acquire_lease(run_id)
        kept = bsp_round_tables.RoundTables(warehouse, run_id).persist_rows(
            tiny.range(3).selectExpr("id AS a", "1 AS part")
        )
        assert [tuple(row) for row in kept.orderBy("a").collect()] == [(0, 1), (1, 1), (2, 1)]
    ledger.runs.finish("failed", RunState.FAILED)
    assert warehouse.round_table_names() == {"rounds_alive_1", "rounds_failed_1", "rounds_mine_1"}
    assert not {
        name for name in relocate.table_locations(home, home_identity.require_identity(home)) if "rounds" in name
    }
    assert Warehouse(tiny, home).snapshot_size("edges", warehouse.load_metadata("edges").first_snapshot()).rows == 0
    with pytest.raises(KeyboardInterrupt), bsp_round_tables.round_tables(warehouse, ledger, "mine") as mine:
        assert warehouse.round_table_names() == {"rounds_alive_1"}
        first, second = (mine.persist_rows(tiny.range(n)) for n in (1, 2))
        mine.drop_rows(first)
        assert second.count() == 2 and warehouse.round_table_names() == {"rounds_alive_1", "rounds_mine_2"}
        both, known = second, list[int]()
        for n in range(12):  # rows that come behind others are in their table; more commits than its log has room for
            both, known = mine.persist_rows(tiny.range(n, n + 1), both), [*known, n]
            assert sorted(row.id for row in both.collect()) == sorted([0, 1, *known])
        folder = home.path / "warehouse" / "graph" / "rounds_mine_2"
        assert warehouse.round_table_names() == {"rounds_alive_1", "rounds_mine_2"}
        assert len(list(folder.rglob("*.metadata.json"))) == 1 + 13, "what a drop looks for is there"
        mine.drop_rows(second)
        assert warehouse.round_table_names() == {"rounds_alive_1", "rounds_mine_2"}, "they are in another frame now"
        mine.drop_rows(both)
        assert warehouse.round_table_names() == {"rounds_alive_1"} and not [
            path for path in folder.rglob("*") if path.is_file()
        ]
        mine.persist_rows(tiny.range(1))
        raise KeyboardInterrupt
    assert warehouse.round_table_names() == {"rounds_alive_1"}
    with bsp_round_tables.round_tables(
        warehouse, ledger, "mine"
    ) as mine:  # of packs a page holds one: a heap has room for few
        mine.persist_rows(tiny.range(3))
        mine.persist_rows(tiny.range(3).selectExpr("CAST('x' AS binary) AS rows"))
        limits = [
            warehouse.load_metadata(f"rounds_mine_{n}").properties().get("write.parquet.page-row-limit") for n in (1, 2)
        ]
        assert limits == [None, "1"]
    ledger.runs.release_lease("alive")
    ledger.runs.finish("alive", RunState.INTERRUPTED)
    assert bsp_round_tables.drop_abandoned_rounds(warehouse, ledger) == 1 and not warehouse.round_table_names()


def test_a_table_in_one_partition_shows(spark: SparkSession, tmp_path: Path) -> None:
    """A test of the first one of this file."""
    home, _ = home_helpers.make(tmp_path / "home")
    warehouse = Warehouse(spark, home)
    warehouse.ensure_tables()
    table = warehouse.table_name("edges")
    with executed(spark) as plans:
        spark.range(9).repartition(1).collect()
        spark.range(9).groupBy().count().collect()
        spark.table(table).where("a > 0").coalesce(1).collect()
        spark.table(table).groupBy("a").count().coalesce(1).collect()
    assert [len(single_partitions(text)) for text in plans[-4:]] == [1, 0, 0, 0]
    assert [len(coalesced_tables(text)) for text in plans[-4:]] == [0, 0, 1, 0]
