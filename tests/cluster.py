"""A Spark standalone cluster for tests: a head and workers in processes of their own, one core each.

`Cluster(folder, workers)` starts it; `find` gives the processes of a part, to be killed or stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark

from altneu.pipeline.storage.assets import ASSETS
from tests.network import Network
from tests.proxy import free_port

SPARK = Path(pyspark.__file__).parent
PARTS = {
    "head": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
    "executor": "org.apache.spark.executor.CoarseGrainedExecutorBackend",
}


class Cluster:
    """Running once it is made; `with` stops it. `settings`: what an application needs on machines this small; `memory`:
    an executor's heap, in gigabytes; `python`: of the executors, who have no path to this clone; `network`: where the
    first worker runs."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        memory: int = 1,
        python: str = sys.executable,
        network: Network | None = None,
    ) -> None:
        self.folder, self.ports, self.network = folder, (free_port(), free_port()), network
        self.host = network.here if network else "127.0.0.1"
        self.master = f"spark://{self.host}:{self.ports[0]}"
        self.settings = {
            "spark.pyspark.python": python,
            "spark.driver.memory": "1g",
            "spark.driver.host": self.host,
            "spark.executor.memory": f"{memory}g",
            "spark.executor.cores": "1",
            "spark.cores.max": str(workers),
            "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
        }
        self.started: list[psutil.Popen] = []
        self.memory = memory
        self.head()
        for number in range(workers):
            self.worker(network if number == 0 else None)
        self.ready(workers)

    def head(self) -> None:
        """Start the head; again at the same port, when it was killed."""
        port, page = self.ports
        self._start("head", "--port", str(port), "--webui-port", str(page))

    def worker(self, network: Network | None = None) -> None:
        number = len(self.started)
        place = str(self.folder / f"worker{number}")
        self._start(
            "worker",
            "-c",
            "1",
            "-m",
            f"{self.memory * 1024 + 500}m",
            "-d",
            place,
            "--webui-port",
            "0",
            self.master,
            network=network,
        )

    def find(self, part: str) -> list[psutil.Process]:
        """The living processes of a part of this cluster."""
        found = []
        for process in (child for each in self.started for child in _family(each)):
            with contextlib.suppress(psutil.Error):
                if PARTS[part] in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def stop(self) -> None:
        for process in [child for each in self.started for child in _family(each)]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for process in self.started:
            process.wait()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, part: str, *arguments: str, network: Network | None = None) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        host = network.there if network else self.host
        environment = clean | {
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        if (ASSETS / "java").exists():
            environment["JAVA_HOME"] = str(ASSETS / "java")
        command = [str(SPARK / "bin" / "spark-class"), PARTS[part], "--host", host, *arguments]
        if network:
            command = network.inside(command)
        with (self.folder / f"{part}{len(self.started)}.log").open("w") as log:
            how = {"cwd": self.folder, "stdout": log, "stderr": log, "start_new_session": True}
            self.started.append(psutil.Popen(command, env=environment, **how))

    def applications(self) -> list[str]:
        """The names of all applications that the head has seen, those that have ended first."""
        with urllib.request.urlopen(f"http://{self.host}:{self.ports[1]}/json/", timeout=5) as answer:
            found = json.load(answer)
        return [each["name"] for each in [*found["completedapps"], *found["activeapps"]]]

    def ready(self, workers: int) -> None:
        """Wait until the head knows of so many workers."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{self.host}:{self.ports[1]}/json/", timeout=5) as answer,
            ):
                if answer.read().decode().count('"ALIVE"') > workers:  # and the head itself
                    return
            time.sleep(0.3)
        self.stop()
        raise AssertionError(f"the cluster did not start: see {self.folder}")


def _family(process: psutil.Popen) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield from process.children(recursive=True)
    yield process
