"""The stages as `spark-submit`: what is handed over, a real day, and the words of one that fails."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline import orchestration, views
from pipeline.config import Home
from pipeline.errors import CheckFailed, RunFailed
from pipeline.ledger import Ledger
from pipeline.standing import standings
from tests import homes

Load = Callable[..., dict[str, Any]]
DAY = datetime(2004, 4, 15, tzinfo=UTC)
SUBMITTED = ["ingest", "edges", "triangles", "truss", "validate", "publish"]


@pytest.fixture
def day(tmp_path: Path) -> tuple[Home, Ledger, int]:
    home, ledger = homes.make(
        tmp_path / "home", '[epochs]\nevery = "1d"\n[spark]\nconf = {"spark.driver.memory" = "1g"}\n'
    )
    first = home.schedule.epoch_of(DAY)
    homes.put(home, first, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0), (1, 3, None, "upsert", 0)])
    return home, ledger, first


def test_each_stage_is_a_submission_with_its_settings(load: Load, tmp_path: Path) -> None:
    homes.make(tmp_path, '[epochs]\nevery = "1d"\n')
    plain, dags = load(tmp_path), load(tmp_path, ALTNEU_SUBMIT="cluster")
    for name in ("altneu_epoch", "altneu_backfill"):
        for task in SUBMITTED:
            found = dags[name].get_task(task)
            assert type(found).__name__ == "SubmittedStage" and found._conn_id == "cluster"
            was = plain[name].get_task(task)
            assert (found.pool, found.execution_timeout, found.doc_md) == (was.pool, was.execution_timeout, was.doc_md)
            assert [asset.name for asset in found.outlets] == [asset.name for asset in was.outlets]
            assert found.upstream_task_ids | {"plan"} == was.upstream_task_ids


def test_the_words_of_a_failure_come_from_the_database(day: tuple[Home, Ledger, int]) -> None:
    home, ledger, first = day
    path = str(home.path)
    run = orchestration.plan(path, [first])
    planned = json.dumps(run)
    assert run is not None
    assert orchestration.why(path, planned) is None  # it left no word
    ledger.finish(run["run_id"], "failed", "ingest: rows.csv is truncated.")
    error = orchestration.why(path, planned)
    assert isinstance(error, RunFailed) and "rows.csv is truncated" in error.what
    check = {
        "epoch": first,
        "suite": "edges",
        "name": "edges are unique",
        "severity": "critical",
        "passed": False,
        "meaning": "",
        "remedy": "",
        "observed": "1 row",
        "rows": [{"a": 1, "b": 2}],
    }
    ledger.put_checks(run["run_id"], 1, [check])
    error = orchestration.why(path, planned)
    assert isinstance(error, CheckFailed) and not orchestration.retry_helps(error)
    assert "2004-04-15: edges are unique: 1 row" in error.what and error.next == "altneu report 2004-04-15"


@pytest.mark.slow
def test_a_real_day(
    spark: SparkSession,
    airflow: None,
    load: Load,
    day: tuple[Home, Ledger, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, ledger, first = day
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for name in [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]:
        monkeypatch.delenv(name)
    run = load(home.path, ALTNEU_SUBMIT="cluster")["altneu_epoch"].test(logical_date=DAY)
    assert {ti.task_id: str(ti.state) for ti in run.get_task_instances()}.items() >= dict.fromkeys(
        SUBMITTED, "success"
    ).items()
    assert [row["triangles"] for row in views.totals(home, ledger, all_epochs=True)] == [1]
    audit = standings(ledger, ledger.at()).at(first).audit
    assert audit and (audit.says, audit.revision) == ("equal", 1)
