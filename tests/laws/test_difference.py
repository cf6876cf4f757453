"""Law 12 of `diff`: between any two states it is the difference of what a reader sees, recomputed, at every epoch.

In the ordinary suite the histories of `test_history` compare theirs, backwards, over a rollback and of a run at work
whose base a compaction has written again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.maintenance.compact import compact
from altneu.pipeline.run import approval, runner
from tests import home_helpers
from tests.laws.difference import assert_difference, side_of, side_of_base, side_of_run
from tests.laws.world import LawWorld


@pytest.mark.law(12)
@pytest.mark.slow
@pytest.mark.parametrize("live_for", [None, 2])
def test_the_difference_of_any_two_revisions(spark: SparkSession, tmp_path: Path, live_for: int | None) -> None:
    world = LawWorld(spark, tmp_path / "home", live_for=live_for, settings="[retention]\nrevisions = 4\n")
    world.publish_epochs(0, 2)
    world.publish_epochs(1, 4)
    world.land_batches(2, 5)
    run = home_helpers.hold(world.ledger, [2, 5])
    old = {revision: world.expected[revision][0] for revision in (1, 2)}
    assert_difference(world, side_of(world, 2), side_of_run(world, run), (old[2], world.landed))
    assert_difference(world, side_of(world, 1), side_of(world, 2), (old[1], old[2]))
    assert_difference(world, side_of(world, 0), side_of(world, 2), ({}, old[2]))
    assert_difference(world, side_of(world, 2), side_of(world, 1), (old[2], old[1]))  # backwards
    compact(world.ledger, spark, grace=0)
    # its base was written again meanwhile
    assert_difference(world, side_of_base(world, run), side_of_run(world, run), (old[2], world.landed))
    approval.approve_run(world.ledger, run, None, None)
    assert runner.publish_held_run(world.ledger, run.run_id).revision == 3
    world.record_revision()
    world.roll_back(2)
    world.publish_epochs(3)
    newest = world.landed
    assert_difference(world, side_of(world, 3), side_of(world, 5), (world.expected[3][0], newest))  # over a rollback
    assert_difference(world, side_of(world, 2), side_of(world, 5), (old[2], newest))
    world.rebuild(from_landing=False)
    assert_difference(world, side_of(world, 5), side_of(world, 6), (newest, newest))  # made again: the same
    assert_difference(world, side_of(world, 3), side_of(world, 6), (world.expected[3][0], newest))
