"""How a Spark cluster of several processes scales: a first load, an epoch of 1,000 changes and an audit, by workers.

    python -m tests.benchmarks.cluster [--edges 1000000 ...] [--workers 1 2 3] [--memory 1] [--limit N] [--scale N]
        [--out FILE] [--check]

Standalone clusters on this machine, workers of one core each, whole commands of seeded R-MAT, landed as one Parquet
file. `--memory`: an executor's heap in gigabytes; the driver has two. `--limit`: `limit_edges` of triangles and truss,
beyond which no task holds the graph. `--scale`: among 2**N vertices instead of about an eighth of the edges: the more,
the fewer triangles.
Prints tables in Markdown: seconds of the commands with the greatest resident memory of an executor (its Python workers
included), of its JVM and of one Python worker; and what each stage did, out of Spark's event log: jobs, tasks, bytes of
files and shuffles. `--out` adds the same as lines of JSON, which `tests.benchmarks.paper` reads. More workers than
cores share the cores. `--check`: the triangles of the first load again by products of sparse matrices (scipy), and
every edge's trussness by a peel, here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import product
from pathlib import Path

import numpy as np
import psutil
from scipy import sparse

from altneu.algorithms.graph.kernels.truss import peel
from altneu.pipeline.home.home import Home
from altneu.pipeline.reading.graph import Graph
from tests import home_helpers
from tests.benchmarks import put_changes, put_rows
from tests.benchmarks.triangles import by_rmat
from tests.cluster import Cluster

REPO = Path(__file__).resolve().parents[2]


@dataclass
class Most:
    """The greatest memory, gigabytes: of an executor with its children at one time (what they share counts once); of
    an executor's JVM alone; and of one of its Python workers, libraries included."""

    executor: float = 0.0
    jvm: float = 0.0
    worker: float = 0.0

    def __str__(self) -> str:
        return f"{self.executor:.2f} GB in an executor, {self.jvm:.2f} in its JVM, {self.worker:.2f} in a Python worker"


class Watch(threading.Thread):
    """Looks at executors every half second, `most` is what it has seen."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.cluster, self.most, self.over = cluster, Most(), threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            for executor in self.cluster.find("executor"):
                try:
                    workers = executor.children(recursive=True)
                    together = sum(each.memory_full_info().pss for each in [executor, *workers]) / 1e9
                    jvm, worker = peak(executor), max(map(peak, workers), default=0.0)
                except psutil.Error:
                    continue
                most = self.most
                self.most = Most(max(most.executor, together), max(most.jvm, jvm), max(most.worker, worker))


def peak(process: psutil.Process) -> float:
    """The greatest resident gigabytes that a process has had."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM:")), 0.0)


def command(home: Home, cluster: Cluster, *arguments: str) -> tuple[float, Most]:
    """Seconds of a command, and what its executors took."""
    environment = {name: value for name, value in os.environ.items() if name != "ALTNEU_MASTER"}
    watch = Watch(cluster)
    watch.start()
    start = time.perf_counter()
    whole = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home.path), *arguments]
    ended = subprocess.run(whole, env=environment | {"PYTHONPATH": str(REPO)}, capture_output=True, text=True)
    watch.over.set()
    if ended.returncode:
        logs = sorted((home.path / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
        log = logs[-1].read_text() if logs else ""  # gone with the home
        sys.exit(f"{' '.join(arguments)}: exit {ended.returncode}\n{ended.stdout}\n{ended.stderr}\n{log}")
    return time.perf_counter() - start, watch.most


def triangles(a: np.ndarray, b: np.ndarray, wedges: int = 60_000_000) -> int:
    """How many, without a kernel of ours: of each block of rows of the oriented graph's matrix L, those of L L in L."""
    vertices, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    n, u, v = vertices.size, ends[: a.size], ends[a.size :]
    order = np.argsort(np.bincount(u, minlength=n) + np.bincount(v, minlength=n), kind="stable")
    rank = np.empty(n, np.int32)
    rank[order] = np.arange(n, dtype=np.int32)
    low, high = np.minimum(rank[u], rank[v]), np.maximum(rank[u], rank[v])
    whole = sparse.csr_array((np.ones(a.size, np.int32), (low, high)), shape=(n, n))
    before = np.append(0, np.cumsum(np.diff(whole.indptr)[whole.indices]))[whole.indptr]  # wedges of the rows above
    found = start = 0
    while start < n:
        end = max(start + 1, int(np.searchsorted(before, before[start] + wedges, side="right")) - 1)
        rows = whole[start:end]
        found, start = found + int((rows @ whole).multiply(rows).sum()), end
    return found


def check(home: Home, a: np.ndarray, b: np.ndarray) -> None:
    """Ends with an error where the published totals or an edge's trussness differ."""
    views = Graph(home.path, engine="duckdb").arrow
    (totals,) = views.totals().to_pylist()
    edges = views.edges()
    order, stored = np.lexsort((b, a)), [edges[name].to_numpy() for name in ("src", "dst", "trussness")]
    by = np.lexsort((stored[1], stored[0]))
    same = [np.array_equal(x[order], y[by]) for x, y in zip((a, b, peel(a, b)), stored, strict=True)]
    if not all(same) or (totals["edges"], totals["triangles"]) != (a.size, triangles(a, b)):
        sys.exit(f"not equal: ends and trussness {same}, totals {totals}")
    print(f"| | | checked | | {a.size:,} edges, {totals['triangles']:,} triangles: equal | | | |", flush=True)


@dataclass
class Work:
    """What Spark did in a stage of a run: of all its tasks together, but for `longest` (seconds of one task)."""

    seconds: float
    jobs: int = 0
    tasks: int = 0
    busy: float = 0.0  # seconds of executors
    longest: float = 0.0
    read: int = 0  # bytes of files
    wrote: int = 0
    shuffled: int = 0  # bytes written to shuffles


def worked(logs: Path, spans: dict[str, tuple[float, float]]) -> dict[str, Work]:
    """In spans of time (since 1970, and how long; seconds), by name, out of Spark's event logs."""
    found = {name: Work(seconds) for name, (_, seconds) in spans.items()}

    def at(milliseconds: int) -> Work | None:
        moment = milliseconds / 1000
        return next((found[name] for name, (start, seconds) in spans.items() if 0 <= moment - start <= seconds), None)

    for log in logs.iterdir():
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart" and (stage := at(event["Submission Time"])):
                stage.jobs += 1
            if event["Event"] == "SparkListenerTaskEnd" and (stage := at(event["Task Info"]["Finish Time"])):
                task, metrics = event["Task Info"], event.get("Task Metrics") or {}
                seconds = (task["Finish Time"] - task["Launch Time"]) / 1000
                stage.tasks += 1
                stage.busy += seconds
                stage.longest = max(stage.longest, seconds)
                stage.read += metrics.get("Input Metrics", {}).get("Bytes Read", 0)
                stage.wrote += metrics.get("Output Metrics", {}).get("Bytes Written", 0)
                stage.shuffled += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return found


def measure(
    folder: Path,
    size: int,
    scale: int | None,
    workers: int,
    memory: int,
    limit: int | None,
    out: Path | None,
    checked: bool,
) -> None:
    logs = folder / "events"
    logs.mkdir()
    with Cluster(folder, workers, memory) as cluster:
        conf = cluster.settings | {
            "spark.executorEnv.PYTHONPATH": str(REPO),  # this clone, whatever is installed
            "spark.driver.memory": "2g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        settings = ", ".join(f'"{name}" = "{value}"' for name, value in conf.items())
        limits = "".join(f"[{name}]\nlimit_edges = {limit}\n" for name in ("triangles", "truss")) if limit else ""
        home, ledger = home_helpers.make(
            folder / "home", f'{limits}[spark]\nmaster = "{cluster.master}"\nconf = {{ {settings} }}\n'
        )
        a, b = by_rmat(size, scale)
        put_rows(home, 0, a, b, ["upsert"] * a.size)
        for what, arguments in (
            ("first load", ("run", "0")),
            ("epoch of 1,000 changes", ("run", "1")),
            ("audit of it", ("audit", "1")),
        ):
            if what.startswith("epoch"):
                put_changes(home, 1, np.random.default_rng(3), a, b, 1000)
            began = time.time()
            seconds, most = command(home, cluster, *arguments)
            print(f"| {a.size:,} | {workers} | {what} | {seconds:.0f} | {most} | | | |", flush=True)
            spans = {what: (began, seconds)}
            if arguments[0] == "run":
                rows = ledger.stages.select(ledger.revisions.get().run_id)
                spans = {r.stage: (datetime.fromisoformat(r.started_at).timestamp(), r.seconds or 0.0) for r in rows}
            stages = worked(logs, spans)
            for stage, work in stages.items():
                tasks = (
                    f"{work.jobs} jobs, {work.tasks} tasks, {work.busy:.1f} s of executors, at most {work.longest:.1f}"
                )
                sizes = " | ".join(f"{size / 1e6:.1f}" for size in (work.read, work.wrote, work.shuffled))
                print(f"| | | {stage} | {work.seconds:.1f} | {tasks} | {sizes} |", flush=True)
            if checked and what == "first load":
                check(home, a, b)
            if out:
                kept = {
                    "edges": int(a.size),
                    "scale": scale,
                    "workers": workers,
                    "limit": limit,
                    "what": what,
                    "seconds": seconds,
                    "gigabytes": most.executor,
                    "jvm": most.jvm,
                    "worker": most.worker,
                    "stages": {name: asdict(work) for name, work in stages.items()},
                    "stored": sum(path.stat().st_size for path in home.path.rglob("*.parquet")),
                }
                with out.open("a") as file:
                    print(json.dumps(kept), file=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--memory", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--scale", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    print("| edges | workers | command, its stages | seconds | work | MB of files read | written | MB shuffled |")
    print("|---|---|---|---|---|---|---|---|")
    for size, workers in product(options.edges, options.workers):
        with tempfile.TemporaryDirectory() as folder:
            given = (options.scale, workers, options.memory, options.limit, options.out, options.check)
            measure(Path(folder), size, *given)


if __name__ == "__main__":
    main()
