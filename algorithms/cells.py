"""A graph in cells: what many tasks need so that each of them meets some triangles, and together all of them once.

Vertices have colours; a cell is three colours, and holds the edges that two of them may join. A triangle belongs to the
cell of its corners' colours and to no other: what cells find adds up (Suri, Vassilvitskii 2011; `kernels/history`).
With p colours an edge is in p cells, and the largest of them hold about 6/p² of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray
from pyspark.sql import DataFrame

from algorithms import packs
from algorithms.kernels.graph import Colours
from algorithms.kernels.intervals import Longs, longs

Columns = Sequence[NDArray[Any]]
Work = Callable[[Columns, Colours | None], Columns]
DEALT = 1 << 20  # rows at a time, those of all cells together


def in_cells(
    rows: DataFrame, types: Mapping[str, DTypeLike], colours: int, work: Work, returns: Sequence[str]
) -> DataFrame:
    """What `work` makes of each cell: of the columns of its rows in these types, and, in a cell of just two different
    colours, of the colours of vertices: there triangles of one colour are left to that colour's own cell. rows: a and b
    among others; returns: the names of what it makes, whole numbers. Cells are dealt in packs (`packs`)."""
    coloured = partial(colour, number=colours)

    # by these types Spark knows that it may come, and go, in batches
    def cell(key: tuple[pa.Scalar, ...], dealt: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = key[0].as_py()
        its = {number // colours**2, number // colours % colours, number % colours}
        made = work(packs.columns(dealt, types), coloured if len(its) == 2 else None)
        for start in range(0, made[0].size, packs.MOST):
            some = [each[start : start + packs.MOST].astype(np.int64, copy=False) for each in made]
            yield pa.RecordBatch.from_arrays([pa.array(each) for each in some], returns)

    dealt = rows.select(*types).mapInArrow(partial(_dealt, colours), "cell int, n bigint, rows binary")
    return dealt.groupBy("cell").applyInArrow(cell, ", ".join(f"{name} bigint" for name in returns))


def _dealt(colours: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row for every cell that it is in: `colours` of them."""
    for batch in packs.gathered(rows, DEALT // colours):
        x, y = (colour(end, colours) for end in longs(batch, ["a", "b"]))
        ends = [np.repeat(each, colours) for each in (x, y)]
        low, middle, high = np.sort([*ends, np.tile(np.arange(colours), x.size)], axis=0)
        edge = pa.array(np.repeat(np.arange(x.size), colours))
        yield packs.dealt("cell", (low * colours + middle) * colours + high, batch.take(edge))


def colour(vertices: Longs, number: int) -> Longs:
    """Of each vertex, of so many: by a hash, so that no part of the ids decides."""
    x = vertices.astype(np.uint64)  # the last steps of splitmix64 (Steele, Lea, Flood 2014)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return ((x ^ x >> np.uint64(31)) % np.uint64(number)).astype(np.int64)
