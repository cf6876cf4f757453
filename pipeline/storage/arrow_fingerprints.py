"""Fingerprints of a table's rows in memory: those that `table_fingerprints` has Spark compute, by kernels.

Law     Both are equal for all rows whose epoch and diff are there (law 11).
Cost    One pass over each column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.kernels import hashing

from .table_schemas import ALWAYS, INTERVALS, TIME

Longs = NDArray[np.int64]


def fingerprints_by_epoch(table: str, rows: pa.Table) -> dict[int, Fingerprint]:
    """Compute the fingerprint of the changes at each epoch. Epochs whose changes cancel are left out."""
    always = ALWAYS.get(table, ())
    named = sorted({*rows.column_names} - {*always} - {*TIME})
    return sum_by_epoch(interval_steps(rows) if table in INTERVALS else rows, always, named)


def interval_steps(intervals: pa.Table) -> pa.Table:
    """Return signed intervals as diff triples over epochs: an interval that ends has a second one."""
    ends = intervals.set_column(intervals.schema.get_field_index("epoch"), "epoch", intervals["until"])
    ends = ends.set_column(ends.schema.get_field_index("diff"), "diff", pc.negate(ends["diff"]))
    steps = pa.concat_tables([intervals, ends])
    return steps.filter(pc.less(steps["epoch"], FOREVER))


def sum_by_epoch(
    rows: pa.Table, columns: tuple[str, ...] | list[str], named: list[str] | None = None
) -> dict[int, Fingerprint]:
    """Sum the hashes of some columns, and of the columns `named` with their names, times `diff`, by epoch."""
    rows = rows.filter(pc.and_(rows["epoch"].is_valid(), rows["diff"].is_valid()))
    if not rows.num_rows:
        return {}
    hashes = hashing.begin_hashes(rows.num_rows)
    for column in columns:
        _hash_column(rows[column], hashes)
    for column in named or ():
        _hash_name(column, rows[column], hashes)
        _hash_column(rows[column], hashes)
    epoch, diff = (rows[name].to_numpy() for name in ("epoch", "diff"))
    order = np.argsort(epoch, kind="stable")
    epoch, diff, hashes = epoch[order], diff[order], hashes[:, order]
    starts = np.flatnonzero(np.append(True, epoch[1:] != epoch[:-1]))
    sums = {
        int(epoch[start]): Fingerprint(*hashing.weighted_sum(hashes[:, start:end], diff[start:end]))
        for start, end in zip(starts, np.append(starts[1:], epoch.size), strict=True)
    }
    return {at: each for at, each in sums.items() if each}


def _hash_column(column: pa.ChunkedArray, hashes: hashing.Hashes) -> None:
    valid = column.is_valid().to_numpy()
    if pa.types.is_string(column.type):
        hashing.hash_texts(*_bytes_of(column), valid, hashes)
    elif pa.types.is_boolean(column.type):
        hashing.hash_flags(column.fill_null(False).to_numpy(), valid, hashes)
    elif pa.types.is_floating(column.type):
        hashing.hash_doubles(column.fill_null(0.0).to_numpy(), valid, hashes)
    else:
        hashing.hash_longs(column.fill_null(0).to_numpy(), valid, hashes)


def _hash_name(name: str, column: pa.ChunkedArray, hashes: hashing.Hashes) -> None:
    """Hash the name of a column in the rows where it has a value."""
    hashing.hash_name(np.frombuffer(name.encode(), np.uint8), column.is_valid().to_numpy(), hashes)


def _bytes_of(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the offsets and the bytes of a column of texts."""
    array = column.combine_chunks()
    _, offsets, content = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return places, np.frombuffer(content or b"", np.uint8)
