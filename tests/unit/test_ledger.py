"""The ledger: compare-and-swap, and what is not in it does not exist for a reader."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from altneu.pipeline.errors import AltneuError, RevisionConflict
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import EMPTY, StagedBatch
from altneu.pipeline.state.totals import sum_totals
from tests import home_helpers


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return home_helpers.open_database(f"sqlite:///{tmp_path / 'l.db'}")


def begin(ledger: Ledger, run_id: str, parent: int = 0) -> None:
    ledger.runs.create(run_id, parent, epochs=[1], config={})
    ledger.outputs.put_totals(run_id, ["edges"], [("edges", 0, 1, 5)])
    ledger.outputs.put_batches(run_id, [StagedBatch(1, run_id, 1, 5, 0)])


@pytest.mark.law(7)
def test_nothing_exists_before_its_row(ledger: Ledger) -> None:
    assert ledger.revisions.get() == EMPTY
    begin(ledger, "a")
    assert (ledger.revisions.get(), ledger.outputs.published_batches(), ledger.outputs.total_diffs()) == (EMPTY, {}, [])
    row = ledger.publish_revision("a", 0, frontier=1, snapshots={"edges": 2**62 + 1}, digest="d", mark=None)
    assert (row.revision, row.snapshots) == (1, {"edges": 2**62 + 1})
    assert ledger.outputs.total_diffs() == [("edges", 0, 1, 1, 5)]
    assert ledger.outputs.published_batches()[1].digest == "a"
    assert (
        ledger.publish_revision("a", 0, frontier=1, snapshots={"edges": 2**62 + 1}, digest="d", mark=None) == row
    )  # a lost answer, asked again
    with pytest.raises(AltneuError, match="revision 7 was not published; the newest is 1"):
        ledger.revisions.get(7)


@pytest.mark.law(7)
def test_of_many_writers_one_wins(ledger: Ledger) -> None:
    """Eight at once on one parent: one row, seven conflicts that name the winner."""
    names = [f"w{i}" for i in range(8)]
    for name in names:
        begin(ledger, name)
    barrier, outcomes = threading.Barrier(8), {}

    def write(name: str) -> None:
        barrier.wait()
        try:
            outcomes[name] = ledger.publish_revision(name, 0, frontier=1, snapshots={}, digest="d", mark=None)
        except RevisionConflict as error:
            outcomes[name] = error

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [name for name, outcome in outcomes.items() if not isinstance(outcome, RevisionConflict)]
    assert len(won) == 1
    assert all(won[0] in outcome.what for outcome in outcomes.values() if isinstance(outcome, RevisionConflict))
    assert [row.run_id for row in ledger.revisions.list_all()] == won
    assert len(ledger.outputs.total_diffs()) == 1


def test_a_stage_tried_again_replaces_what_it_wrote(ledger: Ledger) -> None:
    begin(ledger, "a")
    ledger.outputs.put_totals("a", ["edges"], [("edges", 0, 1, 7), ("edges", 0, 2, 0)])
    ledger.outputs.put_totals("a", ["triangles"], [("triangles", 0, 1, 1)])
    ledger.publish_revision("a", 0, frontier=1, snapshots={}, digest="d", mark=None)
    assert sorted(ledger.outputs.total_diffs()) == [("edges", 0, 1, 1, 7), ("triangles", 0, 1, 1, 1)]


def test_totals_accumulate_over_epochs_and_revisions() -> None:
    diffs = [
        ("edges", 0, 1, 1, 3),
        ("truss", 3, 1, 1, 3),
        ("edges", 0, 4, 1, -3),
        ("truss", 3, 4, 1, -3),
        ("edges", 0, 2, 2, 1),
        ("truss", 2, 2, 2, 1),
    ]
    points = sum_totals(diffs, 9)
    assert {epoch: (p["edges"], p["max_trussness"], p["revision"]) for epoch, p in points.items()} == {
        1: (3, 3, 1),
        2: (4, 3, 2),
        4: (1, 2, 2),
    }
    assert points[2]["trusses"] == {2: 1, 3: 3}


def test_an_unreachable_database_says_so(tmp_path: Path) -> None:
    with pytest.raises(AltneuError, match="does not answer") as caught:
        home_helpers.open_database("postgresql+psycopg://me:secret@127.0.0.1:9/none")
    assert "secret" not in caught.value.what
