"""The check of a trussness for the audit: a proof that neither peels nor shares code with the maintenance.

Law     With kappa = trussness - 2 and U as in `truss_maintenance`, two facts prove kappa right for every edge:
        none is too high if kappa <= U kappa (one enumeration of the triangles);
        none is too low if no set S of edges can rise by one, kappa + 1_S <= U(kappa + 1_S). The largest such S is
        found by starting from all edges and leaving out those without enough triangles, until all others have them.
Shapes  a, b: int64[m], a[i] < b[i], no edge twice; trussness: int[m], >= 2, for each edge.
Cost    One enumeration, and one intersection for each edge that leaves S. Memory: about 75 bytes an edge.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.atomics import take_slice
from altneu.algorithms.graph.kernels.graph import Ints, orient_edges, to_adjacency
from altneu.algorithms.graph.kernels.intersect import ALL, closing_pairs
from altneu.algorithms.graph.kernels.threads import sum_in_threads


class TrussnessVerdict(NamedTuple):
    """Positions in the input, int64, ascending. If both are empty, the trussness is right.

    too_high  edges without trussness - 2 triangles among edges of their trussness and above
    too_low   the edges that can all rise by one together
    """

    too_high: Ints
    too_low: Ints


def check_trussness(a: Ints, b: Ints, trussness: NDArray[np.integer]) -> TrussnessVerdict:
    """Return where a claimed trussness is wrong. A wrong value may make right neighbours suspect as well.

    >>> a, b = np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4])
    >>> [x.tolist() for x in check_trussness(a, b, np.array([3, 3, 3, 2]))]
    [[], []]
    >>> [x.tolist() for x in check_trussness(a, b, np.array([2, 2, 2, 3]))]
    [[3], [0, 1, 2]]
    """
    if trussness.shape != a.shape or (trussness < 2).any():
        raise ValueError(f"trussness must be {a.size} values >= 2, one per edge")
    graph = orient_edges(a, b)
    both = to_adjacency(graph)
    kappa = (np.asarray(trussness)[graph.origin] - 2).astype(np.int32)
    (backing,) = sum_in_threads(_count_backing, graph.indptr, graph.head, kappa, rows=a.size)
    high = graph.origin[backing < kappa].astype(np.int64)
    rises = _find_rising(both.indptr, both.neighbour, both.edge, graph.tail, graph.head, kappa, backing)
    low = graph.origin[rises].astype(np.int64)
    return TrussnessVerdict(np.sort(high), np.sort(low))


@njit(cache=True, nogil=True)
def _count_backing(indptr, head, kappa, reached):
    """Count for each edge the triangles whose other edges have its kappa or more, in the shares of one thread.

    If all edges rose by one, there would be as many: a triangle with both others at kappa(e) or more backs kappa(e) + 1
    if all three rise.
    """
    n = indptr.size - 1
    mark = np.full(n, -1, np.int32)
    backing = np.zeros(head.size, np.int32)
    low, high = take_slice(reached, n)
    while low < high:
        for u in range(low, high):
            for i in range(indptr[u], indptr[u + 1]):
                mark[head[i]] = i
            for i in range(indptr[u], indptr[u + 1]):
                v = head[i]
                for j in range(indptr[v], indptr[v + 1]):
                    k = mark[head[j]]
                    if k >= 0:
                        x, y, z = kappa[i], kappa[j], kappa[k]
                        backing[i] += y >= x and z >= x
                        backing[j] += x >= y and z >= y
                        backing[k] += x >= z and y >= z
            for i in range(indptr[u], indptr[u + 1]):
                mark[head[i]] = -1
        low, high = take_slice(reached, n)
    return (backing,)


@njit(cache=True, nogil=True)
def _find_rising(indptr, neighbour, edge, tail, head, kappa, backing):
    """Return the largest set that can rise by one, bool[m]. `backing` is used up."""
    m, n = tail.size, indptr.size - 1
    begin, end = indptr[:n].copy(), indptr[1:].copy()
    widest = 0
    for v in range(n):
        widest = max(widest, end[v] - begin[v])
    left, right = np.empty(widest, np.int32), np.empty(widest, np.int32)
    inside = np.ones(m, np.bool_)
    doomed = np.zeros(m, np.bool_)
    leaving = np.empty(m, np.int32)
    size = 0
    for e in range(m):
        if backing[e] <= kappa[e]:
            doomed[e] = True
            leaving[size] = e
            size += 1
    taken = 0
    while taken < size:
        e = leaving[taken]
        taken += 1
        k = kappa[e]
        inside[e] = False
        count, _ = closing_pairs(tail[e], head[e], begin, end, neighbour, edge, kappa, k, ALL, left, right)
        for t in range(count):
            f, other = left[t], right[t]
            for _ in range(2):
                # Only an edge of the same kappa needs e in order to rise.
                if kappa[f] == k and not doomed[f] and (kappa[other] > k or inside[other]):
                    backing[f] -= 1
                    if backing[f] <= k:
                        doomed[f] = True
                        leaving[size] = f
                        size += 1
                f, other = other, f
    return inside
