"""The triangles at every vertex, followed from a cached graph: the changes of each epoch, at the cost of its batch.

Law     The sum of the changes is the difference between the counts of the graph before and after. Edges change one at a
        time: a removed edge subtracts the triangles that it has at that moment, and an inserted edge adds those that it
        closes, so that a triangle of several changed edges counts once.
Shapes  The steps are those of `replay.epoch_batches`. Result: vertex, epoch, diff (int64), no pair twice, no diff of 0,
        by epoch.
Cost    The shorter neighbour list of each changed edge, or a look-up for each of its entries
        (`level_sorted_graph.closing_edges`). The graph's levels must not be used afterwards.
Source  Seed 4's delta rules, one edge at a time.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.graph import Ints
from altneu.algorithms.graph.kernels.level_sorted_graph import closing_edges, set_level
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.replay import Batch


def vertex_changes(graph: PersistentGraph, steps: Iterator[Batch], first: int) -> tuple[Ints, Ints, Ints]:
    """Return the changes from epoch `first` on. `steps` are the `replay.epoch_batches` of the graph; they may raise."""
    changes: list[tuple[Ints, Ints, Ints]] = []
    delta, left = np.empty(0, np.int64), np.empty(0, np.int32)
    right = left
    for epoch, removed, inserted in steps:
        graph.make_room(inserted)
        levels, widest = graph.levels, int(graph.room.max(initial=0))
        if delta.size < levels.live.size:
            delta = np.zeros(levels.live.size, np.int64)
        if left.size < widest:
            left, right = np.empty(widest, np.int32), np.empty(widest, np.int32)
        touched = _follow_batch(levels, removed, inserted, delta, left, right)
        moved = np.unique(touched[delta[touched] != 0])
        if epoch >= first:
            changes.append((graph.ids[moved], np.full(moved.size, epoch, np.int64), delta[moved]))
        delta[touched] = 0
    none = np.empty(0, np.int64)
    vertex, epochs, diff = (
        (np.concatenate([none, *column]) for column in zip(*changes, strict=True)) if changes else [none] * 3
    )
    return vertex, epochs, diff


@njit(cache=True, nogil=True)
def _follow_batch(g, removed, inserted, delta, left, right):
    """Remove edges and insert edges at level 0; return the vertices whose count was touched, some of them twice."""
    touched, size = np.empty(1024, np.int64), 0
    for i in range(removed.size + inserted.size):
        comes = i >= removed.size
        e = inserted[i - removed.size] if comes else removed[i]
        count = closing_edges(g, e, 0, left, right)
        sign = 1 if comes else -1
        if count and size + count + 2 > touched.size:
            touched = np.concatenate((touched, np.empty(max(touched.size, count + 2), np.int64)))
        for t in range(count):
            f = left[t]
            w = g.tail[f]
            if w == g.tail[e] or w == g.head[e]:
                w = g.head[f]
            delta[w] += sign
            touched[size] = w
            size += 1
        if count:
            for v in (g.tail[e], g.head[e]):
                delta[v] += sign * count
                touched[size] = v
                size += 1
        set_level(g, e, 0 if comes else -1)
    return touched[:size].copy()
