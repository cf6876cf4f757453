"""A second opinion on the trussness of every edge: the bucket peel, one edge at a time.

Same contract as `truss.peel` and the same answer, by another order of removal: always the edge of least
support, kept sorted in buckets. Three times slower than the batch peel (each lowered support moves three
array entries), so it serves tests and audits, not maintenance. Cost: O(m^1.5) by degree order. Memory:
about 80 bytes an edge at the peak.
Source: Wang, Cheng, "Truss decomposition in massive networks" (VLDB 2012), algorithm 2.
"""

# numba infers the types of its kernels from the arrays they get.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.graph import Ints, Shorts, orient_edges, to_adjacency
from altneu.algorithms.graph.kernels.intersect import closing_pairs
from altneu.algorithms.graph.kernels.triangles import oriented_support


def bucket_trussness(a: Ints, b: Ints) -> Shorts:
    """Trussness by taking the edge of least support away, again and again.

    >>> bucket_trussness(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4])).tolist()
    [3, 3, 3, 2]
    """
    graph = orient_edges(a, b)
    support = oriented_support(graph.indptr, graph.head)
    both = to_adjacency(graph)
    kappa = bucket_peel(both.indptr, both.neighbour, both.edge, graph.tail, graph.head, support)
    trussness = np.empty(kappa.size, np.int32)
    trussness[graph.origin] = kappa
    trussness += np.int32(2)
    return trussness


@njit(cache=True, nogil=True)
def bucket_peel(indptr, neighbour, edge, tail, head, support):
    """kappa int32[m], trussness - 2. `support` is used up."""
    m, n = tail.size, indptr.size - 1
    start, place, order = _buckets(support)
    begin, end = indptr[:n].copy(), indptr[1:].copy()
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
            found, _ = closing_pairs(tail[e], head[e], begin, end, neighbour, edge, support, k, k, left, right)
            for t in range(found):
                _lower(left[t], k, support, start, place, order)
                _lower(right[t], k, support, start, place, order)
        support[e] = -1
    return kappa


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
