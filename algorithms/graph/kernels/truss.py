"""The trussness of every edge by the batch peel, from which maintenance starts and to which it falls back.

The k-truss is the largest subgraph in which every edge lies in at least k-2 triangles; the trussness of an edge is the
largest k such that the edge is in the k-truss, hence >= 2. kappa = trussness - 2. `a, b`: int64[m], a[i] < b[i], no
edge twice, any order. Results are int32[m] in the caller's order.

For k = 0, 1, ...: remove, in one batch, all edges with at most k triangles left; repeat until there are none. These
edges have kappa k. The batches, numbered through, are the layers: at the start of its batch an edge has at most kappa
triangles with edges of its own or a later layer. That is the certificate that `truss_maintenance.raise_levels` uses.

Cost    O(m^1.5) by degree order, and one scan of the remaining edges per level. Memory: about 70 bytes an edge at the
        peak; triangles are intersected on the fly and never stored.
        A batch is taken in order of the edges' numbers, so that the result is the same whether one thread takes it or
        several do (`parallel_peel`, where there are cores for it).
Source  Kabir, Madduri, "Shared-memory graph truss decomposition" (HiPC 2017).
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels import parallel_peel
from altneu.algorithms.graph.kernels.graph import MOST_EDGES, Ints, Shorts, both_ways, orient_edges
from altneu.algorithms.graph.kernels.intersect import closing_pairs
from altneu.algorithms.graph.kernels.parallel_peel import (
    LEVEL,
    NUMBER,
    REMAINING,
    SIZE,
    TAKEN,
    PeelState,
    drop_dead_entry,
    take_large_batch,
)
from altneu.algorithms.graph.kernels.threads import free_threads
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
    return _peel_edges(indptr, tail, head, layer, none, none), layer


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
    return PeelOrder(_peel_edges(indptr, tail, head, place, own, backing), place, own, backing)


def _peel_edges(indptr: Ints, tail: Shorts, head: Shorts, layer: Shorts, own: Shorts, backing: Shorts) -> Shorts:
    """Return kappa and write the layers; if own and backing are not empty, write them and the order (`PeelOrder`)."""
    support = oriented_support(indptr, head)
    both, neighbour, edge = both_ways(indptr, tail, head)
    m, n, threads = head.size, both.size - 1, free_threads()
    widest = int((both[1:] - both[:-1]).max(initial=0))
    state = PeelState(
        begin=both[:n].copy(),
        end=both[1:].copy(),
        gone=np.zeros(n, np.int32),
        neighbour=neighbour,
        edge=edge,
        tail=tail,
        head=head,
        support=support,
        alive=np.ones(m if threads > 1 else 0, np.uint8),
        layer=layer,
        own=own,
        backing=backing,
        rest=np.arange(m, dtype=np.int32),
        batch=np.empty(m, np.int32),
        coming=np.empty(m, np.int32),
        left=np.empty(widest, np.int32),
        right=np.empty(widest, np.int32),
        cursor=np.array([m, 0, 0, 0, 0], np.int64),
    )
    large = parallel_peel.LARGE_BATCH if threads > 1 else MOST_EDGES + 1
    _take_batches(state, large)
    while state.cursor[SIZE]:
        take_large_batch(state, free_threads())
        _take_batches(state, large)
    return np.invert(support, out=support)


@njit(cache=True, nogil=True)
def _take_batches(g, limit):
    """Remove batches until none is left, or until one has `limit` edges or more, which is left to the caller."""
    remaining, k, number, taken, size = g.cursor
    support, batch, coming = g.support, g.batch, g.coming
    ordered = g.own.size > 0
    while size < limit:
        if size == 0:
            remaining, size, k = _start_level(k, g.rest, remaining, support, batch, g.backing)
            if size == 0:
                break
            continue
        number += 1
        joined = 0
        for i in range(size):
            e = batch[i]
            u, v = g.tail[e], g.head[e]
            count = 0
            if k > 0:
                # The edge has at most k triangles left, so that the search may stop after k.
                count, _ = closing_pairs(u, v, g.begin, g.end, g.neighbour, g.edge, support, k, k, g.left, g.right)
                for t in range(count):
                    joined = _lose_triangle(g.left[t], k, support, coming, joined)
                    joined = _lose_triangle(g.right[t], k, support, coming, joined)
            taken += 1
            g.layer[e] = taken if ordered else number
            if ordered:
                g.own[e] = count
            support[e] = ~k  # negative: gone
            if g.alive.size:
                g.alive[e] = 0
            drop_dead_entry(u, g.begin, g.end, g.gone, g.neighbour, g.edge, support)
            drop_dead_entry(v, g.begin, g.end, g.gone, g.neighbour, g.edge, support)
        size = joined
        batch[:size] = np.sort(coming[:size])
        if size == 0:
            k += 1
    g.cursor[REMAINING], g.cursor[LEVEL], g.cursor[NUMBER], g.cursor[TAKEN], g.cursor[SIZE] = (
        remaining,
        k,
        number,
        taken,
        size,
    )


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
