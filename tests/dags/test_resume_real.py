"""A real Airflow that submits to a real cluster: a task that is killed is tried again, and finds its driver."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from altneu.pipeline.state.ledger import Ledger
from tests import home_helpers
from tests.cluster import Cluster

from .real import Airflow


@pytest.mark.backend("airflow")
def test_a_task_that_is_killed_goes_on_with_its_driver(tmp_path: Path) -> None:
    """`kill -9` of the task while its driver works: one application for each stage, and nothing is left behind."""
    with Cluster(tmp_path, workers=1) as cluster:
        conf = ", ".join(f'"{name}" = "{value}"' for name, value in cluster.settings.items())
        home, _ = home_helpers.make(tmp_path / "home", f'[epochs]\nevery = "1d"\n[spark]\nconf = {{ {conf} }}\n')
        for day in ("2004-04-15", "2004-04-16"):
            rows = [(a, b, None, "upsert", 0) for a in range(6) for b in range(a)]
            home_helpers.put(home, home.schedule.parse_epoch(day), rows)
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": cluster.ports[0]}
        environment = {"ALTNEU_SUBMIT": "cluster", "AIRFLOW_CONN_CLUSTER": json.dumps(connection)}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with Airflow(home, environment=environment) as airflow:
            airflow.until(lambda: airflow.call("/api/v2/dags/altneu_backfill"), 120, "the DAG")
            airflow.unpause("altneu_backfill")
            body = {"logical_date": None, "conf": {}}
            run = airflow.call("/api/v2/dags/altneu_backfill/dagRuns", body)["dag_run_id"]
            _kill(airflow, home.path / "submitted")

            def ended() -> bool:
                return all(each["state"] == "success" for each in airflow.healthy("altneu_backfill"))

            airflow.until(ended, 1200, "the run")
            tries = {name: row["try_number"] for name, row in airflow.tasks("altneu_backfill", run).items()}
        assert [name for name, number in tries.items() if number > 1] == ["ingest"], tries
        names = [name for name in cluster.applications() if name.startswith("altneu")]
        assert len(names) == len(set(names)) == 6, names
        assert Ledger(home).revisions.get().frontier == home.schedule.parse_epoch("2004-04-16")
        assert list((home.path / "submitted").iterdir()) == []


def _kill(airflow: Airflow, submitted: Path) -> None:
    """Kill the task that has started the first driver, once that works."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        at_work = [each for each in psutil.process_iter(["cmdline"]) if str(submitted) in str(each.info["cmdline"])]
        parents = {each.ppid() for each in at_work}
        for task in airflow.tasks_at_work():
            if task.pid in parents:
                task.send_signal(signal.SIGKILL)
                return
        time.sleep(0.5)
    raise AssertionError("no driver was started")
