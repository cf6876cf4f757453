"""A backfill backwards with eight active runs, in a real Airflow: one pass, although the task of the run that leads it
is killed and one epoch is broken. What is published equals one pass without that epoch, and the recomputation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.postgres import DATABASE_KINDS, database

from .real import Airflow, backfill
from .test_real import DAYS, PATIENCE, college, equal_to_one_pass

pytestmark = pytest.mark.backend("airflow")
DAG = "altneu_epoch"


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_a_backfill_is_one_pass_without_the_broken_epoch(
    spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    toml, environment = "", {}
    if kind == "postgresql":  # the databases of both
        server = request.getfixturevalue("postgres_server")
        toml = f'[storage]\ndatabase = "{database(server)}"\n'
        environment = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database(server)}
    home, ledger, epochs = college(tmp_path / "home", DAYS or 12, toml)
    bad = epochs[len(epochs) // 2]
    poisoned = home.landing / f"epoch={home.schedule.format_label(bad)}" / "more.csv.gz"
    poisoned.write_bytes(b"no gzip at all")
    with Airflow(home, "--connect", environment=environment) as airflow:
        backfill(airflow, home, epochs, 8)
        # the task of the run that leads is killed in the middle
        airflow.until(
            lambda: any(run.epochs and len(run.epochs) > 1 for run in ledger.runs.list_all()), PATIENCE, "a pass"
        )
        for process in airflow.until(airflow.tasks_at_work, PATIENCE, "a task at work"):
            process.kill()

        def ended() -> list[dict[str, Any]] | None:
            runs = airflow.runs(DAG)
            over = len(runs) >= len(epochs) and {run["state"] for run in runs} <= {"success", "failed"}
            return runs if over else None

        runs = airflow.until(ended, PATIENCE * 4, "the backfill has ended")
        state = {run["logical_date"][:10]: (run["dag_run_id"], run["state"]) for run in runs}
        failed = {date for date, (_, how) in state.items() if how == "failed"}
        assert failed == {home.schedule.format_label(bad)}
        assert sorted(ledger.outputs.published_batches()) == [epoch for epoch in epochs if epoch != bad]
        assert ledger.revisions.get().revision <= 3
        by = {row.revision: row.run_id for row in ledger.revisions.list_all()}
        for epoch in (epochs[0], epochs[-1]):  # one of them has led, or both have not
            run, _ = state[home.schedule.format_label(epoch)]
            tasks = airflow.tasks(DAG, run)
            if tasks["publish"]["state"] == "skipped":
                last = "landed" if tasks["plan"]["state"] == "skipped" else "plan"
                place = f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/{last}/logs/{tasks[last]['try_number']}"
                revision = ledger.outputs.published_batches()[epoch].revision
                said = str(airflow.call(place))
                assert f"published as landed, by run {by[revision]} as revision {revision}" in said, said[-3000:]
        run, _ = state[home.schedule.format_label(bad)]
        assert airflow.tasks(DAG, run)["ingest"]["state"] == "failed"

        poisoned.unlink()
        revision = ledger.revisions.get().revision
        equal_to_one_pass(spark, ledger, tmp_path / "once", [epoch for epoch in epochs if epoch != bad])
        airflow.call(f"/api/v2/dags/{DAG}/dagRuns/{run}/clear", {"dry_run": False})
        airflow.until(lambda: bad in ledger.outputs.published_batches(), PATIENCE, "the corrected epoch")
        assert ledger.revisions.get().revision == revision + 1
    equal_to_one_pass(spark, ledger, tmp_path / "all", epochs)
