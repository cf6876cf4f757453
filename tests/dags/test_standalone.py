"""`altneu airflow`: its settings, and (slow) a real one that starts, has the DAGs, the pool and the page, and stops
whole."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import airflow as local
from pipeline.errors import UsageError
from tests import homes

from .conftest import REPO

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
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = f"standalone(Path({str(home.path)!r}), port={port})"
    code = f"from pathlib import Path; from pipeline.airflow import standalone; {start}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "ALTNEU"))}
    environment = clean | {"PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = ""
    try:
        for line in process.stdout:
            told += line
            if "Ctrl-C" in line:
                break
        password = re.search(r"password (\S+)", told)
        assert password, told
        address = f"http://localhost:{port}"
        token = _call(f"{address}/auth/token", {"username": "admin", "password": password[1]})["access_token"]
        names = {dag["dag_id"] for dag in _call(f"{address}/api/v2/dags", token=token)["dags"]}
        assert {"altneu_epoch", "altneu_backfill"} <= names
        assert "altneu_publish" in {pool["name"] for pool in _call(f"{address}/api/v2/pools", token=token)["pools"]}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/altneu/")
        request = urllib.request.Request(f"{address}/altneu/", headers={"Authorization": f"Bearer {token}"})
        assert b"2004-04-15" in urllib.request.urlopen(request).read()
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate()
    assert process.returncode == 0
    assert "Airflow has stopped" in rest
    everything = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(port) not in everything


def _call(address: str, body: dict[str, str] | None = None, token: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    return json.load(urllib.request.urlopen(urllib.request.Request(address, data, headers)))
