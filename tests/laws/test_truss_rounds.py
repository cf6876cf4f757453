"""Laws 2, 3 and 4 where the graph is too large for one task: a tiny limit makes the truss stage work in rounds."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.run import planning, runner
from pipeline.state.facts import TrussFacts
from tests.laws.test_history import World


def test_beyond_the_limit_the_truss_stage_works_in_rounds(spark: SparkSession, tmp_path: Path) -> None:
    """Published from one task; then the limit is lowered, and an epoch is late: those after it are replayed."""
    world = World(spark, tmp_path / "home", live_for=2)
    world.deliver(0, 2)
    assert world.ledger.facts(world.ledger.at().run_id, TrussFacts).rounds is None
    world.retention = "[truss]\nlimit_edges = 3\n"
    world.configure(world.live_for)
    world.land(1)
    said: list[str] = []
    plan = planning.plan_epochs(world.home, world.ledger, [1])
    runner.run(world.home, world.ledger, plan, lambda stage, text: said.append(f"{stage}: {text}"))
    world.published()
    world.check(1, 2)
    facts = world.ledger.facts(world.ledger.at().run_id, TrussFacts)
    assert facts.methods == {"rounds": facts.epochs} and facts.looked_at
    assert sum(line.startswith("truss: epoch ") and ": round " in line for line in said) == facts.rounds
    assert any(line.startswith("truss: epoch 1: (1 of 2) ") for line in said)
