"""A dynamic graph whose neighbour lists are sorted by the level of the edges, highest first.

All edges that may ever be present are known at the start; an edge is present if its level is >= 0. At level k only the
edges of level >= k matter, and they are a prefix of each list, so that looking at a hub costs as many steps as it has
edges of that level, as in a peel, whatever its degree is. Changing a level by one swaps one entry per list.

Memory  73 bytes an edge (ends 8, level 4, label 8, counts 12, lists 16, places 8, hash index 16, state 1), 40 a vertex.
Source  The order: bin sort as in Batagelj, Zaversnik (2003), one per vertex.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.graph import Ints, Shorts

PROBE = 12  # a look-up in the hash index costs about as much as this many steps along a list
PAIR = 8  # the cost of using a pair that was found, in steps
UNKNOWN = -1
UNASKED = 2**31 - 1  # instead of a level: the triangles of this edge are not known, or not needed
LABEL_GAP = 1 << 24  # the distance of labels: room for edges that move behind another
LOOK = 60  # the cost of an evaluation before its first step, in steps
STEPS, EVALUATIONS, STAMP, FRONT, BACK = range(5)  # places in `clock`


class Levels(NamedTuple):
    """One dynamic graph of n vertices and m possible edges; every array is changed in place.

    tail, head  int32[m]    the ends of each edge
    level       int32[m]    kappa, or -1 when the edge is absent
    label       int64[m]    order among the edges of one level (see `truss_maintenance`)
    own         int32[m]    triangles in which the edge comes first, by level and label (see `truss_maintenance`)
    backing     int32[m]    triangles on the edge whose other edges have its level or more, or UNKNOWN
    need        int32[m]    scratch
    begin       int64[n+1]  the slots of vertex v in neighbour and edge begin at begin[v]
    live        int64[n]    the number of slots, from the first on, that are in use
    neighbour   int32[2m]
    edge        int32[2m]
    place       int32[m, 2] index of the edge within the list of its tail and of its head
    slots       uint64[..]  open addressing; 32 bits of hash over edge + 1, or 0
    mark        int64[n]    stamp << 32 | edge: the list that was laid out last
    state       uint8[m]    marks of the running operation; 0 between operations
    clock       int64[5]    steps and evaluations so far, current stamp, next label at the front and at the back
    floor       int32[m]    in a part of a graph (`partial_graph_solver`): the least level with known triangles
    asked       int32[m]    the least level at which triangles are needed but not known; a whole graph has neither
    """

    tail: Shorts
    head: Shorts
    level: Shorts
    label: Ints
    own: Shorts
    backing: Shorts
    need: Shorts
    begin: Ints
    live: Ints
    neighbour: Shorts
    edge: Shorts
    place: Shorts
    slots: NDArray[np.uint64]
    mark: Ints
    state: NDArray[np.uint8]
    clock: Ints
    floor: Shorts
    asked: Shorts


@njit(cache=True, nogil=True)
def arrange_lists(g):
    """Lay all lists out again for the current levels."""
    m = g.level.size
    greatest = 0
    for e in range(m):
        greatest = max(greatest, g.level[e])
    start = np.zeros(greatest + 2, np.int64)
    for e in range(m):
        if g.level[e] >= 0:
            start[greatest - g.level[e] + 1] += 1
    for k in range(greatest + 1):
        start[k + 1] += start[k]
    falling = np.empty(start[greatest + 1], np.int32)
    for e in range(m):
        if g.level[e] >= 0:
            falling[start[greatest - g.level[e]]] = e
            start[greatest - g.level[e]] += 1
    g.live[:] = 0
    for e in falling:
        _append_edge(g, g.tail[e], g.head[e], e, 0)
        _append_edge(g, g.head[e], g.tail[e], e, 1)


@njit(cache=True, nogil=True)
def set_level(g, e, new):
    """Move an edge to another level in both lists; -1 removes it, and from -1 it is inserted."""
    old = g.level[e]
    u, v = np.int64(g.tail[e]), np.int64(g.head[e])
    if old < 0:
        _append_edge(g, u, v, e, 0)
        _append_edge(g, v, u, e, 1)
    if new > old:
        _move_up(g, u, e, 0, new)
        _move_up(g, v, e, 1, new)
    else:
        _move_down(g, u, e, 0, new)
        _move_down(g, v, e, 1, new)
    g.level[e] = new
    if new < 0:
        g.live[u] -= 1
        g.live[v] -= 1


@njit(cache=True, nogil=True)
def count_at_level(g, v, k):
    """Return the number of edges of v that have a level >= k: a prefix of its list."""
    level, edge = g.level, g.edge
    low, high = g.begin[v], g.begin[v] + g.live[v]
    while low < high:
        middle = (low + high) >> 1
        if level[edge[middle]] >= k:
            low = middle + 1
        else:
            high = middle
    return low - g.begin[v]


@njit(cache=True, nogil=True, inline="always")
def is_unknown_below(g, e, least):
    """Tell whether a part of a graph lacks the triangles of an edge with others of this level, and note that."""
    if g.floor.size == 0 or least >= g.floor[e]:
        return False
    g.asked[e] = min(g.asked[e], least)
    return True


@njit(cache=True, nogil=True)
def closing_edges(g, e, least, left, right):
    """Write the pairs of edges at level >= least that close a triangle over e into left, right; return their number.

    left, right: int32 of at least the greatest degree. The shorter list is laid out over `mark`, and the longer one is
    walked; if that is far longer, each entry of the shorter one is looked up instead.
    """
    is_unknown_below(g, e, least)
    level, begin, neighbour, edge, mark = g.level, g.begin, g.neighbour, g.edge, g.mark
    u, v = np.int64(g.tail[e]), np.int64(g.head[e])
    du, dv = count_at_level(g, u, least), count_at_level(g, v, least)
    if du > dv:
        u, v, du, dv = v, u, dv, du
    g.clock[EVALUATIONS] += 1
    g.clock[STEPS] += LOOK
    count = 0
    if du * PROBE < dv:
        g.clock[STEPS] += du * PROBE
        for i in range(begin[u], begin[u] + du):
            f = find_edge(g, v, np.int64(neighbour[i]))
            if f >= 0 and level[f] >= least:
                left[count] = edge[i]
                right[count] = f
                count += 1
        g.clock[STEPS] += PAIR * count
        return count
    g.clock[STEPS] += du + dv
    g.clock[STAMP] += 1
    if g.clock[STAMP] == 1 << 31:
        mark[:] = 0
        g.clock[STAMP] = 1
    stamp = g.clock[STAMP]
    for i in range(begin[u], begin[u] + du):
        mark[neighbour[i]] = (stamp << 32) | np.int64(edge[i])
    for i in range(begin[v], begin[v] + dv):
        laid = mark[neighbour[i]]
        if (laid >> 32) == stamp:
            left[count] = laid & 0xFFFFFFFF
            right[count] = edge[i]
            count += 1
    g.clock[STEPS] += PAIR * count
    return count


@njit(cache=True, nogil=True)
def find_edge(g, u, v):
    """Return the edge between two vertices, present or not, or -1."""
    size = np.uint64(g.slots.size)
    mixed = _hash_pair(u, v)
    slot = ((mixed >> np.uint64(32)) * size) >> np.uint64(32)
    low = mixed & np.uint64(0xFFFFFFFF)
    while True:
        entry = g.slots[slot]
        if entry == 0:
            return np.int64(-1)
        if (entry >> np.uint64(32)) == low:
            e = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            if (g.tail[e] == u and g.head[e] == v) or (g.tail[e] == v and g.head[e] == u):
                return e
        slot += np.uint64(1)
        if slot == size:
            slot = np.uint64(0)


@njit(cache=True, nogil=True)
def index_edges(g, first, last):
    """Enter edges first .. last - 1 into the hash index."""
    size = np.uint64(g.slots.size)
    for e in range(first, last):
        mixed = _hash_pair(np.int64(g.tail[e]), np.int64(g.head[e]))
        slot = ((mixed >> np.uint64(32)) * size) >> np.uint64(32)
        while g.slots[slot] != 0:
            slot += np.uint64(1)
            if slot == size:
                slot = np.uint64(0)
        g.slots[slot] = ((mixed & np.uint64(0xFFFFFFFF)) << np.uint64(32)) | np.uint64(e + 1)


@njit(cache=True, nogil=True, inline="always")
def _hash_pair(u, v):
    """Return 64 mixed bits of an unordered pair (two rounds of multiply and fold)."""
    mixed = np.uint64((min(u, v) << 32) | max(u, v)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True, inline="always")
def _append_edge(g, v, w, e, side):
    """Append edge e to w to the list of v."""
    slot = g.begin[v] + g.live[v]
    g.neighbour[slot] = w
    g.edge[slot] = e
    g.place[e, side] = g.live[v]
    g.live[v] += 1


@njit(cache=True, nogil=True, inline="always")
def _swap_slots(g, v, p, q):
    """Exchange two slots of v."""
    e, f = g.edge[p], g.edge[q]
    g.edge[p], g.edge[q] = f, e
    g.neighbour[p], g.neighbour[q] = g.neighbour[q], g.neighbour[p]
    g.place[f, 0 if g.tail[f] == v else 1] = p - g.begin[v]
    g.place[e, 0 if g.tail[e] == v else 1] = q - g.begin[v]


@njit(cache=True, nogil=True)
def _move_up(g, v, e, side, new):
    """Swap e upwards, past one level at a time, with the first entry of that level."""
    p = g.begin[v] + g.place[e, side]
    while p > g.begin[v] and g.level[g.edge[p - 1]] < new:
        passed = g.level[g.edge[p - 1]]
        low, high = g.begin[v], p
        while low < high:
            middle = (low + high) >> 1
            if g.level[g.edge[middle]] > passed:
                low = middle + 1
            else:
                high = middle
        _swap_slots(g, v, p, low)
        p = low


@njit(cache=True, nogil=True)
def _move_down(g, v, e, side, new):
    """Swap e downwards, past one level at a time, with the last entry of that level."""
    p = g.begin[v] + g.place[e, side]
    end = g.begin[v] + g.live[v]
    while p + 1 < end and g.level[g.edge[p + 1]] > new:
        passed = g.level[g.edge[p + 1]]
        low, high = p + 1, end
        while low < high:
            middle = (low + high) >> 1
            if g.level[g.edge[middle]] >= passed:
                low = middle + 1
            else:
                high = middle
        _swap_slots(g, v, p, low - 1)
        p = low - 1
