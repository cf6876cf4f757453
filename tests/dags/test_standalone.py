"""`altneu airflow`: its settings, and a real one that starts, has the DAGs, the pool and the page, and stops
whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from altneu.pipeline.errors import UsageError
from altneu.pipeline.home.home import Home
from altneu.pipeline.local import airflow as local
from tests import home_helpers

from .real import REPO, Airflow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_parts_share_the_secrets_by_which_they_know_each_other(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home", create=True)
    first, second = (local.airflow_environment(home, 8080, NOW) for _ in range(2))
    for name in ("AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__API__SECRET_KEY"):
        assert len(first[name]) >= 32 and first[name] != second[name]


def test_a_landing_that_is_history_bounds_the_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    for text in ("2004-04-15", "2004-04-20"):
        home_helpers.put(home, home.schedule.parse_epoch(text), [(1, 2, None, "upsert", 0)])
    found = local.airflow_environment(home, 8080, NOW)
    assert (found["ALTNEU_START"][:10], found["ALTNEU_END"][:10]) == ("2004-04-15", "2004-04-20")
    home_helpers.put(home, home.schedule.parse_epoch("2025-12-30"), [(1, 2, None, "upsert", 0)])
    assert "ALTNEU_START" not in local.airflow_environment(home, 8080, NOW)
    # what the environment says already stays
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://db/airflow")
    assert (
        local.airflow_environment(home, 8080, NOW)["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == "postgresql://db/airflow"
    )
    monkeypatch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "its own"))
    file = sa.make_url(local.airflow_environment(home, 8080, NOW)["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    assert (file.database, file.query["timeout"]) == (str(tmp_path / "its own" / "airflow.db"), "60")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql+psycopg://db/airflow")
    found = local.airflow_environment(home, 8080, NOW)
    assert found["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] == "postgresql+psycopg://db/airflow"


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path)
    home_helpers.put(home, 1, [(1, 2, None, "upsert", 0)])
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UsageError, match="is taken"):
        local.run_standalone(home.path, port=server.getsockname()[1])


def test_a_start_needs_no_end(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    lines: list[str] = []
    for bounds in ({"ALTNEU_START": "2004-04-15"}, {"ALTNEU_END": "2004-04-20"}, {}):
        local._print_addresses(home, bounds, tmp_path, 8080, lines.append)
    assert [line for line in lines if "switch on" in line] == [
        "switch on altneu_epoch to catch up from 2004-04-15 to now, one epoch per run;",
        *2 * ["switch on altneu_epoch for future epochs; for the landed ones, trigger altneu_backfill"],
    ]


STUBBORN = """
import os, signal, subprocess, sys, threading
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
print(os.getpid(), flush=True)
threading.Event().wait()
"""


def test_what_will_not_stop_is_killed_with_its_descendants() -> None:
    command = [sys.executable, "-c", STUBBORN, STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        found = [int(process.stdout.readline()) for _ in range(2)]
        assert process.pid in found and all(psutil.pid_exists(pid) for pid in found)
        local.stop_sessions([process.pid])
        process.wait(timeout=60)
    left = [pid for pid in found if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    assert left == []


PARTS = """
import sys
from pathlib import Path
from altneu.pipeline.local import airflow as local
local._prepare_database = local._wait_until_healthy = lambda *_, **__: None
local._part_commands = lambda *_, **__: dict.fromkeys(("scheduler", "triggerer"), [sys.executable, "-c", sys.argv[2]])
local.LASTS_SECONDS = float(sys.argv[3])
local.run_standalone(Path(sys.argv[1]), port=int(sys.argv[4]))
"""


@pytest.mark.parametrize("lasts", [0, 1_000])
def test_a_part_that_ends_is_started_again_unless_it_does_not_last(tmp_path: Path, lasts: int) -> None:
    home, _ = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    home_helpers.put(home, home.schedule.parse_epoch("2004-04-15"), [(1, 2, None, "upsert", 0)])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    part = "import threading; threading.Event().wait()"
    command = [sys.executable, "-u", "-c", PARTS, str(tmp_path), part, str(lasts), port]
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as ours:
        assert ours.stdout is not None
        lines = iter(ours.stdout.readline, "")
        told = list(takewhile(lambda line: "Ctrl-C stops it" not in line, lines))
        assert "Airflow is ready" in "".join(told)
        first = psutil.Process(ours.pid).children()
        assert len(first) == 2
        first[0].kill()
        if lasts:
            rest = "".join(lines)
            assert "has ended by itself" in rest and "Airflow has stopped" in rest and ours.wait(60) == 1
        else:
            assert any("starting it again" in line for line in lines)
            second = psutil.Process(ours.pid).children()
            ours.send_signal(signal.SIGINT)
            assert "Airflow has stopped" in "".join(lines) and ours.wait(60) == 0
            assert not any(process.is_running() for process in second)
    assert not any(process.is_running() for process in first)


def test_a_command_has_the_settings_of_the_running_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    with pytest.raises(UsageError, match="no Airflow was started"):
        local.exec_airflow(home.path, ["dags", "list"])
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://me:secret@db/airflow")
    environment = local.airflow_environment(home, 8081, NOW) | {"ALTNEU_MASTER": "sc://127.0.0.1:15002"}
    (tmp_path / "airflow").mkdir()
    local._keep_environment(home, environment)
    assert (tmp_path / "airflow" / "environment.json").stat().st_mode & 0o077 == 0
    monkeypatch.undo()
    called: list[tuple[Any, ...]] = []
    monkeypatch.setattr(os, "execve", lambda *how: called.append(how))
    for typed in (["dags", "list"], ["airflow", "dags", "list"]):
        local.exec_airflow(home.path, typed)
        program, command, given = called.pop()
        assert Path(program).name == "airflow" and command == ["airflow", "dags", "list"]
        names = [name for name in environment if name.startswith(("AIRFLOW", "ALTNEU"))]
        assert {name: given[name] for name in names} == {name: environment[name] for name in names}


@pytest.mark.backend("airflow")
def test_a_real_one_starts_and_stops_whole(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path, '[epochs]\nevery = "1d"\n')
    home_helpers.put(home, home.schedule.parse_epoch("2004-04-15"), [(1, 2, None, "upsert", 0)])
    with Airflow(home) as airflow:
        names = {dag["dag_id"] for dag in airflow.call("/api/v2/dags")["dags"]}
        assert {"altneu_epoch", "altneu_backfill"} <= names
        assert "altneu_stages" in {pool["name"] for pool in airflow.call("/api/v2/pools")["pools"]}
        address = f"http://localhost:{airflow.port}"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/altneu/")
        request = urllib.request.Request(f"{address}/altneu/", headers={"Authorization": f"Bearer {airflow.token}"})
        assert b"2004-04-15" in urllib.request.urlopen(request).read()
        # the API server's title has overwritten the environment by which `parts` would know it
        family = psutil.Process(airflow.process.pid).children(recursive=True)
        listening = {each.laddr.ip for process in family for each in process.net_connections("tcp4")}
        assert listening == {"127.0.0.1"}
        listed = airflow.command("pools", "list")
        assert "altneu_stages" in listed.communicate()[0] and listed.returncode == 0
    assert airflow.process.returncode == 0
    assert "Airflow has stopped" in airflow.log
    assert parts(home) == [] == [process for process in family if process.is_running()]


def parts(home: Home) -> list[psutil.Process]:
    """All processes of a home's Airflow."""
    folder = str(home.path / "airflow")
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("AIRFLOW_HOME") == folder
    ]
