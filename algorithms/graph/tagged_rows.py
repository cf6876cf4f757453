"""Rows of several kinds in one frame, as one task takes and returns them: the column `kind` says what a row is.

Shapes   Input: `kind` and numbers, all bigint, whose meaning follows from the kind (`RowKind`); a kind with fewer
         numbers than another has zeros in the rest. Output: `RESULT`; a kind has nulls in the columns that it does not
         name. These rows pass between a task and its driver, and are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from altneu.algorithms.graph.kernels.intervals import Longs
from altneu.algorithms.sql_text import quote_identifiers

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
CHUNK = 1 << 20  # rows that a task returns at once
INTERVAL = ["a", "b", "epoch", "until", "diff"]
NUMBERS = ["a", "b", "k", "epoch", "diff", "label", "own", "backing"]
RESULT = ", ".join(["kind tinyint", *(f"{name} bigint" for name in NUMBERS), "note string"])


class RowKind(IntEnum):
    """The kinds of rows, each with its columns."""

    INTERVAL = 0  # input: `INTERVAL`, and `fresh` where the task goes on from a state that has not seen all
    STORED = 1  # input: a stored diff of what the task computes
    CERTIFICATE = 2  # input: a, b, level, label, own, backing, diff; output: with k instead of level
    DEGREE = 3  # input: a vertex and its degree
    LOOKUP = 4  # input and output: a, b, level (k): an edge whose triangles are looked up
    SIZE = 5  # output: the number of edges that a task knows, and the ends of its labels, as a, b, k
    CHANGE = 6  # output: a, b, k, epoch, diff of a trussness; a (the vertex), epoch, diff of a count
    NOTE = 7  # output: epoch, and what its maintenance did, as JSON
    PROOF = 8  # output: the proof as a note (`proof_records.Proof`)
    CHECKPOINT = 9  # output: the note is JSON: the ends of the labels, and whether the certificates are all
    UNFIT = 10  # output: the note says why there is no result


def kind_column(kind: RowKind) -> Column:
    return F.lit(int(kind)).cast("tinyint").alias("kind")


def rows_of_kind(rows: DataFrame, *kinds: RowKind) -> DataFrame:
    """Return the rows of some kinds."""
    return rows.where(f"kind IN ({', '.join(str(int(kind)) for kind in kinds)})")


def unfit_reason(rows: DataFrame) -> str | None:
    """Return why a task has no result, or None if it has one; EXECUTES."""
    row = rows_of_kind(rows, RowKind.UNFIT).first()
    return None if row is None else str(row["note"])


def input_columns(width: int) -> list[str]:
    """Return the names of the columns of a task's input with so many numbers."""
    return ["kind", *"abcdefgh"[:width]]


def tag_rows(width: int, rows: DataFrame, kind: RowKind, *columns: str) -> DataFrame:
    """Return rows of one kind as the input of a task.

    Args:
        width: how many numbers a row of the input has.
        rows: the rows.
        kind: their kind.
        columns: the columns that are its numbers, in order.
    """
    values = [str(int(kind)), *quote_identifiers(columns), *["0"] * (width - len(columns))]
    named = zip(values, input_columns(width), strict=True)
    return rows.selectExpr(*(f"CAST({value} AS BIGINT) AS {name}" for value, name in named))


def input_table(width: int, kind: RowKind, *columns: Longs) -> pa.Table:
    """Return rows of one kind as the input of a task; there is at least one column."""
    size = columns[0].size
    zeros = [np.zeros(size, np.int64)] * (width - len(columns))
    return pa.table(dict(zip(input_columns(width), [np.full(size, int(kind)), *columns, *zeros], strict=True)))


def take_kinds(parts: list[pa.RecordBatch], width: int, *kinds: RowKind) -> list[list[Longs]]:
    """Return the numbers of the rows of each kind in numpy's own memory.

    Arrow's memory is freed, and the list of batches is empty afterwards.
    """
    kind, *columns = (np.concatenate([part[name].to_numpy() for part in parts]) for name in input_columns(width))
    parts.clear()
    pa.default_memory_pool().release_unused()
    return [[column[kind == wanted] for column in columns] for wanted in kinds]


def result_table(kind: RowKind, note: str | list[str] | None = None, /, **numbers: Longs | int) -> pa.Table:
    """Return rows of one kind as the output of a task (`RESULT`). A single value holds for all rows."""
    lists = [value for value in (note, *numbers.values()) if isinstance(value, (list, np.ndarray))]
    size = len(lists[0]) if lists else 1
    columns = {"kind": pa.array(np.full(size, int(kind), np.int8))}
    for name in NUMBERS:
        columns[name] = pa.nulls(size, pa.int64())
        if name in numbers:
            columns[name] = pa.array(np.broadcast_to(np.asarray(numbers[name], np.int64), size))
    notes = note if isinstance(note, list) else [note] * size
    return pa.table(columns | {"note": pa.array(notes, pa.string())})


def run_in_one_task(changes: Callable[[list[pa.RecordBatch]], Iterable[pa.Table]]) -> Task:
    """Return the function for `mapInArrow` that passes all rows of one task to `changes`, which returns tables.

    `changes` receives the batches as a list that it may empty (`take_kinds`).
    """

    def collect_and_run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if parts:
            for table in changes(parts):
                yield from table.to_batches(max_chunksize=CHUNK)

    return collect_and_run


def compute_in_one_task(task: Task, *inputs: DataFrame) -> DataFrame:
    """Return the rows (`RESULT`) that a task makes of its inputs."""
    rows = inputs[0]
    for each in inputs[1:]:
        rows = rows.unionByName(each)
    return rows.coalesce(1).mapInArrow(task, RESULT)
