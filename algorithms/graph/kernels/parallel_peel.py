"""One large batch of the peel (`truss`), taken by several threads.

Law     The result is the one that a single thread reaches by taking the edges of the batch in order: a triangle of
        several edges of the batch belongs to the first of them. Supports are changed by atomic additions, and an edge
        whose support would fall below the level gets it back; so each edge joins the next batch once.
Method  Between two barriers the threads take slices of the batch; each one then clears the lists of its own range of
        vertices.
Cost    That of the peel. Memory: one byte for each edge.
Source  Kabir, Madduri, "Shared-memory graph truss decomposition" (HiPC 2017): PKT.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.atomics import add_atomically
from altneu.algorithms.graph.kernels.graph import Ints, Shorts
from altneu.algorithms.graph.kernels.intersect import closing_pairs
from altneu.algorithms.graph.kernels.threads import run_in_threads

LARGE_BATCH = 2048  # edges: what two threads save on them is more than their start
SLICE = 256  # edges of a batch that a thread takes at once
GONE, ALIVE, LEAVING = range(3)  # values of `alive`
REMAINING, LEVEL, NUMBER, TAKEN, SIZE = range(5)  # places in `cursor`


class PeelState(NamedTuple):
    """A peel between two batches; every array is changed in place.

    begin, end  int64[n]    the lists of each vertex in neighbour and edge, int32[2m]
    gone        int32[n]    how many entries of each list are dead
    tail, head  int32[m]    the ends of each edge
    support     int32[m]    the triangles left, or ~kappa of an edge that has been removed
    alive       uint8[m]    GONE, ALIVE or LEAVING; empty if there is one thread
    layer, own, backing     the results (`truss.PeelOrder`)
    rest        int32[m]    the edges of higher levels: the first `REMAINING`
    batch       int32[m]    the edges of the next batch: the first `SIZE`, in order
    coming      int32[m]    scratch; left and right are, too
    cursor      int64[5]    REMAINING; the level; how many batches and edges have been taken; SIZE
    """

    begin: Ints
    end: Ints
    gone: Shorts
    neighbour: Shorts
    edge: Shorts
    tail: Shorts
    head: Shorts
    support: Shorts
    alive: NDArray[np.uint8]
    layer: Shorts
    own: Shorts
    backing: Shorts
    rest: Shorts
    batch: Shorts
    coming: Shorts
    left: Shorts
    right: Shorts
    cursor: Ints


def take_large_batch(state: PeelState, threads: int) -> None:
    """Remove the edges of one batch, and make the next one of those that have lost their triangles to it."""
    _, k, number, taken, size = state.cursor.tolist()
    batch = state.batch[:size]
    reached, joined = np.zeros(1, np.int64), np.zeros(1, np.int64)
    state.alive[batch] = LEAVING
    if k:
        run_in_threads(_remove_triangles, [(state, k, reached, joined)] * threads, threads)
    state.layer[batch] = np.arange(taken + 1, taken + 1 + size) if state.own.size else number + 1
    state.support[batch] = ~k
    state.alive[batch] = GONE
    run_in_threads(_clear_lists, [(state, size, *bounds) for bounds in _vertex_ranges(state, threads)], threads)
    come = int(joined[0])
    state.batch[:come] = np.sort(state.coming[:come])
    state.cursor[LEVEL:] = k if come else k + 1, number + 1, taken + size, come


def _vertex_ranges(state: PeelState, threads: int) -> list[tuple[int, int]]:
    """Return ranges of vertices with about as many list entries each."""
    begin = state.begin
    wanted = np.arange(1, threads) * state.edge.size // threads
    bounds = [0, *np.searchsorted(begin, wanted).tolist(), begin.size]
    return list(pairwise(bounds))


@njit(cache=True, nogil=True)
def _remove_triangles(g, k, reached, joined):
    """Take slices of the batch until none is left, and remove the triangles that belong to their edges."""
    size = g.cursor[SIZE]
    left, right = np.empty(k, np.int32), np.empty(k, np.int32)
    while True:
        first = add_atomically(reached, 0, np.int64(SLICE))
        if first >= size:
            return
        for i in range(first, min(first + SLICE, size)):
            e = g.batch[i]
            # The edge has at most k triangles left, so that the search may stop after k.
            count, _ = closing_pairs(
                g.tail[e], g.head[e], g.begin, g.end, g.neighbour, g.edge, g.alive, ALIVE, k, left, right
            )
            own = 0
            for t in range(count):
                f, h = left[t], right[t]
                f_leaves, h_leaves = g.alive[f] == LEAVING, g.alive[h] == LEAVING
                if (f_leaves and f < e) or (h_leaves and h < e):
                    continue
                own += 1
                if not f_leaves:
                    _lose_triangle(f, k, g.support, g.coming, joined)
                if not h_leaves:
                    _lose_triangle(h, k, g.support, g.coming, joined)
            if g.own.size:
                g.own[e] = own


@njit(cache=True, nogil=True, inline="always")
def _lose_triangle(f, k, support, coming, joined):
    """Subtract one triangle from f, but not below k; at k it joins the next batch."""
    if support[f] <= k:
        return
    before = add_atomically(support, np.int64(f), np.int32(-1))
    if before <= k:
        add_atomically(support, np.int64(f), np.int32(1))
    elif before == k + 1:
        coming[add_atomically(joined, 0, np.int64(1))] = f


@njit(cache=True, nogil=True)
def _clear_lists(g, size, low, high):
    """Count the dead entries in the lists of the vertices low .. high - 1."""
    for i in range(size):
        e = g.batch[i]
        for v in (g.tail[e], g.head[e]):
            if low <= v < high:
                drop_dead_entry(v, g.begin, g.end, g.gone, g.neighbour, g.edge, g.support)


@njit(cache=True, nogil=True, inline="always")
def drop_dead_entry(v, begin, end, gone, neighbour, edge, support):
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
