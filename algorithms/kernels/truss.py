"""The trussness of every edge, by peeling; the base that maintenance starts from and falls back to.

The k-truss is the largest subgraph in which every edge lies in at least k-2 triangles; the trussness of an
edge is the largest k such that the k-truss holds it, hence >= 2. `a, b`: int64[m], a[i] < b[i], no edge
twice, any order. Results are int32[m] in the caller's order. Cost: O(m^1.5) by degree order; 0.3-1.5
million edges a second on one thread for the graphs of the benchmarks. Memory: about 70 bytes an edge at the
peak; triangles are intersected on the fly and never stored.
Source: Wang, Cheng, "Truss decomposition in massive networks" (VLDB 2012), algorithm 2.
"""

# numba infers the types of its kernels from the arrays they get.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from algorithms.kernels.graph import Ints, Shorts, adjacency, orient
from algorithms.kernels.intersect import wings
from algorithms.kernels.triangles import oriented_support


def peel(a: Ints, b: Ints) -> Shorts:
    """Trussness by the bucket peel: take the edge of least support away, again and again.

    >>> peel(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4])).tolist()
    [3, 3, 3, 2]
    """
    graph = orient(a, b)
    support = oriented_support(graph.indptr, graph.head)
    both = adjacency(graph)
    kappa, _ = bucket_peel(both.indptr, both.neighbour, both.edge, graph.tail, graph.head, support)
    trussness = np.empty(kappa.size, np.int32)
    trussness[graph.origin] = kappa
    trussness += np.int32(2)
    return trussness


@njit(cache=True, nogil=True)
def bucket_peel(indptr, neighbour, edge, tail, head, support):
    """(kappa int32[m], order int32[m]): trussness - 2, and the edges in the order they were taken.

    `neighbour`, `edge` and `support` are used up: the lists are shortened in place as edges go.
    An edge has at most kappa triangles with edges that come after it in `order`.
    """
    m, n = tail.size, indptr.size - 1
    start, place, order = _buckets(support)
    begin, end = indptr[:n].copy(), indptr[1:].copy()
    gone = np.zeros(n, np.int32)
    kappa = np.empty(m, np.int32)
    widest = 0
    for v in range(n):
        widest = max(widest, end[v] - begin[v])
    left, right = np.empty(widest, np.int32), np.empty(widest, np.int32)
    for taken in range(m):
        e = order[taken]
        k = support[e]
        kappa[e] = k
        if start[k] <= taken:
            start[k] = taken + 1
        if k > 0:
            found, _ = wings(tail[e], head[e], begin, end, neighbour, edge, support, k, k, left, right)
            for t in range(found):
                _lower(left[t], k, support, start, place, order)
                _lower(right[t], k, support, start, place, order)
        support[e] = -1
        _forget(tail[e], begin, end, gone, neighbour, edge, support)
        _forget(head[e], begin, end, gone, neighbour, edge, support)
    return kappa, order


@njit(cache=True, nogil=True)
def _buckets(support):
    """Edges sorted by support: start of each bucket, place of each edge, edge at each place."""
    m = support.size
    greatest = 0
    for e in range(m):
        greatest = max(greatest, support[e])
    start = np.zeros(greatest + 2, np.int64)
    for e in range(m):
        start[support[e] + 1] += 1
    for s in range(greatest + 1):
        start[s + 1] += start[s]
    place, order = np.empty(m, np.int32), np.empty(m, np.int32)
    free = start.copy()
    for e in range(m):
        place[e] = free[support[e]]
        order[place[e]] = e
        free[support[e]] += 1
    return start, place, order


@njit(cache=True, nogil=True, inline="always")
def _lower(f, k, support, start, place, order):
    """One triangle less on f, but not below k: swap f with the first of its bucket and move the border."""
    s = support[f]
    if s > k:
        first = start[s]
        other = order[first]
        order[place[f]], place[other] = other, place[f]
        order[first], place[f] = f, first
        start[s] = first + 1
        support[f] = s - 1


@njit(cache=True, nogil=True, inline="always")
def _forget(v, begin, end, gone, neighbour, edge, support):
    """Count a dead entry in the list of v; when half of the list is dead, close it up (amortised O(1))."""
    gone[v] += 1
    if 2 * gone[v] > end[v] - begin[v]:
        kept = begin[v]
        for i in range(begin[v], end[v]):
            if support[edge[i]] >= 0:
                neighbour[kept] = neighbour[i]
                edge[kept] = edge[i]
                kept += 1
        end[v] = kept
        gone[v] = 0
