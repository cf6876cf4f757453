"""The greatest memory of a process while it does something; and, as a command, that of the truss stage's task.

    python -m tests.peak EDGES

Prints JSON: bytes an edge of R-MAT at the peak, for a first load, for one that leaves the graph in a table, and for a
replay from the tables, the rows that come in and go out included. Linux alone. For small graphs set
MALLOC_MMAP_THRESHOLD_=131072, else the C library keeps for itself what small arrays had.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from algorithms.kept import INTERVAL, Files
from algorithms.kernels.truss import peel
from algorithms.proof import Ask
from algorithms.times import FOREVER
from algorithms.truss import _replay
from tests.benchmarks.triangles import by_rmat

NAMES = [*INTERVAL, "k"]
BATCH = 10_000  # rows, as Spark sends them


def peak(work: Callable[[], object]) -> int:
    """Bytes by which the memory of this process was greater at some time during the work than before it."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    work()
    return (_kilobytes("VmHWM") - before) * 1024


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def first_load(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The rows of a graph."""
    zero = np.zeros(a.size, np.int64)
    return [a, b, zero, np.full(a.size, FOREVER), zero + 1, zero]


def later(a: np.ndarray, b: np.ndarray, step: int = 1000) -> list[np.ndarray]:
    """The rows of an epoch in which one edge in `step` goes: intervals, and the trussness before it."""
    rows = first_load(a, b)
    rows[3][::step] = 1
    order = np.lexsort((b, a))
    zero, k = np.zeros(a.size, np.int64), np.empty(a.size, np.int64)
    k[order] = peel(a[order], b[order])
    stored = [a, b, zero, zero, zero + 1, k]
    return [np.concatenate(pair) for pair in zip(rows, stored, strict=True)]


@contextmanager
def sent(folder: Path, columns: list[np.ndarray], names: list[str]) -> Iterator[Iterator[pa.RecordBatch]]:
    """Rows of whole numbers as a task gets them from Spark."""
    with (
        (folder / "rows").open("wb") as file,
        pa.ipc.new_stream(file, pa.schema([(name, pa.int64()) for name in names])) as out,
    ):
        out.write_table(pa.table(columns, names), BATCH)
    with (folder / "rows").open("rb") as file:
        yield pa.ipc.open_stream(file)


def task(folder: Path, first: int, columns: list[np.ndarray], token: str = "here") -> int:
    """Bytes that the truss stage's task takes at the peak, for rows that come as Spark sends them. token: of the place
    where it is to keep the graph; it does not see any but `here`."""
    (folder / "here").write_text("here")
    keep = Files(folder, token), f"{first}"
    with sent(folder, columns, NAMES) as rows:

        def work() -> None:
            for _ in _replay(first, first, keep, Ask(8), 1)(rows):
                pass

        return peak(work)


def main(edges: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in (2000, edges):  # the small one compiles, where that was not done
            a, b = by_rmat(size)
            found = {
                "first load": task(Path(folder), 0, first_load(a, b)),
                "left": task(Path(folder), 0, first_load(a, b), "elsewhere"),
                "replay": task(Path(folder), 1, later(a, b)),
            }
    print(json.dumps({name: round(size / a.size) for name, size in found.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
