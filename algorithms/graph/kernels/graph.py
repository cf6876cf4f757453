"""Compact graphs for the kernels: vertex ids are mapped to 0..n-1, and adjacency is in arrays.

The input is always `a, b`, int64[m], a simple undirected graph: a[i] < b[i], no edge twice, in any order. The ids may
be any 64-bit integers. Inside, a vertex is an int32 rank in order of ascending degree, and an edge is an int32 position
in the order (tail rank, head rank), so 2**31 - 2 edges are the limit.

Cost: O(n log n + m). Memory: `orient_edges` keeps 8 bytes an edge (20 with the tails and the caller's order),
`to_adjacency` 16 more. The degree order bounds the out-degree by sqrt(2m) (Chiba, Nishizeki 1985), whatever
the hubs.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]

Colours = Callable[[Ints], Ints]  # ids of vertices → their colors

MOST_EDGES = 2**31 - 2


class Oriented(NamedTuple):
    """An oriented graph: each edge points from its end of lower rank to that of higher rank, and the lists are sorted.

    vertices  int64[n]    the caller's id of each rank is vertices[by_rank[rank]]; `vertices` is sorted
    by_rank   int32[n]    index into `vertices` of each rank
    indptr    int64[n+1]  edges of tail r are indptr[r] .. indptr[r+1]
    head      int32[m]    rank of the head
    tail      int32[m]    rank of the tail
    origin    int32[m]    position of the edge in the caller's arrays
    """

    vertices: Ints
    by_rank: Shorts
    indptr: Ints
    head: Shorts
    tail: Shorts
    origin: Shorts


class Adjacency(NamedTuple):
    """The adjacency of a graph: every edge is in the lists of both ends, and neighbours ascend.

    indptr     int64[n+1]   the list of vertex v is indptr[v] .. indptr[v+1]
    neighbour  int32[2m]
    edge       int32[2m]    the position of the oriented edge to the neighbour
    """

    indptr: Ints
    neighbour: Shorts
    edge: Shorts


def compact_ids(a: Ints, b: Ints) -> tuple[Ints, Shorts, Shorts]:
    """Return the sorted ids in use (int64[n]), and both ends of each edge as indices into them (int32[m]).

    >>> vertices, u, v = compact_ids(np.array([7, -1]), np.array([9, 7]))
    >>> vertices.tolist(), u.tolist(), v.tolist()
    ([-1, 7, 9], [1, 0], [2, 1])
    """
    a, b = _check_edges(a, b)
    if a.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)
    low, high = int(a.min()), int(b.max())
    if high - low < 4 * a.size + 1024:  # dense ids: a table costs less than a sort
        used = np.zeros(high - low + 1, np.bool_)
        used[a - low] = True
        used[b - low] = True
        index = np.cumsum(used, dtype=np.int32)
        index -= np.int32(1)
        return np.flatnonzero(used) + low, index[a - low], index[b - low]
    vertices = distinct_values(np.concatenate([distinct_values(a), distinct_values(b)]))
    u = np.searchsorted(vertices, a).astype(np.int32)
    return vertices, u, np.searchsorted(vertices, b).astype(np.int32)


def positions_of(a: Ints, b: Ints, x: Ints, y: Ints) -> Ints:
    """Return the position in a, b, which are sorted, of each of the edges x, y, all of which are in a, b.

    >>> positions_of(np.array([1, 1, 4]), np.array([2, 9, 9]), np.array([4, 1]), np.array([9, 2])).tolist()
    [2, 0]
    """
    # read-only arrays would be another type, for which the kernel would be compiled again
    a, b, x, y = (np.require(column, np.int64, ["C", "W"]) for column in (a, b, x, y))
    return np.asarray(_find_positions(a, b, x, y))


def distinct_values(x: NDArray[Any]) -> NDArray[Any]:
    """Return the values of a vector, ascending, each once.

    `np.unique` hashes whole numbers, which takes longer than a sort if there are many.

    >>> distinct_values(np.array([5, 3, 5])).tolist()
    [3, 5]
    """
    x = np.sort(x)
    return x[run_starts(x)]


def run_starts(*columns: NDArray[Any]) -> Ints:
    """Return the positions at which runs of equal rows begin.

    >>> run_starts(np.array([5, 5, 3])).tolist(), run_starts(np.array([5, 5, 5]), np.array([1, 2, 2])).tolist()
    ([0, 2], [0, 1])
    """
    fresh = np.ones(columns[0].size, np.bool_)
    fresh[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        fresh[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(fresh)


def orient_edges(a: Ints, b: Ints) -> Oriented:
    """Return the degree-ordered, oriented graph.

    Raises:
        ValueError: an edge occurs twice or is not a < b.
    """
    vertices, u, v = compact_ids(a, b)
    by_rank, indptr, tail, head, origin = by_degree(vertices.size, u, v)
    twice = _first_repeat(indptr, head)
    if twice >= 0:
        i = origin[twice]
        raise ValueError(f"edge ({a[i]}, {b[i]}) occurs twice; the kernels take simple graphs")
    return Oriented(vertices, by_rank, indptr, head, tail, origin)


def by_degree(n: int, u: Shorts, v: Shorts) -> tuple[Shorts, Ints, Shorts, Shorts, Shorts]:
    """Return (by_rank, indptr, tail, head, origin), the arrays of `Oriented`, of edges over the vertices 0..n-1."""
    degree = np.bincount(u, minlength=n) + np.bincount(v, minlength=n)
    by_rank = np.argsort(degree, kind="stable").astype(np.int32)
    rank = np.empty(n, np.int32)
    rank[by_rank] = np.arange(n, dtype=np.int32)
    u, v = rank[u], rank[v]
    indptr, tail, head, origin = _arrange_edges(n, np.minimum(u, v), np.maximum(u, v))
    return by_rank, indptr, tail, head, origin


def to_adjacency(graph: Oriented) -> Adjacency:
    """Return both directions of an oriented graph."""
    return Adjacency(*both_ways(graph.indptr, graph.tail, graph.head))


def _check_edges(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    a, b = np.ascontiguousarray(a, np.int64), np.ascontiguousarray(b, np.int64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"a and b must be vectors of the same length, not {a.shape} and {b.shape}")
    if a.size > MOST_EDGES:
        raise ValueError(f"{a.size} edges; one kernel call takes at most {MOST_EDGES}")
    if not (a < b).all():
        i = int(np.argmin(a < b))
        raise ValueError(f"edge {i} is ({a[i]}, {b[i]}); each edge must have a < b")
    return a, b


@njit(cache=True, nogil=True)
def _find_positions(a, b, x, y):
    positions = np.empty(x.size, np.int64)
    for i in range(x.size):
        low, high = 0, a.size
        while low < high:
            middle = (low + high) // 2
            if a[middle] < x[i] or (a[middle] == x[i] and b[middle] < y[i]):
                low = middle + 1
            else:
                high = middle
        positions[i] = low
    return positions


@njit(cache=True, nogil=True)
def _arrange_edges(n, tail, head):
    """Sort edges by (tail, head) with two stable counting sorts, least significant first."""
    m = tail.size
    by_head = np.empty(m, np.int32)
    start = np.zeros(n + 1, np.int64)
    for i in range(m):
        start[head[i] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    for i in range(m):
        by_head[start[head[i]]] = i
        start[head[i]] += 1
    indptr = np.zeros(n + 1, np.int64)
    for i in range(m):
        indptr[tail[i] + 1] += 1
    for v in range(n):
        indptr[v + 1] += indptr[v]
    start[:n] = indptr[:n]
    origin = np.empty(m, np.int32)
    for j in range(m):
        i = by_head[j]
        origin[start[tail[i]]] = i
        start[tail[i]] += 1
    return indptr, tail[origin], head[origin], origin


@njit(cache=True, nogil=True)
def _first_repeat(indptr, head):
    """Return a position whose edge equals the one before it, or -1."""
    for v in range(indptr.size - 1):
        for i in range(indptr[v] + 1, indptr[v + 1]):
            if head[i] == head[i - 1]:
                return i
    return -1


@njit(cache=True, nogil=True)
def both_ways(indptr, tail, head):
    """Return the lists of both ends: lower neighbours first, then the higher. Each part ascends, as edges come by
    (tail, head).
    """
    n, m = indptr.size - 1, head.size
    start = np.zeros(n + 1, np.int64)
    for e in range(m):
        start[tail[e] + 1] += 1
        start[head[e] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    free = start[:n].copy()
    neighbour = np.empty(2 * m, np.int32)
    edge = np.empty(2 * m, np.int32)
    for e in range(m):
        v = head[e]
        neighbour[free[v]] = tail[e]
        edge[free[v]] = e
        free[v] += 1
    for e in range(m):
        v = tail[e]
        neighbour[free[v]] = head[e]
        edge[free[v]] = e
        free[v] += 1
    return start, neighbour, edge
