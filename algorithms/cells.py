"""A graph in cells: what many tasks need so that each of them meets some triangles, and together all of them once.

Vertices have colours; a cell is three colours, and holds the edges that two of them may join. A triangle belongs to the
cell of its corners' colours and to no other: what cells find adds up (Suri, Vassilvitskii 2011; `kernels/history`).
With p colours an edge is in p cells, and the largest of them hold about 6/p² of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from algorithms import packs
from algorithms.kernels.intervals import Longs, longs

Colours = tuple[Longs, Longs]  # of both ends of each row
DEALT = 1 << 20  # rows at a time, those of all cells together


def in_cells(
    rows: DataFrame, colours: int, work: Callable[[pa.Table, Colours | None], pa.Table], schema: str
) -> DataFrame:
    """What `work` makes of each cell: rows with a and b, all columns, and their colours in a cell of just two different
    ones: there triangles of one colour are left to that colour's own cell. Cells are dealt in packs (`packs`)."""
    names = rows.columns

    def cell(key: tuple[pa.Scalar, ...], dealt: pa.Table) -> pa.Table:
        of, number = packs.read(dealt, names), key[0].as_py()
        its = {number // colours**2, number // colours % colours, number % colours}
        return work(of, _coloured(of, colours) if len(its) == 2 else None)

    dealt = rows.mapInArrow(partial(_dealt, colours), "cell int, n bigint, rows binary")
    return dealt.groupBy("cell").applyInArrow(cell, schema)


def _dealt(colours: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row for every cell that it is in: `colours` of them."""
    for batch in packs.gathered(rows, DEALT // colours):
        x, y = _coloured(batch, colours)
        ends = [np.repeat(each, colours) for each in (x, y)]
        low, middle, high = np.sort([*ends, np.tile(np.arange(colours), x.size)], axis=0)
        edge = pa.array(np.repeat(np.arange(x.size), colours))
        yield packs.dealt("cell", (low * colours + middle) * colours + high, batch.take(edge))


def _coloured(rows: pa.Table | pa.RecordBatch, colours: int) -> Colours:
    """Of both ends: by a hash, so that no part of the ids decides."""
    of = []
    for end in longs(rows, ["a", "b"]):
        x = end.astype(np.uint64)  # the last steps of splitmix64 (Steele, Lea, Flood 2014)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        of.append(((x ^ x >> np.uint64(31)) % np.uint64(colours)).astype(np.int64))
    return of[0], of[1]


def of_ends(low: Longs, high: Longs, colours: Colours, a: Longs, b: Longs) -> Colours:
    """The colours of the ends of edges a, b, from those of the rows (low, high) that they were made of."""
    vertices, first = np.unique(np.concatenate([low, high]), return_index=True)
    of = np.concatenate(colours)[first]
    return of[np.searchsorted(vertices, a)], of[np.searchsorted(vertices, b)]
