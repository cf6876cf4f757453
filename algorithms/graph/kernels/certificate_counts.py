"""The two local facts that prove a trussness, and the triangles, of one cell of a graph: counts that add up over cells.

Law     With kappa = trussness - 2, and an order of the edges in which a lower kappa comes first: kappa is right for
        every edge if each has at least kappa triangles whose other edges have its kappa or more (not too high), and at
        most kappa triangles in which it comes first (not too low: if edges are removed in that order, no edge has more
        than kappa triangles left when it is removed, so that it is in no denser truss).
Shapes  a, b: int64[m], a < b, no edge twice; kappa: int32[m], label: int64[m], the order by both, then by the edge;
        colours: of the vertices, in a cell of just two different colors (`color_partitioning`).
Cost    O(m^1.5), as for `triangles.count_triangles`. Memory: about 60 bytes an edge besides these.
Source  `kernels/incremental_prover` follows changes; this module counts from scratch, and shares no code with it or
        with `kernels/partition_kernels`.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.atomics import take_slice
from altneu.algorithms.graph.kernels.graph import Colours, Ints, Shorts, orient_edges
from altneu.algorithms.graph.kernels.threads import sum_in_threads


class CertificateCounts(NamedTuple):
    """The counts of each edge, int32[m] each, in the caller's order.

    triangles: on the edge; backing: those whose other edges have its kappa or more; first: those in which it comes
    first.
    """

    triangles: Shorts
    backing: Shorts
    first: Shorts


def count_certificate(
    a: Ints, b: Ints, kappa: Shorts, label: Ints, colours: Colours | None = None
) -> CertificateCounts:
    """Count the triangles of each edge and the two facts that prove its trussness; the module docstring has the shapes.

    >>> a, b = np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4])
    >>> [column.tolist() for column in count_certificate(a, b, np.array([1, 1, 1, 0]), np.array([3, 2, 5, 0]))]
    [[1, 1, 1, 0], [1, 1, 1, 0], [0, 1, 0, 0]]
    """
    turn = np.empty(a.size, np.int32)
    turn[np.lexsort((b, a, label, kappa))] = np.arange(a.size, dtype=np.int32)
    graph = orient_edges(a, b)
    colour = np.full(graph.vertices.size, -1, np.int64)
    if colours is not None:
        colour = colours(graph.vertices)[graph.by_rank]
    kappa = np.asarray(kappa, np.int32)
    return CertificateCounts(
        *sum_in_threads(_count_share, graph.indptr, graph.head, graph.origin, colour, kappa, turn, rows=a.size)
    )


@njit(cache=True, nogil=True)
def _count_share(indptr, head, origin, colour, kappa, turn, reached):
    m, n = head.size, indptr.size - 1
    triangles, backing, first = np.zeros(m, np.int32), np.zeros(m, np.int32), np.zeros(m, np.int32)
    mark = np.full(n, -1, np.int32)
    low, high = take_slice(reached, n)
    while low < high:
        for u in range(low, high):
            for i in range(indptr[u], indptr[u + 1]):
                mark[head[i]] = origin[i]
            for i in range(indptr[u], indptr[u + 1]):
                v, x = head[i], origin[i]
                for j in range(indptr[v], indptr[v + 1]):
                    w, y = head[j], origin[j]
                    z = mark[w]
                    if z < 0 or (colour[u] >= 0 and colour[u] == colour[v] and colour[u] == colour[w]):
                        continue
                    least = min(kappa[x], kappa[y], kappa[z])
                    for e in (x, y, z):
                        triangles[e] += 1
                        backing[e] += kappa[e] == least
                    if turn[x] < turn[y] and turn[x] < turn[z]:
                        first[x] += 1
                    elif turn[y] < turn[z]:
                        first[y] += 1
                    else:
                        first[z] += 1
            for i in range(indptr[u], indptr[u + 1]):
                mark[head[i]] = -1
        low, high = take_slice(reached, n)
    return triangles, backing, first
