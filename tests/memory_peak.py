"""The greatest memory of a process while it does something; and, as a command, that of the truss stage's task.

    python -m tests.memory_peak EDGES

Prints JSON: bytes an edge of R-MAT at the peak, for a first load, for one that leaves the graph in a table, for a
replay from the tables, and for several epochs in two threads, the rows that come in and go out included; then of an
edge in a cell, for each kind of cells, and of one that a part holds, without its triangles. Linux alone. For small
graphs set MALLOC_MMAP_THRESHOLD_=131072, else the C library keeps for itself what small arrays had.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph import arrow_packing, bsp, truss_bsp
from altneu.algorithms.graph.color_partitioning import CellTask, color_vertices
from altneu.algorithms.graph.graph_cache_task import CachedGraph, GraphCacheLocation
from altneu.algorithms.graph.kernels import partition_kernels as kernel
from altneu.algorithms.graph.kernels.truss import peel
from altneu.algorithms.graph.proof_records import ProofScope
from altneu.algorithms.graph.tagged_rows import INTERVAL, RowKind, input_columns
from altneu.algorithms.graph.truss import _replay_task
from altneu.algorithms.graph.truss_plan import ReplayRequest
from tests.benchmarks.triangles import by_rmat

NAMES = input_columns(len(INTERVAL))
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
    return [zero + RowKind.INTERVAL, a, b, zero, np.full(a.size, FOREVER), zero + 1]


def later(a: np.ndarray, b: np.ndarray, step: int = 1000) -> list[np.ndarray]:
    """The rows of an epoch in which one edge in `step` goes: intervals, and the trussness before it."""
    rows = first_load(a, b)
    rows[4][::step] = 1
    order = np.lexsort((b, a))
    zero, k = np.zeros(a.size, np.int64), np.empty(a.size, np.int64)
    k[order] = peel(a[order], b[order])
    stored = [zero + RowKind.STORED, a, b, k, zero, zero + 1]
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


def many_epochs(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The rows of a graph of which some edges go at each of three epochs after the first."""
    rows = first_load(a, b)
    for epoch in range(1, 4):
        rows[4][epoch::1000] = epoch
    return rows


def task(
    folder: Path, first: int, columns: list[np.ndarray], token: str = "here", last: int | None = None, threads: int = 1
) -> int:
    """Bytes that the truss stage's task takes at the peak, for rows that come as Spark sends them. token: of the place
    where it is to keep the graph; it does not see any but `here`."""
    (folder / "here").write_text("here")
    cache = CachedGraph(GraphCacheLocation(folder, token), f"{first}", first)
    last = first if last is None else last
    request = ReplayRequest(
        first_epoch=first, last_epoch=last, scope=ProofScope(8), cache=cache, checkpoint_edges=1, threads=threads
    )
    with sent(folder, columns, NAMES) as rows:

        def work() -> None:
            for _ in _replay_task(request)(rows):
                pass

        return peak(work)


def cell(folder: Path, columns: dict[str, np.ndarray], work: CellTask) -> int:
    """Bytes that a task takes at the peak for a cell of two colours, whose rows come in packs."""
    rows = pa.RecordBatch.from_pydict(columns)
    (dealt,) = pa.Table.from_batches(
        [arrow_packing.packs_by_number("cell", np.zeros(rows.num_rows, np.int64), rows)]
    ).to_batches()
    with pa.OSFile(str(folder / "packs"), "wb") as file, pa.ipc.new_stream(file, dealt.schema) as out:
        out.write_batch(dealt)
    types = {name: column.dtype for name, column in columns.items()}
    del rows, dealt
    pa.default_memory_pool().release_unused()
    with (folder / "packs").open("rb") as file, pa.ipc.open_stream(file) as sent:
        return peak(lambda: work(arrow_packing.unpack_columns(sent, types), partial(color_vertices, number=2)))


def cells(folder: Path, a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Two words of bits for the parts that hold an edge; labels are in no order, as those of a graph are."""
    ends, label = {"a": a, "b": b}, np.random.default_rng(1).permutation(a.size)
    owner, k = (label * 100 // a.size).astype(np.int32), np.full(a.size, 2, np.int32)
    kinds: dict[str, tuple[dict[str, np.ndarray], CellTask]] = {
        "support": (ends, bsp._support_task),
        "holders": (ends | {"owner": owner}, partial(bsp._holders_task, 2)),
        "facts": (ends | {"k": k, "label": label}, truss_bsp._certificate_task),
    }
    return {name: cell(folder, *kind) / a.size for name, kind in kinds.items()}


def ranges(low: np.ndarray, support: np.ndarray, number: int) -> np.ndarray:
    """Owners of edges, in so many ranges of the order of their lower ends, of about as many triangles each."""
    by, owner = np.argsort(low, kind="stable"), np.empty(low.size, np.int32)
    weight = np.cumsum(support[by] + bsp.EDGE_WEIGHT)
    owner[by] = np.minimum(weight * number // weight[-1], number - 1)
    return owner


def part(a: np.ndarray, b: np.ndarray, number: int = 8) -> float:
    """Of the largest of so many parts, in the first round of a first load; vertices are ordered by their degrees."""
    cell = kernel.build_cell(a, b, None)
    support, ranks = kernel.count_cell_support(cell), np.empty(cell.graph.vertices.size, np.int64)
    ranks[cell.graph.by_rank] = np.arange(ranks.size)
    low = np.minimum(*(ranks[np.searchsorted(cell.graph.vertices, end)] for end in (a, b)))
    owner = ranges(low, support, number)
    edge, holder = kernel.set_bits(kernel.edge_holders(cell, owner, 1))
    most = int(np.bincount(holder).argmax())
    held = np.union1d(edge[holder == most], np.flatnonzero(owner == most))
    held = held[np.lexsort((b[held], a[held]))]
    triangles, zero = int(support[owner == most].sum()), np.zeros(held.size, np.int64)
    columns = {"a": a[held], "b": b[held], "owner": owner[held], "level": zero - 1, "cap": support[held]}
    rows, nobody = bsp.pack_partition(most, columns | {"epoch": zero, "diff": zero + 1}), bsp.no_messages()
    del cell, edge, holder, columns
    pa.default_memory_pool().release_unused()
    taken = peak(lambda: truss_bsp._settle_task("", 0, 1, 0, (pa.scalar(most),), rows, nobody))
    return (taken - bsp.SIDE_BYTES * triangles) / held.size


def main(edges: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in (2000, edges):  # the small one compiles, where that was not done
            a, b = by_rmat(size)
            found = {
                "first load": task(Path(folder), 0, first_load(a, b)),
                "left": task(Path(folder), 0, first_load(a, b), "elsewhere"),
                "replay": task(Path(folder), 1, later(a, b)),
                "threads": task(Path(folder), 0, many_epochs(a, b), last=3, threads=2),
            }
            in_parts = cells(Path(folder), a, b) | {"part": part(*by_rmat(3 * size))}  # it holds half of them
    sizes = {name: size / a.size for name, size in found.items()} | in_parts
    print(json.dumps({name: round(size) for name, size in sizes.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
