"""A small home, commands on it as processes of their own, and a daemon without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from altneu.pipeline.storage.daemon_client import DaemonStatus, read_status
from tests.report.seed import DAY, Seed

REPO = Path(__file__).resolve().parents[1]
SECONDS = 120.0  # within which what is awaited has to come


def await_truth(question: Callable[[], Any]) -> Any:
    """Wait until a question has a true answer, and return it."""
    deadline = time.monotonic() + SECONDS
    while not (answer := question()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return answer


@dataclass
class Place:
    """A home, and the processes that a test has started on it."""

    path: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a session of its own, as in a terminal."""
        line = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(self.path), *words]
        given: dict[str, Any] = {"env": self.environment, "cwd": self.path, "stdin": subprocess.DEVNULL} | options
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, start_new_session=True, stdout=pipe, stderr=pipe, text=True, **given)
        self.processes.append(process)
        return process

    def run(self, *words: str, **options: Any) -> tuple[int, str, str]:
        """Run a command; return its exit code, standard output and standard error."""
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out, err

    def serve(self, *words: str) -> subprocess.Popen[str]:
        """Start the process of a daemon without Spark, which may listen already when it is returned."""
        log = (self.path / "daemon.log").open("a")
        line = [sys.executable, "-m", "tests.daemon_without_spark", str(self.path), *words]
        process = subprocess.Popen(
            line, env=self.environment, cwd=REPO, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
        )
        log.close()
        self.processes.append(process)
        return process

    def serve_and_wait(self, *words: str) -> tuple[subprocess.Popen[str], DaemonStatus]:
        """Start the process of a daemon without Spark, and wait until it is ready."""
        process = self.serve(*words)
        return process, await_truth(self.ready)

    def ready(self) -> DaemonStatus | None:
        status = read_status(self.path)
        return status if status is not None and status.is_ready else None

    @property
    def log(self) -> str:
        return (self.path / "daemon.log").read_text()

    def end(self) -> None:
        if (status := read_status(self.path)) is not None:
            psutil.Process(status.pid).kill()
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="altneu") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def place(tmp_path: Path, runtime_folder: Path) -> Iterator[Place]:
    seed = Seed(tmp_path / "home")
    seed.run({DAY: (9, 0)}, {DAY: {"vertices": 4, "edges": 6}})
    environment = os.environ | {"PYTHONPATH": str(REPO), "SECRET_WORD": "swordfish"}
    made = Place(tmp_path / "home", environment)
    yield made
    made.end()
