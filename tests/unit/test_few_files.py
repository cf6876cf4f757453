"""Files stay few by themselves: a home of many revisions has a bounded number of snapshots and few data files in a
table, and every revision can be read. Without Spark; `tests/plans/test_small_files.py` has the files themselves."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pytest

from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run.stages import publish as publish_stage
from altneu.pipeline.state import clock
from altneu.pipeline.storage import file_tiers
from altneu.pipeline.storage.table_schemas import TABLES
from tests import home_helpers
from tests.ledger_only import LedgerOnly

OWN = 2  # revisions that keep snapshots of their own
TIDIED_EVERY, MERGED_TIERS = 4, 3  # smaller than in practice, so that few revisions show it


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_stage, "TIDIED_EVERY", TIDIED_EVERY)
    monkeypatch.setattr(file_tiers, "MERGED_TIERS", MERGED_TIERS)


@pytest.mark.law(9, 12)
def test_revisions_that_are_two_hours_apart(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, hours = clock.read_clock(), [0]
    monkeypatch.setattr(clock, "read_clock", lambda: began + timedelta(hours=hours[0]))
    home, ledger = home_helpers.make(tmp_path / "home", f"[retention]\nrevisions = {OWN}\n")
    for epoch in range(1, 4 * TIDIED_EVERY + 1):
        hours[0] = 2 * epoch
        home_helpers.put(home, epoch, [(epoch, other, None, "upsert", 0) for other in (epoch + 1, epoch + 2)])
        home_helpers.run(ledger, [epoch])
    catalog, newest = ledger_only.catalog(home), ledger.revisions.get()
    few = MERGED_TIERS + 1 + math.log2(newest.revision)
    for table in TABLES:
        metadata = catalog.metadata[table]
        # the first one, the newest, those of its own, and those that nothing pins any more but have not gone yet
        assert len(metadata["snapshots"]) <= 2 + OWN + 2 * TIDIED_EVERY, table
        assert len(metadata["refs"]) <= 2 + OWN + 2 * TIDIED_EVERY, table
        assert catalog.files(table, newest.snapshots[table]) <= few, table
    assert catalog.files("edges", newest.snapshots["edges"]) > 1  # it did append
    tags = {name for name in catalog.metadata["edges"]["refs"] if name.startswith("r")}
    assert tags == {f"r{number}" for number in range(newest.revision - OWN + 1, newest.revision + 1)}
    pins = [ledger.revisions.get(number).snapshots for number in range(1, newest.revision + 1)]
    assert all(each == newest.snapshots for each in pins[:-OWN])
    graph = Graph(home.path)
    for revision in (1, newest.revision - OWN, newest.revision):
        edges = graph.arrow.edges(revision=revision).num_rows
        assert edges == 2 * revision, revision


@pytest.mark.law(9)
def test_what_is_from_before_a_rollback_keeps_its_snapshots(ledger_only: LedgerOnly, tmp_path: Path) -> None:
    from altneu.pipeline.maintenance import rollback

    home, ledger = home_helpers.make(tmp_path / "home", "[retention]\nrevisions = 1\n")

    def publish(epoch: int) -> None:
        home_helpers.put(home, epoch, [(epoch, epoch + 1, None, "upsert", 0)])
        home_helpers.run(ledger, [epoch])

    for epoch in range(1, 5):
        publish(epoch)
    rollback.roll_back(ledger, 2)
    before = {row.revision: row.snapshots for row in ledger.revisions.list_all()}
    for epoch in range(5, 8):
        publish(epoch)
    after = {row.revision: row.snapshots for row in ledger.revisions.list_all()}
    assert {number: after[number] for number in before if number < 5} == {
        number: before[number] for number in before if number < 5
    }
    assert after[5] == after[6] == after[7] == after[8] != before[5]
    graph = Graph(home.path)
    assert [graph.arrow.edges(revision=number).num_rows for number in range(1, 9)] == [1, 2, 3, 4, 2, 3, 4, 5]
