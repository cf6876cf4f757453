"""One cell of the hypercube plan: the triangles x-y-z with one edge in each of three blocks.

A hypercube (Shares) plan cuts the vertices into parts and sends to a cell the edges between parts X and Y, X and Z,
Y and Z. A triangle x, y, z has its three edges in just one cell when every edge points one way (by degree order, say)
and a cell holds one ordered triple of parts; parts may coincide, and then a block may be passed more than once.
Shapes  Each block: (tails int64[m], heads int64[m]), sorted by (tail, head), no edge twice within a block.
Cost    O(sum over edges x-y of the y-z edges of y): small when edges point from lower to higher degree.
Memory  About 40 bytes an edge of the three blocks; nothing is kept between calls, so cells run in parallel.
Source  Afrati, Ullman, "Optimizing multiway joins in a map-reduce environment" (2011); Suri, Vassilvitskii (2011).
"""

# numba infers the types of its kernels from the arrays they get.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from algorithms.kernels.graph import Ints

Block = tuple[Ints, Ints]


class CellCounts(NamedTuple):
    """Triangles in the cell; on each edge of each block (int64, in its order); on each vertex, ids sorted."""

    total: int
    xy: Ints
    xz: Ints
    yz: Ints
    vertices: Ints
    per_vertex: Ints


def count_cell(xy: Block, xz: Block, yz: Block) -> CellCounts:
    """The triangles with x-y in xy, x-z in xz and y-z in yz.

    >>> block = np.array([1, 1, 2]), np.array([2, 3, 3])
    >>> counts = count_cell(block, block, block)
    >>> counts.total, counts.xy.tolist(), counts.vertices.tolist(), counts.per_vertex.tolist()
    (1, [1, 0, 0], [1, 2, 3], [1, 1, 1])
    """
    for name, block in (("xy", xy), ("xz", xz), ("yz", yz)):
        _check_sorted(name, block)
    # Only vertices that can be a corner: x in both its blocks, and so on.
    xs, ys, zs = np.unique(xy[0]), np.unique(xy[1]), np.unique(xz[1])
    xy_y, xz_z = np.searchsorted(ys, xy[1]), np.searchsorted(zs, xz[1])
    xy_at, xz_at = np.append(np.searchsorted(xy[0], xs), xy[0].size), _starts(xz[0], xs)
    yz_at = _starts(yz[0], ys)
    yz_z = np.searchsorted(zs, yz[1])
    yz_z[yz_z == zs.size] = 0
    if zs.size:
        yz_z[zs[yz_z] != yz[1]] = -1
    else:
        yz_z[:] = -1
    on_xy, on_xz, on_yz = _count(xy_at, xy_y, xz_at, xz_z, yz_at, yz_z, zs.size)
    vertices, per_vertex = _per_vertex(((xy[0], on_xy), (xy[1], on_xy), (xz[1], on_xz)))
    return CellCounts(int(on_xy.sum()), on_xy, on_xz, on_yz, vertices, per_vertex)


def _starts(tails: Ints, of: Ints) -> Ints:
    """int64[n, 2]: where the edges of each vertex begin and end among sorted tails."""
    return np.stack([np.searchsorted(tails, of), np.searchsorted(tails, of, side="right")], axis=1)


def _check_sorted(name: str, block: Block) -> None:
    tail, head = block
    ahead = (tail[1:] > tail[:-1]) | ((tail[1:] == tail[:-1]) & (head[1:] > head[:-1]))
    if not ahead.all():
        i = int(np.argmin(ahead)) + 1
        raise ValueError(f"block {name} is not sorted without repeats: row {i} is ({tail[i]}, {head[i]})")


def _per_vertex(weighted: tuple[tuple[Ints, Ints], ...]) -> tuple[Ints, Ints]:
    """Sum the counts by vertex: a triangle is on one x-y edge (for x and y) and on one x-z edge (for z)."""
    ids = np.concatenate([vertex for vertex, _ in weighted])
    vertices, index = np.unique(ids, return_inverse=True)
    total = np.zeros(vertices.size, np.int64)
    np.add.at(total, index, np.concatenate([count for _, count in weighted]))
    kept = total > 0
    return vertices[kept], total[kept]


@njit(cache=True, nogil=True)
def _count(xy_at, xy_y, xz_at, xz_z, yz_at, yz_z, n):
    mark = np.full(n, -1, np.int64)
    xy, xz, yz = np.zeros(xy_y.size, np.int64), np.zeros(xz_z.size, np.int64), np.zeros(yz_z.size, np.int64)
    for x in range(xz_at.shape[0]):
        first, last = xz_at[x, 0], xz_at[x, 1]
        if first == last:
            continue
        for i in range(first, last):
            mark[xz_z[i]] = i
        for i in range(xy_at[x], xy_at[x + 1]):
            y = xy_y[i]
            for j in range(yz_at[y, 0], yz_at[y, 1]):
                if yz_z[j] >= 0 and mark[yz_z[j]] >= 0:
                    xy[i] += 1
                    xz[mark[yz_z[j]]] += 1
                    yz[j] += 1
        for i in range(first, last):
            mark[xz_z[i]] = -1
    return xy, xz, yz
