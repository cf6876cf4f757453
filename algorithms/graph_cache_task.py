"""Graphs that one run keeps in files and a task of the next one goes on from: where they are, and what is said when one
is not there (`kernels/files` has them, `truss` and `triangles` the plans)."""

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
CHUNK = 1 << 20  # rows that a task gives back at once
INTERVAL = ["a", "b", "epoch", "until", "diff"]


@dataclass(frozen=True)
class GraphCacheLocation:
    """A folder of kept graphs. A task uses it only where a file `here` holds `token`: on the machine that it is on, or
    where that machine's files are shared."""

    folder: Path
    token: str

    def is_here(self) -> bool:
        try:
            return (self.folder / "here").read_text() == self.token
        except OSError:
            return False


@dataclass(frozen=True)
class CachedGraph:
    """A graph that is kept under `key`, as it was at epoch `at`."""

    files: GraphCacheLocation
    key: str
    at: int


def run_in_one_task(changes: Callable[[list[pa.RecordBatch]], Iterable[pa.Table]]) -> Task:
    """For `mapInArrow`: all rows of one task at once, for `changes` to take (`consume_columns`); it gives back
    tables."""

    def collect_and_run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if parts:
            for table in changes(parts):
                yield from table.to_batches(max_chunksize=CHUNK)

    return collect_and_run


def tag_rows(frame: DataFrame, given: Sequence[str], kind: int, *columns: str) -> DataFrame:
    """Rows of one kind for a task that is given several: its number, then these columns, then zeros, under the names
    `given`, all bigint."""
    values = [F.lit(kind), *(F.col(name) for name in columns), *[F.lit(0)] * (len(given) - 1 - len(columns))]
    return frame.select(*(value.cast("bigint").alias(name) for value, name in zip(values, given, strict=True)))


def consume_columns(parts: list[pa.RecordBatch], names: Sequence[str]) -> list[Longs]:
    """Some columns of all rows, in numpy's own memory: Arrow's is given back, and the list is empty afterwards."""
    columns = [np.concatenate([part[name].to_numpy() for part in parts]) for name in names]
    parts.clear()
    pa.default_memory_pool().release_unused()
    return columns


def resume_task(
    kept: CachedGraph, columns: Sequence[str], changes: Callable[[PersistentGraph, pa.Table], pa.Table]
) -> Task:
    """A task that goes on from a kept graph. When it is not there any more, or the rows do not fit, its result is one
    row of nulls in these bigint columns, with the reason as its `note`."""

    def run_from_graph(parts: list[pa.RecordBatch]) -> list[pa.Table]:
        graph = PersistentGraph.open_graph(kept.files.folder, kept.key) if kept.files.is_here() else None
        if graph is None:
            return [absent_result(columns, "the kept graph is not there any more")]
        try:
            return [changes(graph, pa.Table.from_batches(parts))]
        except StateMismatch as error:
            return [absent_result(columns, f"the kept graph does not fit: {error}")]

    return run_in_one_task(run_from_graph)


def absent_result(columns: Sequence[str], why: str) -> pa.Table:
    """The result of a task that cannot go on: see `absent_reason`."""
    return pa.table({**{name: pa.nulls(1, pa.int64()) for name in columns}, "note": pa.array([why])})


def absent_reason(changes: DataFrame) -> str | None:
    """Why the result of a plan from a kept graph is none; EXECUTES."""
    row = changes.where("epoch IS NULL").first()
    return None if row is None else str(row["note"])


def split_rows(rows: pa.Table, mark: str) -> tuple[pa.Table, pa.Table]:
    """The edge intervals, whose `mark` is 0, and what is stored of the result."""
    interval = pc.equal(rows[mark], 0)
    return rows.filter(interval), rows.filter(pc.invert(interval))


def split_moved(intervals: pa.Table) -> tuple[Rows, NDArray[np.bool_]]:
    """For the kernels that go on from a kept graph: the intervals, and those of them that the graph has seen."""
    a, b, epoch, until, diff = to_longs(intervals, INTERVAL)
    return (a, b, epoch, until, diff), ~np.asarray(intervals["fresh"].to_numpy(), np.bool_)
