"""A graph in cells: what many tasks need so that each of them meets some triangles, and together all of them once.

Vertices have colours; a cell is three colours, and holds the edges that two of them may join. A triangle belongs to the
cell of its corners' colours and to no other: what cells find adds up (Suri, Vassilvitskii 2011; `kernels/history`).
With p colours an edge is in p cells, and the largest of them hold about 6/p² of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray
from pyspark.sql import DataFrame

from algorithms import arrow_packing
from algorithms.kernels.graph import Colours, run_starts
from algorithms.kernels.hashing import bucket_of_edges
from algorithms.kernels.intervals import Longs, sort_order, to_longs

Columns = Sequence[NDArray[Any]]
Work = Callable[[Columns, Colours | None], Columns]
Give = Callable[[Columns], Iterator[pa.RecordBatch]]
DEALT = 1 << 20  # rows at a time, those of all cells together
LEAST_BUCKETS = 16
EDGE_BYTES = 350  # of a task for each edge: what sizes are reckoned with
_PACKS = "{} int, n bigint, rows binary"


def map_cells(
    rows: DataFrame, types: Mapping[str, DTypeLike], colours: int, work: Work, returns: Sequence[str]
) -> DataFrame:
    """What `work` makes of each cell: of the columns of its rows in these types, and, in a cell of just two different
    colours, of the colours of vertices: there triangles of one colour are left to that colour's own cell. rows: a and b
    among others; returns: the names of what it makes, whole numbers. Cells are dealt in packs (`packs`)."""
    return _group_cells(rows, types, colours, work, partial(_to_batches, returns), _bigint_ddl(returns))


def fold_over_cells(
    rows: DataFrame,
    types: Mapping[str, DTypeLike],
    colours: int,
    *,
    work: Work,
    returns: Sequence[str],
    fold: np.ufunc,
    count: int,
    size: int,
) -> DataFrame:
    """a, b, and the values `returns` of each edge, folded over the cells that it is in: of an edge whose values are all
    zero nothing. `work`: as in `map_cells`, it makes a, b and the values; count: how many edges there are, about; size:
    as many as a task has memory for. What cells make is dealt in packs, too: as rows it takes Spark longer than cells
    take to count."""
    # a row of a bucket is there three times: packed, in order, and folded
    buckets = max(LEAST_BUCKETS, -(-count * colours * 3 * 8 * (2 + len(returns)) // (size * EDGE_BYTES)))

    # by these types Spark knows that it may come, and go, in batches
    def fold_bucket(key: tuple[pa.Scalar, ...], dealt: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _to_batches(["a", "b", *returns], _fold_rows(fold, arrow_packing.unpack_columns(dealt, named)))

    named = dict.fromkeys(["a", "b", *returns], np.int64)
    found = _group_cells(
        rows, types, colours, work, partial(_into_buckets, buckets, list(named)), _PACKS.format("bucket")
    )
    return found.groupBy("bucket").applyInArrow(fold_bucket, _bigint_ddl(named)).hint(arrow_packing.UNPACKED)


def _group_cells(
    rows: DataFrame, types: Mapping[str, DTypeLike], colours: int, work: Work, give: Give, schema: str
) -> DataFrame:
    coloured = partial(color_vertices, number=colours)

    # by these types Spark knows that it may come, and go, in batches
    def process_cell(key: tuple[pa.Scalar, ...], dealt: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = key[0].as_py()
        its = {number // colours**2, number // colours % colours, number % colours}
        yield from give(work(arrow_packing.unpack_columns(dealt, types), coloured if len(its) == 2 else None))

    dealt = rows.select(*types).mapInArrow(partial(_deal_rows, colours), _PACKS.format("cell"))
    return dealt.groupBy("cell").applyInArrow(process_cell, schema)


def _bigint_ddl(names: Iterable[str]) -> str:
    return ", ".join(f"{name} bigint" for name in names)


def _to_batches(names: Sequence[str], made: Columns) -> Iterator[pa.RecordBatch]:
    for start in range(0, made[0].size, arrow_packing.MOST):
        some = [each[start : start + arrow_packing.MOST].astype(np.int64, copy=False) for each in made]
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in some], names)


def _into_buckets(buckets: int, names: Sequence[str], made: Columns) -> Iterator[pa.RecordBatch]:
    """Edges with a value that is not zero, by a hash."""
    a, b, *values = made
    some = np.flatnonzero(reduce(np.logical_or, [value != 0 for value in values]))
    for start in range(0, some.size, DEALT):
        at = some[start : start + DEALT]
        rows = pa.RecordBatch.from_arrays([pa.array(each[at]) for each in made], names)
        yield arrow_packing.packs_by_number("bucket", bucket_of_edges(a[at], b[at], buckets), rows)


def _fold_rows(fold: np.ufunc, rows: Columns) -> Columns:
    """Each edge once.

    >>> [each.tolist() for each in _fold_rows(np.add, [np.array([2, 1, 2]), np.array([3, 2, 3]), np.array([5, 7, 1])])]
    [[1, 2], [2, 3], [7, 6]]
    """
    a, b, *values = rows
    order = sort_order([a, b])
    a, b = a[order], b[order]
    begins = run_starts(a, b)
    return [a[begins], b[begins], *(fold.reduceat(value[order], begins) for value in values)]


def _deal_rows(colours: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row for every cell that it is in: `colours` of them."""
    for batch in arrow_packing.gather_batches(rows, DEALT // colours):
        x, y = (color_vertices(end, colours) for end in to_longs(batch, ["a", "b"]))
        ends = [np.repeat(each, colours) for each in (x, y)]
        low, middle, high = np.sort([*ends, np.tile(np.arange(colours), x.size)], axis=0)
        edge = pa.array(np.repeat(np.arange(x.size), colours))
        yield arrow_packing.packs_by_number("cell", (low * colours + middle) * colours + high, batch.take(edge))


def color_vertices(vertices: Longs, number: int) -> Longs:
    """Return the color of each vertex, out of `number`, by a hash, so that ids with a pattern are spread."""
    x = vertices.astype(np.uint64)  # the last steps of splitmix64 (Steele, Lea, Flood 2014)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return ((x ^ x >> np.uint64(31)) % np.uint64(number)).astype(np.int64)
