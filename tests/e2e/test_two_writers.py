"""Two runs on one parent, on SQLite and on PostgreSQL: one wins, the other says so, nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.checking import audit
from altneu.pipeline.errors import RevisionConflict
from altneu.pipeline.reading import views
from altneu.pipeline.reading.graph import Graph
from altneu.pipeline.run import planning, runner
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.ledger_only import LedgerOnly
from tests.postgres import DATABASE_KINDS
from tests.reference import Row


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_many_at_once_find_the_same(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Processes that start together on a new home make its tables together, and remember the same files' digests."""
    uri = f"sqlite:///{tmp_path / 'altneu.db'}" if kind == "sqlite" else request.getfixturevalue("postgres")
    together = threading.Barrier(8, timeout=20)

    def work(number: int) -> None:
        together.wait()
        ledger = home_helpers.open_database(uri)
        for turn in range(10):
            together.wait()
            paths = [f"{turn}-{i}" for i in range(50)]
            ledger.digests.put({path: ("stamp", "digest") for path in (paths if number % 2 else reversed(paths))})
        ledger.digests.put({"0-0": ("another stamp", "another digest")})
        ledger.database.engine.dispose()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result()
    ledger = home_helpers.open_database(uri)
    known = ledger.digests.read()
    assert len(known) == 500 and known["0-0"] == ("another stamp", "another digest")
    ledger.database.engine.dispose()


K4: list[Row] = [(a, b, None, "upsert", 0) for a in range(4) for b in range(a + 1, 4)]
MORE: list[Row] = [(0, 9, None, "upsert", 0), (1, 9, None, "upsert", 0)]
LESS: list[Row] = [(0, 1, None, "delete", 0)]
BEFORE_PUBLISH = ("ingest", "edges", "edges", "triangles", "truss", "audit")  # a stage tried again changes nothing


def interleave(ledger: Ledger, one: int, two: int) -> None:
    """Both epochs go through their stages on the same revision, interleaved; then the first is published."""
    before = views.select_totals(ledger, all_epochs=True)
    begun = (runner.begin_run(ledger, planning.plan_epochs(ledger, [epoch])) for epoch in (one, two))
    ids = [run_id for run_id in begun if run_id is not None]
    for stage in BEFORE_PUBLISH:
        for run_id in ids:
            runner.execute_stage(ledger, run_id, stage)
    assert views.select_totals(ledger, all_epochs=True) == before, "nothing is visible yet"
    parent = ledger.revisions.get().revision
    runner.execute_stage(ledger, ids[0], "publish")
    with pytest.raises(RevisionConflict, match=f"revision {parent + 1} was published|revision {parent}, but run"):
        runner.execute_stage(ledger, ids[1], "publish")


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_one_wins_and_the_other_runs_again(
    ledger_only: LedgerOnly, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    toml = ""
    if kind == "postgresql":
        toml = f'[storage]\ndatabase = "{request.getfixturevalue("postgres")}"\n'
    home, ledger = home_helpers.make(tmp_path / "home", toml)
    for epoch, rows in enumerate((K4, MORE, LESS)):
        home_helpers.put(home, epoch, rows)
    home_helpers.run(ledger, [0])
    interleave(ledger, 1, 2)
    assert [row["edges"] for row in views.select_totals(ledger, all_epochs=True)] == [6, 8]
    home_helpers.run(ledger, [2])
    found = [
        (row["edges"], row["triangles"], row["max_trussness"]) for row in views.select_totals(ledger, all_epochs=True)
    ]
    assert found == [(6, 4, 4), (8, 5, 4), (7, 2, 3)]
    # the published past is still what it was: a reader of revision 1 sees revision 1
    assert Graph(home.path).arrow.edges(revision=1).num_rows == 6


@pytest.mark.slow  # without Spark two runs are at once in the default tier, in tests/protocol in every order
@pytest.mark.usefixtures("tiny", "unaudited")
def test_of_two_real_runs_one_wins(spark: SparkSession, tmp_path: Path) -> None:
    """On real tables, and what the other has written there is not seen."""
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 0, K4)
    home_helpers.put(home, 1, MORE)
    interleave(ledger, 0, 1)
    assert [row["edges"] for row in views.select_totals(ledger, all_epochs=True)] == [6]
    row, warehouse = ledger.revisions.get(), Warehouse(spark, home)
    results = audit.audit_published(warehouse, row, [0], lambda text: None)
    assert [result["name"] for result in results if not result["passed"]] == []
    assert warehouse.read_table("edges", row).count() == 6


def test_a_run_answers_with_the_revision_that_it_has_published(
    ledger_only: LedgerOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run publishes while the first one writes its pages."""
    home, ledger = home_helpers.make(tmp_path / "home")
    for epoch in (1, 2):
        home_helpers.put(home, epoch, [(epoch, 5, None, "upsert", 0)])
    drive = runner.RunDriver.drive

    def overtaken_after_publish(driver: runner.RunDriver, run_id: str) -> tuple[str, str | None]:
        outcome = drive(driver, run_id)
        monkeypatch.setattr(runner.RunDriver, "drive", drive)
        home_helpers.run(ledger, [2])
        return outcome

    plan = planning.plan_epochs(ledger, [1])
    monkeypatch.setattr(runner.RunDriver, "drive", overtaken_after_publish)
    revision = runner.execute_run(ledger, plan)
    assert revision is not None and [*ledger.runs.get(revision.run_id).epochs] == [1]
    assert ledger.revisions.get().revision == 2
