"""Spark tasks that go on from a cached graph: the place of its files, and the result of a task that does not find it.

`kernels/persistent_graph` has the graphs, `truss` and `triangles` have the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.intervals import Longs
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, StateMismatch
from altneu.algorithms.graph.tagged_rows import RowKind, Task, result_table, run_in_one_task

Rows = tuple[Longs, Longs, Longs, Longs, Longs]


@dataclass(frozen=True)
class GraphCacheLocation:
    """A folder of cached graphs.

    A task uses it only if the folder's file `here` holds `token`: on the machine of the task, or on one whose files it
    shares.
    """

    folder: Path
    token: str

    def is_here(self) -> bool:
        try:
            return (self.folder / "here").read_text() == self.token
        except OSError:
            return False


@dataclass(frozen=True)
class CachedGraph:
    """A graph that is cached under `key`, as it is at an epoch."""

    files: GraphCacheLocation
    key: str
    epoch: int


def resume_task(
    cached: CachedGraph, changes: Callable[[PersistentGraph, list[pa.RecordBatch]], Iterable[pa.Table]]
) -> Task:
    """Return a task that goes on from a cached graph.

    If the graph is missing or the rows do not fit it, the result is one row of the kind `UNFIT`.
    """

    def run_from_graph(parts: list[pa.RecordBatch]) -> Iterable[pa.Table]:
        graph = PersistentGraph.open_graph(cached.files.folder, cached.key) if cached.files.is_here() else None
        if graph is None:
            return [result_table(RowKind.UNFIT, "the graph cache is missing")]
        try:
            return list(changes(graph, parts))
        except StateMismatch as error:
            return [result_table(RowKind.UNFIT, f"the graph cache does not fit: {error}")]

    return run_in_one_task(run_from_graph)


def split_fresh(intervals: Sequence[Longs]) -> tuple[Rows, NDArray[np.bool_]]:
    """Return intervals, and which of them the graph has seen, for the kernels that go on from it."""
    a, b, epoch, until, diff, fresh, *_ = intervals
    return (a, b, epoch, until, diff), fresh == 0
