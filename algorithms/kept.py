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

from algorithms.kernels.intervals import Longs, longs
from algorithms.kernels.warm import Mismatch, Warm

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Rows = tuple[Longs, Longs, Longs, Longs, Longs]
CHUNK = 1 << 20  # rows that a task gives back at once
INTERVAL = ["a", "b", "epoch", "until", "diff"]


@dataclass(frozen=True)
class Files:
    """A folder of kept graphs. A task uses it only where a file `here` holds `token`: on the machine that it is on, or
    where that machine's files are shared."""

    folder: Path
    token: str

    def there(self) -> bool:
        try:
            return (self.folder / "here").read_text() == self.token
        except OSError:
            return False


@dataclass(frozen=True)
class Kept:
    """A graph that is kept under `key`, as it was at epoch `at`."""

    files: Files
    key: str
    at: int


def in_task(changes: Callable[[list[pa.RecordBatch]], Iterable[pa.Table]]) -> Task:
    """For `mapInArrow`: all rows of one task at once, for `changes` to take (`taken`); it gives back tables."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if parts:
            for table in changes(parts):
                yield from table.to_batches(max_chunksize=CHUNK)

    return task


def of_kind(frame: DataFrame, given: Sequence[str], kind: int, *columns: str) -> DataFrame:
    """Rows of one kind for a task that is given several: its number, then these columns, then zeros, under the names
    `given`, all bigint."""
    values = [F.lit(kind), *(F.col(name) for name in columns), *[F.lit(0)] * (len(given) - 1 - len(columns))]
    return frame.select(*(value.cast("bigint").alias(name) for value, name in zip(values, given, strict=True)))


def taken(parts: list[pa.RecordBatch], names: Sequence[str]) -> list[Longs]:
    """Some columns of all rows, in numpy's own memory: Arrow's is given back, and the list is empty afterwards."""
    columns = [np.concatenate([part[name].to_numpy() for part in parts]) for name in names]
    parts.clear()
    pa.default_memory_pool().release_unused()
    return columns


def resuming(kept: Kept, columns: Sequence[str], changes: Callable[[Warm, pa.Table], pa.Table]) -> Task:
    """A task that goes on from a kept graph. When it is not there any more, or the rows do not fit, its result is one
    row of nulls in these bigint columns, with the reason as its `note`."""

    def found(parts: list[pa.RecordBatch]) -> list[pa.Table]:
        graph = Warm.open(kept.files.folder, kept.key) if kept.files.there() else None
        if graph is None:
            return [none(columns, "the kept graph is not there any more")]
        try:
            return [changes(graph, pa.Table.from_batches(parts))]
        except Mismatch as error:
            return [none(columns, f"the kept graph does not fit: {error}")]

    return in_task(found)


def none(columns: Sequence[str], why: str) -> pa.Table:
    """The result of a task that cannot go on: see `absent`."""
    return pa.table({**{name: pa.nulls(1, pa.int64()) for name in columns}, "note": pa.array([why])})


def absent(changes: DataFrame) -> str | None:
    """Why the result of a plan from a kept graph is none; EXECUTES."""
    row = changes.where("epoch IS NULL").first()
    return None if row is None else str(row["note"])


def apart(rows: pa.Table, mark: str) -> tuple[pa.Table, pa.Table]:
    """The edge intervals, whose `mark` is 0, and what is stored of the result."""
    interval = pc.equal(rows[mark], 0)
    return rows.filter(interval), rows.filter(pc.invert(interval))


def moved(intervals: pa.Table) -> tuple[Rows, NDArray[np.bool_]]:
    """For the kernels that go on from a kept graph: the intervals, and those of them that the graph has seen."""
    a, b, epoch, until, diff = longs(intervals, INTERVAL)
    return (a, b, epoch, until, diff), ~np.asarray(intervals["fresh"].to_numpy(), np.bool_)
