"""Spark tasks that go on from a cached graph: the place of its files, and the result of a task that does not find it.

`kernels/persistent_graph` has the graphs, `truss` and `triangles` have the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms.kernels.intervals import Longs, to_longs
from algorithms.kernels.persistent_graph import PersistentGraph, StateMismatch

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Rows = tuple[Longs, Longs, Longs, Longs, Longs]
CHUNK = 1 << 20  # rows that a task returns at once
INTERVAL = ["a", "b", "epoch", "until", "diff"]


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
    """A graph that is cached under `key`, as it was at epoch `at`."""

    files: GraphCacheLocation
    key: str
    at: int


def run_in_one_task(changes: Callable[[list[pa.RecordBatch]], Iterable[pa.Table]]) -> Task:
    """Return the function for `mapInArrow` that passes all rows of one task to `changes`, which returns tables.

    `changes` receives the batches as a list that it may empty (`consume_columns`).
    """

    def collect_and_run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if parts:
            for table in changes(parts):
                yield from table.to_batches(max_chunksize=CHUNK)

    return collect_and_run


def tag_rows(frame: DataFrame, given: Sequence[str], kind: int, *columns: str) -> DataFrame:
    """Return rows of one kind, for a task that receives several kinds.

    Args:
        frame: the rows.
        given: the names of the result's columns, all bigint.
        kind: the number of the kind, the first column.
        columns: the columns of the rows that follow. All further columns of the result are zeros.
    """
    values = [F.lit(kind), *(F.col(name) for name in columns), *[F.lit(0)] * (len(given) - 1 - len(columns))]
    return frame.select(*(value.cast("bigint").alias(name) for value, name in zip(values, given, strict=True)))


def consume_columns(parts: list[pa.RecordBatch], names: Sequence[str]) -> list[Longs]:
    """Return columns of all rows in numpy's own memory; Arrow's memory is freed, and the list is empty afterwards."""
    columns = [np.concatenate([part[name].to_numpy() for part in parts]) for name in names]
    parts.clear()
    pa.default_memory_pool().release_unused()
    return columns


def resume_task(
    kept: CachedGraph, columns: Sequence[str], changes: Callable[[PersistentGraph, pa.Table], pa.Table]
) -> Task:
    """Return a task that goes on from a cached graph.

    If the graph is missing or the rows do not fit it, the result is one row of nulls in `columns`, all bigint, with the
    reason in its column `note`.
    """

    def run_from_graph(parts: list[pa.RecordBatch]) -> list[pa.Table]:
        graph = PersistentGraph.open_graph(kept.files.folder, kept.key) if kept.files.is_here() else None
        if graph is None:
            return [absent_result(columns, "the graph cache is missing")]
        try:
            return [changes(graph, pa.Table.from_batches(parts))]
        except StateMismatch as error:
            return [absent_result(columns, f"the graph cache does not fit: {error}")]

    return run_in_one_task(run_from_graph)


def absent_result(columns: Sequence[str], why: str) -> pa.Table:
    """Return the result of a task that cannot go on; `absent_reason` reads it."""
    return pa.table({**{name: pa.nulls(1, pa.int64()) for name in columns}, "note": pa.array([why])})


def absent_reason(changes: DataFrame) -> str | None:
    """Return why a plan from a cached graph has no result, or None if it has one; EXECUTES."""
    row = changes.where("epoch IS NULL").first()
    return None if row is None else str(row["note"])


def split_rows(rows: pa.Table, mark: str) -> tuple[pa.Table, pa.Table]:
    """Split rows into the edge intervals, whose `mark` is 0, and the stored rows of the result."""
    interval = pc.equal(rows[mark], 0)
    return rows.filter(interval), rows.filter(pc.invert(interval))


def split_moved(intervals: pa.Table) -> tuple[Rows, NDArray[np.bool_]]:
    """Return the intervals, and which of them the cached graph has seen, for the kernels that go on from it."""
    a, b, epoch, until, diff = to_longs(intervals, INTERVAL)
    return (a, b, epoch, until, diff), ~np.asarray(intervals["fresh"].to_numpy(), np.bool_)
