"""Color partitioning: a graph in cells, such that each triangle lies in exactly one of them, for work by many tasks.

Vertices have colors. A cell is three colors, and holds the edges that two of them may join. A triangle belongs to the
cell of its corners' colors and to no other, so that the results of the cells add up (Suri, Vassilvitskii 2011;
`kernels/triangle_history`). With p colors an edge is in p cells, and the largest of them hold about 6/p² of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray
from pyspark.sql import DataFrame

from altneu.algorithms.graph import arrow_packing
from altneu.algorithms.graph.kernels.graph import Colours, run_starts
from altneu.algorithms.graph.kernels.hashing import bucket_of_edges
from altneu.algorithms.graph.kernels.intervals import Longs, sort_order, to_longs

Columns = Sequence[NDArray[Any]]
CellTask = Callable[[Columns, Colours | None], Columns]
Give = Callable[[Columns], Iterator[pa.RecordBatch]]
DEALT = 1 << 20  # rows that are dealt at a time, for all cells together
LEAST_BUCKETS = 16
EDGE_BYTES = 350  # the memory of a task for each edge, by which sizes are computed
_PACKS = "{} int, n bigint, rows binary"


def map_cells(
    rows: DataFrame, types: Mapping[str, DTypeLike], colours: int, work: CellTask, returns: Sequence[str]
) -> DataFrame:
    """Return the results of `work` for each cell, concatenated. The cells are dealt in packs (`arrow_packing`).

    Args:
        rows: a and b among other columns.
        types: the columns that `work` receives, and their types.
        colours: the number of colors.
        work: receives the columns of a cell. In a cell of just two different colors it also receives the function that
            colors vertices: it has to leave triangles of one color to the cell of that color.
        returns: the names of the columns that `work` returns, whole numbers.
    """
    return _group_cells(rows, types, colours, work, partial(_to_batches, returns), _bigint_ddl(returns))


def fold_over_cells(
    rows: DataFrame,
    types: Mapping[str, DTypeLike],
    colours: int,
    *,
    work: CellTask,
    returns: Sequence[str],
    fold: np.ufunc,
    count: int,
    size: int,
) -> DataFrame:
    """Return a, b and values for each edge, folded over the cells that the edge is in, without edges whose values are
    all zero.

    The results of cells are dealt in packs, too: as rows they would take Spark longer than the counting in the cells.

    Args:
        rows: a and b among other columns.
        types: the columns that `work` receives, and their types.
        colours: the number of colors.
        work: as in `map_cells`; it returns a, b and the values.
        returns: the names of the values.
        fold: combines two values of one edge.
        count: about the number of edges.
        size: the number of edges for which a task has memory.
    """
    # a row of a bucket is in memory three times: packed, sorted, and folded
    buckets = max(LEAST_BUCKETS, -(-count * colours * 3 * 8 * (2 + len(returns)) // (size * EDGE_BYTES)))

    # from these type hints Spark knows that input and output are batches
    def fold_bucket(key: tuple[pa.Scalar, ...], dealt: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _to_batches(["a", "b", *returns], _fold_rows(fold, arrow_packing.unpack_columns(dealt, named)))

    named = dict.fromkeys(["a", "b", *returns], np.int64)
    packs = _group_cells(
        rows, types, colours, work, partial(_into_buckets, buckets, list(named)), _PACKS.format("bucket")
    )
    return packs.groupBy("bucket").applyInArrow(fold_bucket, _bigint_ddl(named)).hint(arrow_packing.UNPACKED)


def _group_cells(
    rows: DataFrame, types: Mapping[str, DTypeLike], colours: int, work: CellTask, give: Give, schema: str
) -> DataFrame:
    coloured = partial(color_vertices, number=colours)

    # from these type hints Spark knows that input and output are batches
    def process_cell(key: tuple[pa.Scalar, ...], dealt: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = key[0].as_py()
        its = {number // colours**2, number // colours % colours, number % colours}
        yield from give(work(arrow_packing.unpack_columns(dealt, types), coloured if len(its) == 2 else None))

    dealt = rows.select(*types).mapInArrow(partial(_deal_rows, colours), _PACKS.format("cell"))
    return dealt.groupBy("cell").applyInArrow(process_cell, schema)


def _bigint_ddl(names: Iterable[str]) -> str:
    return ", ".join(f"{name} bigint" for name in names)


def _to_batches(names: Sequence[str], columns: Columns) -> Iterator[pa.RecordBatch]:
    for start in range(0, columns[0].size, arrow_packing.MAX_PACK_ROWS):
        batch = [each[start : start + arrow_packing.MAX_PACK_ROWS].astype(np.int64, copy=False) for each in columns]
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in batch], names)


def _into_buckets(buckets: int, names: Sequence[str], columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield the packs of the edges with a value that is not zero, by a hash of the edge."""
    a, b, *values = columns
    nonzero = np.flatnonzero(reduce(np.logical_or, [value != 0 for value in values]))
    for start in range(0, nonzero.size, DEALT):
        at = nonzero[start : start + DEALT]
        rows = pa.RecordBatch.from_arrays([pa.array(each[at]) for each in columns], names)
        yield arrow_packing.packs_by_number("bucket", bucket_of_edges(a[at], b[at], buckets), rows)


def _fold_rows(fold: np.ufunc, rows: Columns) -> Columns:
    """Return each edge once, with its values folded.

    >>> [each.tolist() for each in _fold_rows(np.add, [np.array([2, 1, 2]), np.array([3, 2, 3]), np.array([5, 7, 1])])]
    [[1, 2], [2, 3], [7, 6]]
    """
    a, b, *values = rows
    order = sort_order([a, b])
    a, b = a[order], b[order]
    begins = run_starts(a, b)
    return [a[begins], b[begins], *(fold.reduceat(value[order], begins) for value in values)]


def _deal_rows(colours: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield packs of the rows for each cell; each row is in `colours` of them."""
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
