"""Laws 2, 3 and 4 where the graph is too large for one task: a tiny limit makes the truss stage work in rounds; and
nothing that grows with the graph is brought into one partition then."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.run import planning, runner
from pipeline.run.context import Run
from pipeline.state.facts import TrussFacts
from tests.laws.test_history import World
from tests.plans.executed import executed, partitions, single_partitions


def test_beyond_the_limit_the_truss_stage_works_in_rounds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published from one task; then the limit is lowered, and an epoch is late: those after it are replayed. The home
    says that it holds three million rows: they fill six partitions."""
    world = World(spark, tmp_path / "home", live_for=2)
    world.deliver(0, 2)
    assert world.ledger.facts(world.ledger.at().run_id, TrussFacts).rounds is None
    world.retention = "[truss]\nlimit_edges = 3\n"
    world.configure(world.live_for)
    world.land(1)
    said: list[str] = []
    plan = planning.plan_epochs(world.home, world.ledger, [1])
    monkeypatch.setattr(Run, "stored", lambda run: 3_000_000)
    with executed(spark) as plans:
        runner.run(world.home, world.ledger, plan, lambda stage, text: said.append(f"{stage}: {text}"))
    cut = [number for text in plans for number in partitions(text)]
    assert len(cut) > 20 and set(cut) == {6}
    assert [line for text in plans for line in single_partitions(text)] == []
    world.published()
    world.check(1, 2)
    facts = world.ledger.facts(world.ledger.at().run_id, TrussFacts)
    assert facts.methods == {"rounds": facts.epochs} and facts.looked_at
    assert sum(line.startswith("truss: epoch ") and ": round " in line for line in said) == facts.rounds
    assert any(line.startswith("truss: epoch 1: (1 of 2) ") for line in said)


def test_a_table_in_one_partition_shows(spark: SparkSession) -> None:
    """A test of the test above."""
    with executed(spark) as plans:
        spark.range(9).repartition(1).collect()
        spark.range(9).groupBy().count().collect()
    assert [len(single_partitions(text)) for text in plans] == [1, 0]
