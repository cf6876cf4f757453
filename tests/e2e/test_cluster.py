"""Runs on a Spark cluster of several processes, with tables in S3 and the ledger in PostgreSQL, and real faults.

Whatever fails, the command ends with a message, readers see whole revisions, and the command typed again publishes
what a run on one machine does.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from altneu.pipeline.home.home import Home
from altneu.pipeline.home.memory_budget import (
    LIBRARIES,
    MIN_ARRAY_BYTES,
    PYTHON_MEMORY,
    max_audit_edges,
    max_task_edges,
)
from altneu.pipeline.state.failed_runs import describe_attempt
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.state.records import RunState
from altneu.pipeline.state.stage_results import TrussFacts
from tests import home_helpers, seeds
from tests import postgres as postgresql
from tests.benchmarks import put_changes, put_rows
from tests.benchmarks.triangles import by_rmat
from tests.builders import draw_batch
from tests.cluster import Cluster
from tests.e2e import test_connect as connect
from tests.network import Network
from tests.reference import Row
from tests.s3 import Store

REPO = Path(__file__).resolve().parents[2]
BATCH: dict[str, Any] = {"vertices": range(20), "size": 80, "deletes": 1 / 6}

pytestmark = pytest.mark.backend("cluster")


def toml(cluster: Cluster, storage: str = "") -> str:
    conf = ", ".join(f'"{name}" = "{value}"' for name, value in cluster.settings.items())
    return f'{storage}[spark]\nmaster = "{cluster.master}"\nconf = {{ {conf} }}\n'


def land(homes_: list[Home], epochs: range, rng: random.Random) -> None:
    for epoch in epochs:
        rows = draw_batch(rng, **BATCH)
        for home in homes_:
            home_helpers.put(home, epoch, rows)


def begin(home: Home, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "ALTNEU_MASTER"}
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment | {"PYTHONPATH": str(REPO)}, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def finished(home: Home, *arguments: str) -> str:
    process = begin(home, *arguments)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def published(home: Home) -> dict[str, str]:
    """The fingerprints of all tables but those whose rows name revisions or files."""
    ledger = Ledger(home)
    row = ledger.revisions.get()
    return {table: str(mark) for table, mark in ledger.outputs.fingerprints_of(row.revision).items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=3) as made:
        yield made


@pytest.mark.needs("s3 library")
def test_a_history_is_that_of_one_machine(
    cluster: Cluster, tmp_path: Path, s3: str, store: Store, postgres: str
) -> None:
    """S3, PostgreSQL and three workers, with 5 % of the requests to S3 failing."""
    rng, faults = random.Random(seeds.one()), random.Random(seeds.one())
    storage = f'[storage]\nwarehouse = "{s3}"\ndatabase = "{postgres}"\n'
    far, _ = home_helpers.make(tmp_path / "far", toml(cluster, storage))
    near, _ = home_helpers.make(tmp_path / "near")
    land([far, near], range(4), rng)
    store.faults = lambda method, path: faults.choices([None, "503", "cut"], [95, 3, 2])[0]
    for home in (far, near):
        finished(home, "backfill", "--all")
    land([far, near], range(2, 3), rng)
    for home in (far, near):
        finished(home, "run", "2")
        finished(home, "audit")
    assert published(far) == published(near)


def apart(folder: Path) -> str:
    """A Python with everything that altneu depends on, which finds neither this clone nor an installed altneu."""
    program = folder / "python"
    site = sysconfig.get_paths()["purelib"]  # `-S` leaves out the path entries of what is installed in place
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_code_travels(tmp_path: Path) -> None:
    """Executors without altneu get it with the session; a Python that is not there is told."""
    rng = random.Random(seeds.one())
    with Cluster(tmp_path, workers=1, python=apart(tmp_path)) as cluster:
        far, _ = home_helpers.make(tmp_path / "far", toml(cluster))
        near, _ = home_helpers.make(tmp_path / "near")
        land([far, near], range(2), rng)
        for home in (far, near):
            finished(home, "backfill", "--all")
        assert published(far) == published(near)
        cluster.settings["spark.pyspark.python"] = "/no/python"
        other, _ = home_helpers.make(tmp_path / "other", toml(cluster))
        land([other], range(1), rng)
        process = begin(other, "backfill", "--all")
        output, _ = process.communicate(timeout=300)
        said = " ".join(output.split())
        assert process.returncode == 1 and "do not work with Python /no/python" in said, output
        assert "spark.pyspark.python" in said


def executors(cluster: Cluster) -> None:
    for process in cluster.find("executor")[:1]:
        process.kill()


def worker(cluster: Cluster) -> None:
    cluster.find("worker")[0].kill()


def head(cluster: Cluster) -> None:
    cluster.find("head")[0].kill()


def silence(cluster: Cluster) -> None:
    """A worker and its executors hear and say nothing for longer than the others wait, and are back."""
    found = cluster.find("worker")[0]
    family = [found, *found.children(recursive=True)]
    for process in family:
        process.suspend()

    def back() -> None:
        for process in family:
            if process.is_running():
                process.resume()

    threading.Timer(30, back).start()


def cut(cluster: Cluster) -> None:
    """Nothing passes between a worker and all others, for longer than they wait: everybody goes on working."""
    assert cluster.network is not None
    cluster.network.cut()
    threading.Timer(30, cluster.network.join).start()


# what fails while a run is at work; whether the run ends well all the same
FAULTS: dict[str, tuple[Callable[[Cluster], None], bool]] = {
    "an executor is killed": (executors, True),
    "a worker is killed": (worker, True),
    "a worker is stopped, and goes on": (silence, True),
    "a worker is cut off, and back": (cut, True),
    "the head is killed": (head, True),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.needs("network")] * (FAULTS[fault][0] is cut)) for fault in FAULTS]
)
def test_a_part_of_the_cluster_fails(tmp_path: Path, fault: str) -> None:
    strike, goes_on = FAULTS[fault]
    rng = random.Random(seeds.one())
    with Network() if strike is cut else nullcontext() as network, Cluster(tmp_path, 2, network=network) as cluster:
        far, ledger = home_helpers.make(tmp_path / "far", toml(cluster))
        near, _ = home_helpers.make(tmp_path / "near")
        land([far, near], range(3), rng)
        process = begin(far, "backfill", "--all")
        until = time.monotonic() + 200
        while not _at_work(far, "edges") and process.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        strike(cluster)
        output, _ = process.communicate(timeout=400)
        print(output)
        if goes_on:
            assert process.returncode == 0, output
        assert "\tat " not in output, "no stack of Java's"
        if not cluster.find("head"):
            process = begin(far, "rebuild")
            output, _ = process.communicate(timeout=400)
            print(output)
            assert process.returncode == 1 and f"no Spark master answers at {cluster.master}" in output, output
            cluster.head()
            cluster.ready(workers=2)
        land([far, near], range(1, 2), rng)
        for home in (far, near):
            finished(home, "backfill", "--all")
        finished(far, "audit")
        assert published(far) == published(near)
        assert not [run for run in ledger.runs.list_all() if run.state is RunState.RUNNING]


def losing_executors(cluster: Cluster, home: Home, epoch: str, said: str) -> tuple[str, list[str], int]:
    """Run an epoch, and kill all executors when it says this first: its output, what it said, how many were killed."""
    process = begin(home, "run", epoch)
    watchdog = threading.Timer(400, process.kill)
    watchdog.start()
    output, told, lost = "", list[str](), 0
    assert process.stdout is not None
    for line in process.stdout:
        told += re.findall(said, line)
        output += line
        if told and not lost:
            for executor in cluster.find("executor"):
                executor.kill()
                lost += 1
    watchdog.cancel()
    print(output)
    assert process.wait() == 0
    return output, told, lost


def test_all_executors_are_lost_between_two_hops(tmp_path: Path) -> None:
    """And the edges with them that they had on their disks, to be looked up."""
    ends = range(1000)
    rows: list[Row] = [(v, v + step, None, "upsert", 0) for v in ends for step in (1, 2, 3)]
    some = random.Random(seeds.one()).sample(ends, 4)
    changes: list[Row] = [(v, v + 2, None, "delete", 0) for v in some[:2]] + [
        (v, v + 4, None, "upsert", 0) for v in some[2:]
    ]
    with Cluster(tmp_path, workers=2) as cluster:
        far, ledger = home_helpers.make(tmp_path / "far", f"{toml(cluster)}[truss]\nlimit_edges = 2000\n")
        near, _ = home_helpers.make(tmp_path / "near")
        for home in (far, near):
            for epoch, each in enumerate((rows, changes)):
                home_helpers.put(home, epoch, each)
            finished(home, "run", "0")
        output, told, lost = losing_executors(cluster, far, "1", r"truss: hop (\d+): ")
        assert "Lost executor" in output and lost == 2 and told, output
        finished(near, "run", "1")
        assert published(far) == published(near)
        assert ledger.stages.get_facts(ledger.revisions.get().run_id, TrussFacts).plan == "region"


def test_all_executors_are_lost_between_two_rounds(tmp_path: Path) -> None:
    """What earlier rounds made lies in tables: others go on from there, and end where one task does."""
    rng = random.Random(seeds.one())
    rows: list[Row] = [(rng.randrange(30), rng.randrange(30), None, "upsert", seq) for seq in range(400)]
    with Cluster(tmp_path, workers=2) as cluster:
        far, ledger = home_helpers.make(tmp_path / "far", f"{toml(cluster)}[truss]\nlimit_edges = 40\n")
        near, _ = home_helpers.make(tmp_path / "near")
        for home in (far, near):
            home_helpers.put(home, 0, rows)
        output, told, lost = losing_executors(
            cluster,
            far,
            "0",
            r"truss: epoch 0: round (\d+): looked at [\d,]+ edges, sent [\d,]+ messages to \d+ parts$",
        )
        assert "Lost executor" in output and "TransportClient" not in output, "it is said, and once"
        assert lost == 2 and len(told) > 2
        finished(near, "run", "0")
        assert published(far) == published(near)
        facts = ledger.stages.get_facts(ledger.revisions.get().run_id, TrussFacts)
        assert facts is not None and facts.rounds == len(told), "none was begun again"


@pytest.mark.parametrize(("edges", "method"), [(300_000, None), (330_000, "parts")])
def test_no_python_worker_needs_more_than_it_is_given(tmp_path: Path, edges: int, method: str | None) -> None:
    """Spark's limit of its address space at the least that is accepted: a graph that just fits one task, and is audited
    in cells; and one beyond it, in parts."""
    rng = np.random.default_rng(seeds.one())
    a, b = by_rmat(edges)
    with Cluster(tmp_path, workers=1) as cluster:
        cluster.settings[PYTHON_MEMORY] = f"{(LIBRARIES + MIN_ARRAY_BYTES) >> 20}m"
        far, ledger = home_helpers.make(tmp_path / "far", toml(cluster))
        near, _ = home_helpers.make(tmp_path / "near")
        assert (a.size > max_task_edges(far.config)) == (method == "parts")
        assert a.size > max_audit_edges(far.config, 1)
        for home in (far, near):
            put_rows(home, 0, a, b, ["upsert"] * a.size)
            finished(home, "run", "0")
        assert published(far) == published(near)
        assert (ledger.stages.get_facts(ledger.revisions.get().run_id, TrussFacts).rounds is not None) == (
            method == "parts"
        )
        if method is None:
            put_changes(far, 1, rng, a, b, 100)
            finished(far, "run", "1")
            finished(far, "audit", "1")


HUNGRY = """
import sys
from altneu.pipeline.storage.session import start_session
spark = start_session(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:]))
print(spark.sql("SELECT sum(length(repeat('x', CAST(id + 1900000000 AS int)))) FROM range(1)").collect())
"""


def test_an_executor_that_is_out_of_memory_ends_at_once(cluster: Cluster) -> None:
    """And costs what any lost executor does: it refuses no tasks while it ends."""
    settings = [f"{name}={value}" for name, value in cluster.settings.items()]
    command = [sys.executable, "-c", HUNGRY, cluster.master, *settings]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(REPO)}, capture_output=True, text=True)
    assert ended.returncode == 1, ended
    assert "Command exited with code 3" in ended.stderr and "RejectedExecution" not in ended.stderr, ended.stderr


def test_the_driver_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    rng = random.Random(seeds.one())
    far, ledger = home_helpers.make(tmp_path / "far", toml(cluster))
    near, _ = home_helpers.make(tmp_path / "near")
    land([far, near], range(3), rng)
    process = begin(far, "backfill", "--all")
    _wait_for(far, "triangles", process)
    connect.kill(process)
    assert ledger.revisions.get().revision == 0, "nothing is published"
    assert json.loads(finished(far, "status", "--format", "json"))["revision"] == 0
    for home in (far, near):
        finished(home, "backfill", "--all")
    assert published(far) == published(near)


def test_the_connect_server_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """It is the driver of the cluster: its clients end in words, its executors leave, and a new one goes on."""
    rng = random.Random(seeds.one())
    far, ledger = home_helpers.make(tmp_path / "far", toml(cluster))
    near, _ = home_helpers.make(tmp_path / "near")
    land([far, near], range(3), rng)
    server, address, _ = connect.serve(far.path)
    client = connect.altneu(far.path, "backfill", "--all", server=address)
    _wait_for(far, "triangles", client)
    assert cluster.find("executor")
    connect.kill(server)
    output, _ = client.communicate(timeout=90)
    print(output)
    assert client.returncode == 1 and "Traceback" not in output, output
    assert "the Spark Connect server at" in output and address in output, output
    assert ledger.revisions.get().revision == 0, "nothing is published"
    until = time.monotonic() + 60
    while cluster.find("executor"):
        assert time.monotonic() < until, "executors of a driver that has ended stay"
        time.sleep(0.5)
    server, address, _ = connect.serve(far.path)
    connect.finished(far.path, "backfill", "--all", server=address)
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=60)
    finished(near, "backfill", "--all")
    assert published(far) == published(near)


@pytest.mark.backend("postgresql")
def test_the_database_server_is_restarted(cluster: Cluster, tmp_path: Path) -> None:
    """All connections of a run end at once: it goes on or fails in words, and loses nothing."""
    rng = random.Random(seeds.one())
    with postgresql.running() as server:
        storage = f'[storage]\ndatabase = "{postgresql.database(server.uri)}"\n'
        far, ledger = home_helpers.make(tmp_path / "far", toml(cluster, storage))
        near, _ = home_helpers.make(tmp_path / "near")
        land([far, near], range(3), rng)
        for stage, command in {"ingest": ["backfill", "--all"], "truss": ["rebuild"]}.items():
            process = begin(far, *command)
            _wait_for(far, stage, process)
            server.restart()
            output, _ = process.communicate(timeout=400)
            print(output)
            assert process.returncode == 0 or "Traceback" not in output, output
            finished(far, "backfill", "--all")
        finished(near, "backfill", "--all")
        finished(far, "audit")
        assert published(far) == published(near)
        # where the database itself has failed, a run's end may not be recorded; it is shown as failed all the same
        assert not [run for run in ledger.runs.list_all() if describe_attempt(run).state is RunState.RUNNING]


def _wait_for(home: Home, stage: str, process: subprocess.Popen[str]) -> None:
    """Until a process, if it does not end before, has come to a stage: only its home says when."""
    while not _at_work(home, stage) and process.poll() is None:
        time.sleep(0.2)


def _at_work(home: Home, stage: str) -> bool:
    """Has a run of the home that is at work come to this stage?"""
    try:
        ledger = Ledger(home)
        running = [run.run_id for run in ledger.runs.list_all() if run.state is RunState.RUNNING]
        return any(each.stage == stage for run_id in running for each in ledger.stages.select(run_id))
    except Exception:  # the database is not there yet
        return False
