"""The trussness of every edge by the batch peel, from which maintenance starts and to which it falls back.

The k-truss is the largest subgraph in which every edge lies in at least k-2 triangles; the trussness of an edge is the
largest k such that the edge is in the k-truss, hence >= 2. kappa = trussness - 2. `a, b`: int64[m], a[i] < b[i], no
edge twice, any order. Results are int32[m] in the caller's order.

For k = 0, 1, ...: remove, in one batch, all edges with at most k triangles left; repeat until there are none. These
edges have kappa k. The batches, numbered through, are the layers: at the start of its batch an edge has at most kappa
triangles with edges of its own or a later layer. That is the certificate that `truss_maintenance.raise_levels` uses.

Cost    O(m^1.5) by degree order, and one scan of the remaining edges per level. Memory: about 70 bytes an edge at the
        peak; triangles are intersected on the fly and never stored.
Source  Kabir, Madduri, "Shared-memory graph truss decomposition" (HiPC 2017), on one thread.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.graph import Ints, Shorts, both_ways, orient_edges
from altneu.algorithms.graph.kernels.intersect import closing_pairs
from altneu.algorithms.graph.kernels.triangles import oriented_support


def peel(a: Ints, b: Ints) -> Shorts:
    """Return the trussness of every edge.

    >>> peel(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4])).tolist()
    [3, 3, 3, 2]
    """
    return peel_layers(a, b)[0]


def peel_layers(a: Ints, b: Ints) -> tuple[Shorts, Shorts]:
    """Return (trussness, layer) of every edge; layers count from 1 over all levels.

    >>> [x.tolist() for x in peel_layers(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4]))]
    [[3, 3, 3, 2], [2, 2, 2, 1]]
    """
    graph = orient_edges(a, b)
    trussness, layer = np.empty(graph.head.size, np.int32), np.empty(graph.head.size, np.int32)
    kappa, batch = batch_peel(graph.indptr, graph.tail, graph.head)
    trussness[graph.origin] = kappa
    trussness += np.int32(2)
    layer[graph.origin] = batch
    return trussness, layer


def batch_peel(indptr: Ints, tail: Shorts, head: Shorts) -> tuple[Shorts, Shorts]:
    """Return (kappa int32[m], layer int32[m]) of an oriented graph with sorted lists."""
    layer, none = np.empty(head.size, np.int32), np.empty(0, np.int32)
    support = oriented_support(indptr, head)
    both, neighbour, edge = both_ways(indptr, tail, head)
    _take_batches(both, neighbour, edge, tail, head, support, layer, none, none)
    return support, layer


class PeelOrder(NamedTuple):
    """The order of a peel, int32[m] each.

    kappa; place: 1..m in the order in which the peel removed the edges, a sharper certificate than layers; own: the
    triangles left on the edge when it was removed; backing: those with both others at its kappa or more.
    """

    kappa: Shorts
    place: Shorts
    own: Shorts
    backing: Shorts


def ordered_peel(indptr: Ints, tail: Shorts, head: Shorts) -> PeelOrder:
    """Return the state from which maintenance starts, of an oriented graph with sorted lists."""
    place, own, backing = (np.zeros(head.size, np.int32) for _ in range(3))
    support = oriented_support(indptr, head)
    both, neighbour, edge = both_ways(indptr, tail, head)
    _take_batches(both, neighbour, edge, tail, head, support, place, own, backing)
    return PeelOrder(support, place, own, backing)


@njit(cache=True, nogil=True)
def _take_batches(indptr, neighbour, edge, tail, head, support, layer, own, backing):
    """Turn support into kappa and write the layers, both in place; neighbour and edge are used up.

    If own and backing are not empty, they are written too, and the order instead of the layers (`PeelOrder`).
    """
    m, n = tail.size, indptr.size - 1
    ordered = own.size > 0
    begin, end = indptr[:n].copy(), indptr[1:].copy()
    gone = np.zeros(n, np.int32)
    widest = 0
    for v in range(n):
        widest = max(widest, end[v] - begin[v])
    left, right = np.empty(widest, np.int32), np.empty(widest, np.int32)
    rest, batch, coming = np.arange(m).astype(np.int32), np.empty(m, np.int32), np.empty(m, np.int32)
    remaining, k, number, taken = m, 0, 0, 0
    while remaining > 0:
        remaining, size, k = _start_level(k, rest, remaining, support, batch, backing)
        while size > 0:
            number += 1
            joined = 0
            for i in range(size):
                e = batch[i]
                u, v = tail[e], head[e]
                count = 0
                if k > 0:
                    # The edge has at most k triangles left, so that the search may stop after k.
                    count, _ = closing_pairs(u, v, begin, end, neighbour, edge, support, k, k, left, right)
                    for t in range(count):
                        joined = _lose_triangle(left[t], k, support, coming, joined)
                        joined = _lose_triangle(right[t], k, support, coming, joined)
                taken += 1
                layer[e] = taken if ordered else number
                if ordered:
                    own[e] = count
                support[e] = ~k  # negative: gone
                _drop_dead_entry(u, begin, end, gone, neighbour, edge, support)
                _drop_dead_entry(v, begin, end, gone, neighbour, edge, support)
            batch, coming = coming, batch
            size = joined
        k += 1
    for e in range(m):
        support[e] = ~support[e]


@njit(cache=True, nogil=True)
def _start_level(k, rest, remaining, support, batch, backing):
    """Move the edges with support <= k from rest to batch; if there are none, raise k to the least support.

    At this moment the lower levels are removed and nothing of this one is: the support is the backing of the edges that
    this level will remove.
    """
    wanted = backing.size > 0
    while True:
        kept, size, least = 0, 0, 2**31 - 1
        for i in range(remaining):
            e = rest[i]
            s = support[e]
            if s < 0:
                continue
            if wanted:
                backing[e] = s
            if s <= k:
                batch[size] = e
                size += 1
            else:
                rest[kept] = e
                kept += 1
                least = min(least, s)
        remaining = kept
        if size > 0 or kept == 0:
            return remaining, size, k
        k = least


@njit(cache=True, nogil=True, inline="always")
def _lose_triangle(f, k, support, coming, joined):
    """Subtract one triangle from f, but not below k; at k it joins the next batch."""
    s = support[f]
    if s > k:
        support[f] = s - 1
        if s - 1 == k:
            coming[joined] = f
            joined += 1
    return joined


@njit(cache=True, nogil=True, inline="always")
def _drop_dead_entry(v, begin, end, gone, neighbour, edge, support):
    """Count a dead entry in the list of v; close the list up when a quarter is dead (amortised O(1))."""
    gone[v] += 1
    if 4 * gone[v] > end[v] - begin[v]:
        kept = begin[v]
        for i in range(begin[v], end[v]):
            if support[edge[i]] >= 0:
                neighbour[kept] = neighbour[i]
                edge[kept] = edge[i]
                kept += 1
        end[v] = kept
        gone[v] = 0
