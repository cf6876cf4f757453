"""A graph in cells: what many tasks need so that each of them meets some triangles, and together all of them once.

Vertices have colours; a cell is three colours, and holds the edges that two of them may join. A triangle belongs to the
cell of its corners' colours and to no other: what cells find adds up (Suri, Vassilvitskii 2011; `kernels/history`).
With p colours an edge is in p cells, and the largest of them hold about 6/p² of the edges.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms.kernels.intervals import Longs, longs

Colours = tuple[Longs, Longs]  # of both ends of each row


def in_cells(
    rows: DataFrame, colours: int, work: Callable[[pa.Table, Colours | None], pa.Table], schema: str
) -> DataFrame:
    """What `work` makes of each cell: rows with a and b, all columns, and their colours in a cell of just two different
    ones: there triangles of one colour are left to that colour's own cell."""
    colour_of = [F.pmod(F.hash(end), F.lit(colours)) for end in ("a", "b")]
    thirds = F.explode(F.array(*map(F.lit, range(colours))))
    coloured = rows.withColumns(dict(zip(("_x", "_y"), colour_of, strict=True))).withColumn("_z", thirds)
    low, high = F.least("_x", "_y", "_z"), F.greatest("_x", "_y", "_z")
    middle = F.col("_x") + F.col("_y") + F.col("_z") - low - high
    # one number, not the three colours: rows are sorted by it, and an array has no order that is cheap
    cells = coloured.withColumn("_cell", (low * colours + middle) * colours + high).drop("_z")

    def cell(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        of = table.drop_columns(["_x", "_y", "_cell"])
        x, y = longs(table, ["_x", "_y"])
        number = key[0].as_py()
        its = {number // colours**2, number // colours % colours, number % colours}
        return work(of, (x, y) if len(its) == 2 else None)

    return cells.groupBy("_cell").applyInArrow(cell, schema)


def of_ends(low: Longs, high: Longs, colours: Colours, a: Longs, b: Longs) -> Colours:
    """The colours of the ends of edges a, b, from those of the rows (low, high) that they were made of."""
    vertices, first = np.unique(np.concatenate([low, high]), return_index=True)
    of = np.concatenate(colours)[first]
    return of[np.searchsorted(vertices, a)], of[np.searchsorted(vertices, b)]
