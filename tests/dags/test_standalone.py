"""`altneu airflow`: its settings, and (slow) a real one that starts, has the DAGs, the pool and the page, and stops
whole."""

from __future__ import annotations

import socket
import subprocess
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline import airflow as local
from pipeline.errors import UsageError
from tests import homes

from .real import Airflow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_landing_that_is_history_bounds_the_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = homes.make(tmp_path, '[epochs]\nevery = "1d"\n')
    for text in ("2004-04-15", "2004-04-20"):
        homes.put(home, home.schedule.epoch(text), [(1, 2, None, "upsert", 0)])
    found = local.settings(home, 8080, NOW)
    assert (found["ALTNEU_START"][:10], found["ALTNEU_END"][:10]) == ("2004-04-15", "2004-04-20")
    homes.put(home, home.schedule.epoch("2025-12-30"), [(1, 2, None, "upsert", 0)])
    assert "ALTNEU_START" not in local.settings(home, 8080, NOW)
    # what the environment says already stays
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://db/airflow")
    assert local.settings(home, 8080, NOW)["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == "postgresql://db/airflow"
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql+psycopg://db/airflow")
    found = local.settings(home, 8080, NOW)
    assert found["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] == "postgresql+psycopg://db/airflow"


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    home, _ = homes.make(tmp_path)
    homes.put(home, 1, [(1, 2, None, "upsert", 0)])
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UsageError, match="is taken"):
        local.standalone(home.path, port=server.getsockname()[1])


@pytest.mark.slow
def test_a_real_one_starts_and_stops_whole(tmp_path: Path) -> None:
    home, _ = homes.make(tmp_path, '[epochs]\nevery = "1d"\n')
    homes.put(home, home.schedule.epoch("2004-04-15"), [(1, 2, None, "upsert", 0)])
    with Airflow(home) as airflow:
        names = {dag["dag_id"] for dag in airflow.call("/api/v2/dags")["dags"]}
        assert {"altneu_epoch", "altneu_backfill"} <= names
        assert "altneu_stages" in {pool["name"] for pool in airflow.call("/api/v2/pools")["pools"]}
        address = f"http://localhost:{airflow.port}"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/altneu/")
        request = urllib.request.Request(f"{address}/altneu/", headers={"Authorization": f"Bearer {airflow.token}"})
        assert b"2004-04-15" in urllib.request.urlopen(request).read()
    assert airflow.process.returncode == 0
    assert "Airflow has stopped" in airflow.log
    everything = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(airflow.port) not in everything
