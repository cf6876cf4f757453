"""What a run asks the database of the past: sums up to its first epoch, which say what all rows say."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.reading.epoch_totals import total_rows
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import StagedBatch
from altneu.pipeline.state.totals import sum_totals, totals_at
from tests import home_helpers, seeds

EPOCHS = range(12)
MEASURES = [("edges", 0), ("vertices", 0), ("triangles", 0), ("truss", 3), ("truss", 4)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Eight revisions of a few epochs each, in any order, some of which take back what others have said."""
    ledger, rng = home_helpers.open_database(f"sqlite:///{tmp_path}/db", writes=True), random.Random(seeds.one())
    for revision in range(8):
        run_id, epochs = f"r{revision}", rng.sample(EPOCHS, 3)
        ledger.runs.create(run_id, revision, epochs=epochs, config={})
        ledger.outputs.put_batches(run_id, [StagedBatch(epoch, "digest", 1, rng.randrange(9), 0) for epoch in epochs])
        rows = [(*key, epoch, rng.choice([-2, -1, 1, 2, 3])) for key in MEASURES for epoch in epochs]
        ledger.outputs.put_totals(run_id, [measure for measure, _ in MEASURES], rows)
        ledger.publish_revision(run_id, revision, frontier=11, snapshots={}, digest="digest", mark=None)
    return ledger


@pytest.mark.parametrize("revision", [None, 8, 3])
def test_totals_from_an_epoch_on_are_those_of_all_rows(ledger: Ledger, revision: int | None) -> None:
    whole = sum_totals(ledger.outputs.total_diffs(revision))
    for first in [*EPOCHS, 20]:
        rows = ledger.outputs.total_diffs(revision, first)
        assert len({row[:2] for row in rows if row[2] < first}) == len([row for row in rows if row[2] < first])
        shown = range(first - 1, 25)
        assert totals_at(sum_totals(rows), shown) == totals_at(whole, shown), first
    assert ledger.outputs.list_measures(8 if revision is None else revision) == {measure for measure, _ in MEASURES}


def test_rows_of_totals_from_an_epoch_on_are_those_of_all(ledger: Ledger, tmp_path: Path) -> None:
    home = Home.open(tmp_path, create=True)
    landed, frontier = {2, 5, 9}, 14  # after the last epoch at which anything changes
    whole = total_rows(home, sum_totals(ledger.outputs.total_diffs(8), frontier), landed, frontier)
    assert [row[0] for row in whole] == [*range(2, 15)]
    for first in [*EPOCHS, 14, 15]:
        points = sum_totals(ledger.outputs.total_diffs(8, first), frontier)
        assert total_rows(home, points, landed, frontier, first) == [row for row in whole if row[0] >= first]


def test_the_edges_that_are_read_are_those_before_and_the_rows_landed_since(ledger: Ledger) -> None:
    diffs, batches = ledger.outputs.total_diffs(8), range(8)
    landed = {(run, batch.epoch): batch.rows for run in batches for batch in ledger.outputs.staged_batches(f"r{run}")}
    for first in EPOCHS:
        before = sum(diff for measure, _, epoch, _, diff in diffs if measure == "edges" and epoch < first)
        since = sum(rows for (_, epoch), rows in landed.items() if epoch >= first)
        assert ledger.outputs.estimate_edges_since(8, first, 10**6) == before + since
        assert ledger.outputs.estimate_edges_since(8, first, 1) == min(1, before + since)
