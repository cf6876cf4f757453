"""The history of each vertex as rows that hold for an interval, from diff triples of several measures.

Shapes  Diff triples in arrays, sorted by vertex and epoch: vertex, epoch, measure, k, diff. `measure` is the number of
        a column that adds up, or `TRUSS`: then the diffs are of edges of trussness k at the vertex, and the column, the
        first one, is the greatest k of which the vertex has an edge. Rows: vertex, `[epoch, until)`, and each column.
Cost    One pass, and O(greatest k) for each vertex. Memory: the rows.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels.intervals import Longs

TRUSS = 0  # the measure of trussness, and its column


def history_rows(
    vertex: Longs, epoch: Longs, measure: Longs, k: Longs, diff: Longs, columns: int
) -> tuple[Longs, Longs, Longs, NDArray[np.int64]]:
    """Return vertex, epoch, until, values[row, column]: a row while no column changes; none while all are 0.

    >>> triples = [7, 7, 7], [1, 1, 5], [1, TRUSS, 1], [0, 3, 0], [2, 2, -1]
    >>> [found.tolist() for found in history_rows(*map(np.array, triples), columns=2)]
    [[7, 7], [1, 5], [5, 9223372036854775807], [[3, 2], [3, 1]]]
    """
    greatest = int(k.max()) if k.size else 0
    who, since, until, values = _history_kernel(vertex, epoch, measure, k, diff, columns, greatest)
    return who, since, until, values


@njit(cache=True, nogil=True)
def _history_kernel(vertex, epoch, measure, k, diff, columns, greatest):
    n = vertex.size
    who, since = np.empty(n, np.int64), np.empty(n, np.int64)
    until = np.full(n, FOREVER, np.int64)
    values = np.empty((n, columns), np.int64)
    edges = np.zeros(greatest + 1, np.int64)  # the edges of the vertex by trussness
    now = np.zeros(columns, np.int64)
    i, rows = 0, 0
    while i < n:
        v, open_, top, widest = vertex[i], -1, 0, 0
        now[:] = 0
        while i < n and vertex[i] == v:
            at = epoch[i]
            while i < n and vertex[i] == v and epoch[i] == at:
                if measure[i] == TRUSS:
                    edges[k[i]] += diff[i]
                    top = max(top, k[i])
                else:
                    now[measure[i]] += diff[i]
                i += 1
            widest = max(widest, top)
            while top > 0 and edges[top] == 0:
                top -= 1
            now[TRUSS] = top
            something, other = False, open_ < 0
            for column in range(columns):
                something |= now[column] != 0
                other |= open_ >= 0 and now[column] != values[open_, column]
            if not other:
                continue
            if open_ >= 0:
                until[open_] = at
                open_ = -1
            if something:
                who[rows], since[rows] = v, at
                values[rows] = now
                open_ = rows
                rows += 1
        edges[: widest + 1] = 0
    return who[:rows], since[:rows], until[:rows], values[:rows]
