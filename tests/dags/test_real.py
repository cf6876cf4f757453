"""Months in a real Airflow: a schedule that catches up through the deaths of a scheduler and of a task, a day that
lands late, one that lands again, a backfill backwards with eight active runs. What is published at the end equals one
undisturbed pass, and the recomputation.

The tasks share one Spark (`altneu airflow --connect`). `ALTNEU_DAYS` shortens it: so many days instead of 30 and 60.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from altneu.pipeline.checking import audit
from altneu.pipeline.home.home import Home
from altneu.pipeline.local.demo import land_messages, with_daily_epochs
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers
from tests.e2e.test_crash import totals

from .real import Airflow, backfill

pytestmark = pytest.mark.backend("airflow")
DAYS = int(os.environ["ALTNEU_DAYS"]) if "ALTNEU_DAYS" in os.environ else None
PATIENCE = 300  # seconds for a run, on a busy machine


def college(path: Path, days: int, toml: str = "") -> tuple[Home, Ledger, list[int]]:
    """The first so many days of CollegeMsg on which anybody wrote, landed."""
    home = with_daily_epochs(home_helpers.make(path, toml)[0])
    epochs = land_messages(home).epochs
    for epoch in epochs[days:]:
        shutil.rmtree(home.landing / f"epoch={home.schedule.format_label(epoch)}")
    return home, Ledger(home), epochs[:days]


def equal_to_one_pass(spark: SparkSession, ledger: Ledger, folder: Path, epochs: list[int]) -> None:
    """The published totals and states equal those of one pass over the same landing, and the full recomputation."""
    home = ledger.home
    once = with_daily_epochs(home_helpers.make(folder)[0])
    once_ledger = Ledger(once)
    shutil.copytree(home.landing, once.landing, dirs_exist_ok=True)
    home_helpers.run(once_ledger, epochs)

    assert totals(ledger) == totals(once_ledger)
    results = audit.audit_published(Warehouse(spark, home), ledger.revisions.get(), epochs, lambda text: None)
    assert len({result["epoch"] for result in results}) == len(epochs)
    assert [result["name"] for result in results if not result["passed"]] == []


def test_a_month_is_caught_up_although_the_scheduler_dies(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger, epochs = college(tmp_path / "home", DAYS or 30)
    first, last = (home.schedule.start_of(epoch) for epoch in (epochs[0], epochs[-1]))
    late = home.landing / f"epoch={home.schedule.format_label(epochs[-1])}"
    late.rename(tmp_path / "late")
    bounds = {"ALTNEU_START": first.isoformat(), "ALTNEU_END": last.isoformat()}
    with Airflow(home, "--connect", environment=bounds) as airflow:
        airflow.unpause("altneu_epoch")

        def published(many: int) -> bool:
            airflow.healthy("altneu_epoch")
            return len(ledger.outputs.published_batches()) >= many

        airflow.until(lambda: published(len(epochs) // 2), PATIENCE * len(epochs), "half of the epochs published")
        for process in airflow.scheduler():
            process.kill()
        airflow.until(lambda: "starting it again" in airflow.log, PATIENCE, "the scheduler is started again")

        # a worker's task is killed in the middle: it is tried again
        for process in airflow.until(airflow.tasks_at_work, PATIENCE, "a task at work"):
            process.kill()
        airflow.until(lambda: published(len(epochs) - 1), PATIENCE * len(epochs), "all but the last published")

        # the last day has not landed: its run waits in the triggerer, and goes on once it has
        def waits() -> bool:
            newest = airflow.runs("altneu_epoch")[-1]
            tasks = airflow.tasks("altneu_epoch", newest["dag_run_id"])
            return newest["logical_date"][:10] == f"{last:%Y-%m-%d}" and tasks["landed"]["state"] == "deferred"

        airflow.until(waits, PATIENCE, "the last run is deferred")
        (tmp_path / "late").rename(late)
        airflow.until(lambda: published(len(epochs)), PATIENCE, "all epochs published")

        def settled() -> bool:
            return {run["state"] for run in airflow.healthy("altneu_epoch")} == {"success"}

        airflow.until(settled, PATIENCE, "all runs ended")
        equal_to_one_pass(spark, ledger, tmp_path / "once", epochs)

        # the landing of a published day changes, and its run is cleared: just the difference is published
        revision, changed = ledger.revisions.get().revision, epochs[len(epochs) // 3]
        start = home.schedule.start_of(changed)
        home_helpers.put(
            home, changed, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0), (1, 3, None, "upsert", 0)]
        )
        by_date = {run["logical_date"][:10]: run["dag_run_id"] for run in airflow.runs("altneu_epoch")}
        cleared = by_date[f"{start:%Y-%m-%d}"]
        airflow.call(f"/api/v2/dags/altneu_epoch/dagRuns/{cleared}/clear", {"dry_run": False})
        airflow.until(
            lambda: ledger.revisions.get().revision > revision and settled(), PATIENCE, "the cleared run published"
        )
        assert ledger.revisions.get().revision == revision + 1
        assert list(ledger.runs.get(ledger.revisions.get().run_id).epochs) == [changed]
        equal_to_one_pass(spark, ledger, tmp_path / "again", epochs)

        # cleared once more, nothing has changed: a success that publishes nothing
        airflow.call(f"/api/v2/dags/altneu_epoch/dagRuns/{cleared}/clear", {"dry_run": False})
        airflow.until(
            lambda: airflow.tasks("altneu_epoch", cleared)["ingest"]["state"] == "skipped", PATIENCE, "skipped"
        )
        assert ledger.revisions.get().revision == revision + 1


def test_a_run_that_waits_holds_up_no_other(tmp_path: Path) -> None:
    """Of three half days of a feed the middle one is late: the others are published meanwhile. One run computes after
    the other: none is overtaken."""
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "12h"\n')
    now = home.schedule.epoch_of(datetime.now(UTC))
    first, late, last = now - 3, now - 2, now - 1
    for epoch in (first, last):
        home_helpers.put(home, epoch, [(1, epoch, None, "upsert", 0)])
    bounds = {"ALTNEU_START": home.schedule.start_of(first).isoformat(), "ALTNEU_WAIT_HOURS": "48"}
    with Airflow(home, "--connect", environment=bounds) as airflow:
        airflow.unpause("altneu_epoch")

        def published(epochs: set[int]) -> bool:
            airflow.healthy("altneu_epoch")
            return set(ledger.outputs.published_batches()) == epochs

        airflow.until(lambda: published({first, last}), 3 * PATIENCE, "both that are landed are published")
        home_helpers.put(home, late, [(2, 3, None, "upsert", 0)])
        airflow.until(lambda: published({first, late, last}), 2 * PATIENCE, "the late one as well")
    assert {run.state for run in ledger.runs.list_all()} == {"published"}
    revisions = [list(ledger.runs.get(row.run_id).epochs) for row in ledger.revisions.list_all()]
    assert revisions in ([[first], [last], [late]], [[first, last], [late]])  # were both there when the first began?


def test_two_months_backwards_with_eight_active_runs_on_postgresql(
    spark: SparkSession, tmp_path: Path, postgres_server: str, postgres: str
) -> None:
    import sqlalchemy as sa

    home, ledger, epochs = college(tmp_path / "home", DAYS or 60, f'[storage]\ndatabase = "{postgres}"\n')
    engine = sa.create_engine(f"{postgres_server}/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE DATABASE airflow"))
    environment = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"{postgres_server}/airflow",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "ALTNEU_START": "",  # nothing on schedule: all of it by the backfill
    }
    with Airflow(home, "--connect", environment=environment) as airflow:
        backfill(airflow, home, epochs, 8)
        seen: set[int] = set()

        def done() -> bool:
            runs = airflow.healthy("altneu_epoch")
            seen.add(sum(run["state"] == "running" for run in runs))
            return len(runs) >= len(epochs) and {run["state"] for run in runs} == {"success"}

        airflow.until(done, PATIENCE * len(epochs), "the backfill has ended")
        assert max(seen) <= 8 and sorted(ledger.outputs.published_batches()) == epochs
        assert ledger.revisions.get().revision <= 3
    equal_to_one_pass(spark, ledger, tmp_path / "once", epochs)
