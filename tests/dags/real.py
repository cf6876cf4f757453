"""A real Airflow for tests and benchmarks: `altneu airflow` in a process of its own, spoken to over its API."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from altneu.pipeline.home.home import Home

REPO = Path(__file__).resolve().parents[2]
PROMPT = 5  # seconds between two looks


class Airflow:
    """`with Airflow(home) as airflow:` it is up; at the end it has stopped whole. `log`: everything it said.

    `program`: the command `altneu`, by default of this process's environment; `folder`: where it is started.
    """

    def __init__(
        self,
        home: Home | Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "altneu.pipeline.cli"),
        folder: Path | None = None,
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = int(server.getsockname()[1])
        self.path, self.arguments, self.log = home if isinstance(home, Path) else home.path, arguments, ""
        self.program, self.folder = program, folder
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "ALTNEU", "PYSPARK"))
        }
        self.environment = clean | {"PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1"} | dict(environment or {})
        self.token = ""

    def __enter__(self) -> Airflow:
        command = [*self.program, "--home", str(self.path), "airflow"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), *self.arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line
            if "Ctrl-C" in line:
                break
        password = re.search(r"password (\S+)", self.log)
        assert password, self.log
        self.password = password[1]
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=120)
        self._listener.join(timeout=60)
        if kind is None:
            assert self.process.returncode == 0, self.log

    def call(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer of the API; the path begins after its address."""
        if not self.token and path != "/auth/token":
            named = {"username": "admin", "password": self.password}
            self.token = self.call("/auth/token", named)["access_token"]
        headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def unpause(self, dag: str, paused: bool = False) -> None:
        self.call(f"/api/v2/dags/{dag}", {"is_paused": paused}, "PATCH")

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """All runs, oldest logical date first."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.call(f"/api/v2/dags/{dag}/dagRuns?limit=100&offset={len(found)}&order_by=logical_date")
            found += page["dag_runs"]
            if len(found) >= page["total_entries"]:
                return found

    def healthy(self, dag: str) -> list[dict[str, Any]]:
        """All runs; an AssertionError that has the log of every failed task when a run has failed."""
        runs = self.runs(dag)
        told = []
        for run in (each["dag_run_id"] for each in runs if each["state"] == "failed"):
            for task, row in self.tasks(dag, run).items():
                if row["state"] == "failed":
                    place = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{row['try_number']}"
                    told.append(
                        f"{run} {task}, try {row['try_number']}:\n{json.dumps(self.call(place), indent=0)[-6000:]}"
                    )
        assert not told and "failed" not in {each["state"] for each in runs}, "\n".join(told)
        return runs

    def tasks(self, dag: str, run: str) -> dict[str, dict[str, Any]]:
        rows = self.call(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return {row["task_id"]: row for row in rows}

    def until(self, done: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait; an Airflow that is restarting may not answer meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"Airflow has ended: {self.log[-6000:]}"
            try:
                found = done()
                if found:
                    return found
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(PROMPT)
        raise AssertionError(f"not in {seconds:,.0f} s: {what}. Airflow has said: {self.log[-6000:]}")

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """An `airflow` command, as an operator types it in a shell of their own, beside the running parts."""
        altneu = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(self.path)]
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"PYTHONPATH": str(REPO)}
        plain |= {name: value for name, value in self.environment.items() if name.startswith("AIRFLOW")}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*altneu, "airflow", "exec", "--", *arguments], env=plain, **pipes)

    def scheduler(self) -> list[psutil.Process]:
        """The scheduler of this Airflow."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            mine = (process.info["environ"] or {}).get("AIRFLOW_HOME") == str(self.path / "airflow")
            if mine and "scheduler" in (process.info["cmdline"] or ()):
                found.append(process)
        return found

    def tasks_at_work(self) -> list[psutil.Process]:
        """The tasks that run now: children of the scheduler's workers, which are its children."""
        with suppress(psutil.NoSuchProcess):  # one ended while we looked
            workers = [worker for scheduler in self.scheduler() for worker in scheduler.children()]
            return [task for worker in workers for task in worker.children()]
        return []


def backfill(airflow: Airflow, home: Home, epochs: Sequence[int], active: int) -> None:
    """`airflow backfill create` over the days from the first epoch to the last one, backwards.

    It is created before the DAG is switched on: its catch-up would take days of the backfill.
    """
    airflow.until(lambda: airflow.call("/api/v2/dags/altneu_epoch"), 120, "the DAG")
    first, last = (f"{home.schedule.start_of(epoch):%Y-%m-%d}" for epoch in (epochs[0], epochs[-1]))
    dates = ["--from-date", first, "--to-date", last]
    how = ["--run-backwards", "--max-active-runs", str(active)]
    created = airflow.command("backfill", "create", "--dag-id", "altneu_epoch", *dates, *how)
    said, _ = created.communicate(timeout=300)
    assert created.returncode == 0, said
    airflow.unpause("altneu_epoch")
