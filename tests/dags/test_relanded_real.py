"""A published epoch that lands again is run without a person, in a real Airflow: the watcher of the landing's asset in
the triggerer, its event, the DAG that the asset starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import home_helpers

from .real import Airflow
from .test_epoch import up
from .test_real import PATIENCE, equal_to_one_pass

pytestmark = pytest.mark.backend("airflow")
DAG = "altneu_relanded"


def test_what_lands_again_is_published_without_a_person(spark: SparkSession, tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    first = home.schedule.parse_epoch("2004-04-15")
    home_helpers.put(home, first, up((1, 2), (2, 3), (1, 3)))
    home_helpers.put(home, first + 1, up((3, 4), (2, 4)))
    home_helpers.run(ledger, [first, first + 1])
    home_helpers.put(home, first + 2, up((8, 9)))  # landed, never published: not what the watcher is for
    with Airflow(home, "--connect", environment={"ALTNEU_WATCH": "1"}) as airflow:
        airflow.until(lambda: airflow.call(f"/api/v2/dags/{DAG}"), 120, "the DAG")
        airflow.unpause(DAG)
        home_helpers.put(home, first, up((1, 2), (2, 3), (1, 4)))
        airflow.until(lambda: ledger.revisions.get().revision == 2, PATIENCE, "the correction is published")
        (run,) = airflow.until(
            lambda: [run for run in airflow.healthy(DAG) if run["state"] == "success"], PATIENCE, "the run has ended"
        )
        assert run["run_type"] == "asset_triggered"
        home_helpers.put(home, first + 1, up((3, 4)))  # the next one, by the same watcher
        airflow.until(lambda: ledger.revisions.get().revision == 3, PATIENCE, "the second correction is published")
        airflow.until(lambda: {run["state"] for run in airflow.healthy(DAG)} == {"success"}, PATIENCE, "it has ended")
        assert len(airflow.runs(DAG)) == 2
    assert sorted(ledger.outputs.published_batches()) == [first, first + 1]
    equal_to_one_pass(spark, ledger, tmp_path / "once", [first, first + 1])
