"""The memory budget: how many edges one task can hold, by the memory of the machine or of a cluster's executors.

The memory of Python workers is not part of the JVM's. On this machine they have what Spark's driver leaves of it. An
executor of a cluster has `spark.executor.pyspark.memory` for them. Without that setting, on YARN and Kubernetes, which
end a container that exceeds its memory, they have what the JVM leaves of `spark.executor.memoryOverhead`; elsewhere we
assume that they have as much as the executor's JVM. A Spark Connect server on another machine is not asked: the same
settings in `altneu.toml` may say what its executors have; without them a task gets `UNKNOWN` edges.

A task that runs alone, while the other cores wait for it, may use all of this memory; one of many tasks uses its share.
But where `spark.executor.pyspark.memory` is set, Spark divides it by the cores, and no Python worker gets more address
space than that. Then a task that runs alone has only its share, too, and libraries use `LIBRARIES` of it.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from altneu.algorithms.graph.cost_model import BROADCAST_ROWS

from ..errors import UsageError

if TYPE_CHECKING:
    from .settings import Config

# Measured bytes of one edge (tests/benchmarks/RESULTS.md): while one task maintains the trussness of a graph, while an
# audit recomputes a graph beside the stored one, and in all other tasks; of one row that is sent to every task, and of
# one that an audit by DuckDB holds.
REPLAY_BYTES, AUDIT_BYTES, EDGE_BYTES, ROW_BYTES, HELD_BYTES = 220, 500, 350, 150, 550
THREADS_BYTES = 80  # more for an edge of the trussness, where its task works in several threads
UNKNOWN = 20_000_000
GIB = 2**30
LIBRARIES = (
    768 * 2**20
)  # address space of a Python worker that has loaded our libraries, with Arrow on the system's allocator
HEAP, PYTHON_MEMORY, OVERHEAD = (f"spark.executor.{name}" for name in ("memory", "pyspark.memory", "memoryOverhead"))
# Measured bytes of a container: what the JVM uses outside its heap, and what the libraries of a Python worker use.
OUTSIDE, LOADED = GIB, 300 * 2**20
SMALL_HEAP = 1280 * 2**20  # bytes; the JVM of a small home then stays below 2 GB
MIN_ARRAY_BYTES = 64 * 2**20  # bytes for arrays; with less a task is not worth its start
_UNITS = {"": 2**20, "b": 1, "k": 2**10, "m": 2**20, "g": GIB, "t": 2**40}


@dataclass(frozen=True)
class MemoryBudget:
    """The memory of one executor.

    `bytes`: for all its Python workers; None: not known. `heap`: bytes of the heap of its JVM. `cores`: tasks that run
    in it at once. `limit`: bytes that one worker may use besides its libraries; None: no limit.
    """

    bytes: int | None
    heap: int
    cores: int
    whose: str  # the name of the executor in messages
    limit: int | None = None

    @property
    def max_edges_exclusive(self) -> int:
        """Return the number of edges of a graph whose trussness one task can maintain while it runs alone."""
        return self.max_edges(REPLAY_BYTES)

    @property
    def max_edges_shared(self) -> int:
        """Return the number of edges that each of the tasks that run at once can hold."""
        return self.max_edges(EDGE_BYTES, self.cores)

    def max_edges(self, each: int, tasks: int = 1) -> int:
        """Return how many edges of `each` bytes one task can hold while `tasks` tasks run at once (at most one per
        core)."""
        if self.bytes is None:
            return UNKNOWN
        share = self.bytes // max(1, min(tasks, self.cores))
        return max(1, (share if self.limit is None else min(share, self.limit)) // each)

    def describe(self) -> str:
        if self.bytes is None:
            return f"{self.whose}: not known; up to {UNKNOWN:,} edges in a task"
        each = f", {self.max_edges_shared:,} in each of {self.cores}" if self.cores > 1 else ""
        has = f"{self.bytes / GIB:.1f} GiB for Python"
        if self.limit is not None:
            has += f", {(self.limit + LIBRARIES) / GIB:.1f} for a worker with its libraries"
        return f"{self.whose}: {has}; up to {self.max_edges_exclusive:,} edges in one task{each}"


def memory_budget(config: Config) -> MemoryBudget:
    """Return the memory budget of the tasks of a home."""
    master, conf = os.environ.get("ALTNEU_MASTER") or config.spark.master or "local[*]", config.spark.conf
    if master.startswith("local["):
        return _local_budget(conf, master[len("local[") : -1].split(",")[0])
    if master.startswith("sc://"):
        if _is_on_this_machine(master):
            return _local_budget(conf, "*")
        if not any(conf.get(name) for name in (HEAP, PYTHON_MEMORY, OVERHEAD)):
            return MemoryBudget(None, GIB, 1, "the executors of a Spark Connect server")
    heap = _parse_bytes(conf.get(HEAP) or "1g")
    python_bytes, limit = _python_memory(conf)
    tasks = max(1, _task_cores(conf) // int(conf.get("spark.task.cpus") or 1))
    remote = master.startswith("sc://")
    whose = "an executor of the server, by [spark] conf" if remote else "an executor"
    if python_bytes is None and (master.startswith(("yarn", "k8s")) or (remote and conf.get(OVERHEAD))):
        python_bytes, whose = (
            _container_memory_left(conf, heap),
            f"{whose}: its container, of {OVERHEAD} what its JVM leaves",
        )
    return MemoryBudget(heap if python_bytes is None else python_bytes, heap, tasks, whose, limit)


def _container_memory_left(conf: dict[str, str], heap: int) -> int:
    """Return the bytes for arrays. By default Spark adds a tenth of the heap to a container: too little for Python."""
    text = conf.get(OVERHEAD)
    factor = float(conf.get(f"{OVERHEAD}Factor") or 0.1)
    overhead = _parse_bytes(text) if text else max(384 * 2**20, int(factor * heap))
    return max(MIN_ARRAY_BYTES, overhead - OUTSIDE - _task_cores(conf) * LOADED)


def _python_memory(conf: dict[str, str]) -> tuple[int | None, int | None]:
    """Return the bytes for all Python workers of an executor, and for one of them besides its libraries; None: not set.

    Raises `UsageError` where one worker would have less than `MIN_ARRAY_BYTES`.
    """
    if not (text := conf.get(PYTHON_MEMORY)):
        return None, None
    python_bytes, cores = _parse_bytes(text), _task_cores(conf)
    limit = python_bytes // cores - LIBRARIES
    if limit < MIN_ARRAY_BYTES:
        least = -(-(LIBRARIES + MIN_ARRAY_BYTES) * cores // 2**20)
        raise UsageError(
            f'"{PYTHON_MEMORY}" = "{text}" in [spark] conf: Spark divides it by the cores of an executor ({cores}), '
            f"and a Python worker needs {LIBRARIES >> 20} MiB of address space for its libraries alone.",
            f'set it to "{least}m" or more, or remove it: then a worker has no limit but the memory of the machine',
        )
    return python_bytes, limit


def _task_cores(conf: dict[str, str]) -> int:
    return int(conf.get("spark.executor.cores") or 1)


def max_task_edges(config: Config) -> int:
    """Return how many edges a graph may have so that one task can maintain its trussness; at most `[truss]
    limit_edges`."""
    return min(memory_budget(config).max_edges_exclusive, _limit_or_unbounded(config.truss.limit_edges))


def task_threads(config: Config, edges: int) -> int:
    """Return the threads of the task that maintains the trussness of so many edges, while no other task works.

    Tasks that work beside one another have one thread each, and so has one without memory for more. Where Spark limits
    the address space of a Python worker, the C library reserves too much of it for each thread.
    """
    budget = memory_budget(config)
    if edges > budget.max_edges(REPLAY_BYTES + THREADS_BYTES):
        return 1
    if config.spark.threads is not None:
        return config.spark.threads
    if budget.limit is not None:
        return 1
    master = os.environ.get("ALTNEU_MASTER") or config.spark.master or "local[*]"
    return budget.cores if _is_on_this_machine(master) else int(config.spark.conf.get("spark.task.cpus") or 1)


def _is_on_this_machine(master: str) -> bool:
    return master.startswith("local[") or re.match(r"sc://(localhost|127\.|\[::1\])", master) is not None


def max_region_edges(config: Config) -> int:
    """Return how many edges the region of a change may have so that one task can update it."""
    return min(memory_budget(config).max_edges(EDGE_BYTES), _limit_or_unbounded(config.truss.limit_edges))


def max_audit_edges(config: Config, epochs: int) -> int:
    """Return how many edges a graph may have so that each of `epochs` audit tasks can recompute it."""
    return min(memory_budget(config).max_edges(AUDIT_BYTES, epochs), _limit_or_unbounded(config.truss.limit_edges))


def max_held_rows(config: Config) -> int:
    """Return how many rows an audit by DuckDB may hold."""
    return memory_budget(config).max_edges(HELD_BYTES)


def max_partition_edges(config: Config) -> int:
    """Return how many edges each of many tasks that run at once may hold."""
    return min(memory_budget(config).max_edges_shared, _limit_or_unbounded(config.truss.limit_edges))


def max_cell_edges(config: Config) -> int:
    """Return in how many edges one of many tasks may count triangles; at most `[triangles] limit_edges`."""
    return min(memory_budget(config).max_edges_shared, _limit_or_unbounded(config.triangles.limit_edges))


def max_broadcast_rows(config: Config) -> int:
    """Return how many rows of a join may be sent to every task: they fill a twentieth of the heap, at `ROW_BYTES`
    each."""
    return min(BROADCAST_ROWS, memory_budget(config).heap // (20 * ROW_BYTES))


def driver_memory_mb() -> int:
    """Return the heap of Spark's driver in MiB: half of this machine or container. Python workers and the page cache
    need the rest."""
    # from 32 GiB on pointers take twice the space, and the class-data archive does not fit
    return max(1024, min(_total_memory() // 2 // 2**20, 31 * 1024))


def duckdb_memory_mb() -> int:
    """Return the memory in MiB beyond which DuckDB spills to disk: a quarter of this machine or container, beside a
    driver that has half of it."""
    return max(256, _total_memory() // 4 // 2**20)


def heap_mb(rows: float) -> int:
    """Return the heap in MiB with which a driver that works on so many rows starts; at most `driver_memory_mb`.

    It is `SMALL_HEAP` or more, and all rows together would fill a twentieth of it, as the largest broadcast may.
    """
    return min(driver_memory_mb(), max(SMALL_HEAP, math.ceil(rows * 20 * ROW_BYTES)) >> 20)


def max_heap_rows(heap: int) -> float:
    """Return for how many rows a heap of so many bytes is large enough, as `heap_mb` sizes it."""
    return heap / (20 * ROW_BYTES)


def driver_heap(config: Config, rows: float) -> int:
    """Return the bytes of the heap of a driver for so many rows: what `[spark] conf` says, or `heap_mb`."""
    text = config.spark.conf.get("spark.driver.memory")
    return _parse_bytes(text) if text else heap_mb(rows) << 20


def _limit_or_unbounded(limit: int | None) -> int:
    return 2**63 if limit is None else limit


def _local_budget(conf: dict[str, str], cores: str) -> MemoryBudget:
    driver = _parse_bytes(conf["spark.driver.memory"]) if "spark.driver.memory" in conf else driver_memory_mb() * 2**20
    number = (os.cpu_count() or 1) if cores == "*" else int(cores)
    bytes_, (_, limit) = max(_total_memory() - driver, GIB // 2), _python_memory(conf)
    return MemoryBudget(bytes_, driver, number, "this machine, less Spark's driver", limit)


def _parse_bytes(text: str) -> int:
    """Return the number of bytes of a size in Spark's notation.

    >>> _parse_bytes("2g"), _parse_bytes("512M"), _parse_bytes("1500mb"), _parse_bytes("1024")
    (2147483648, 536870912, 1572864000, 1073741824)
    """
    match = re.fullmatch(r"(\d+)([bkmgt]?)b?", str(text).strip().lower())
    return int(match[1]) * _UNITS[match[2]] if match else 2**30


def _total_memory() -> int:
    """Return the memory of this machine or container in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total
