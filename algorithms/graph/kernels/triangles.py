"""The triangles of a simple undirected graph: counted in total, per vertex and per edge, and listed.

`a, b`: int64[m], a[i] < b[i], no edge twice, any order. Results per edge are in the caller's order.
Each triangle is found once, at its vertex of lowest rank in the degree order: mark the out-neighbours of u, then walk
the out-neighbours of each of them.

Cost    O(sum over edges u->v of outdeg(v)) <= O(m^1.5); a hub of degree d never costs d^2. Memory: about 50 bytes an
        edge at the peak, independent of the number of triangles.
Source  Schank, Wagner, "Finding, counting and listing all triangles in large graphs" (2005); Latapy (2008).
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.atomics import take_slice
from altneu.algorithms.graph.kernels.graph import Ints, Oriented, Shorts, orient_edges
from altneu.algorithms.graph.kernels.threads import sum_in_threads


class TriangleCounts(NamedTuple):
    """The total; vertices int64[n], sorted; per_vertex int64[n], their counts; per_edge int64[m], the support."""

    total: int
    vertices: Ints
    per_vertex: Ints
    per_edge: Ints


def count_triangles(a: Ints, b: Ints) -> TriangleCounts:
    """Count the triangles in total, on each vertex and on each edge (its support).

    >>> total, vertices, per_vertex, per_edge = count_triangles(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4]))
    >>> total, vertices.tolist(), per_vertex.tolist(), per_edge.tolist()
    (1, [1, 2, 3, 4], [1, 1, 1, 0], [1, 1, 1, 0])
    """
    graph = orient_edges(a, b)
    support = oriented_support(graph.indptr, graph.head)
    per_edge = np.empty(support.size, np.int64)
    per_edge[graph.origin] = support
    per_vertex = np.zeros(graph.vertices.size, np.int64)
    # A triangle on v lies on two edges of v.
    per_vertex[graph.by_rank] = _sum_at_vertices(graph.indptr.size - 1, graph.tail, graph.head, support) // 2
    return TriangleCounts(int(support.sum(dtype=np.int64)) // 3, graph.vertices, per_vertex, per_edge)


def enumerate_triangles(a: Ints, b: Ints, chunk: int = 1 << 20) -> Iterator[NDArray[np.int64]]:
    """Yield every triangle once, as int64[t, 3] blocks with ascending ids in a row; t is at most about `chunk`.

    A block ends at a vertex boundary, so it holds at most `chunk` triangles plus those of one vertex (<= m).

    >>> [block.tolist() for block in enumerate_triangles(np.array([5, 5, 6]), np.array([6, 9, 9]))]
    [[[5, 6, 9]]]
    """
    graph = orient_edges(a, b)
    for corners in triangle_corners(graph, chunk):
        ids = graph.vertices[graph.by_rank[corners]]
        ids.sort(axis=1)
        yield ids


def triangle_corners(graph: Oriented, chunk: int) -> Iterator[NDArray[np.int32]]:
    """Yield blocks int32[t, 3] of ranks u < v < w."""
    n = graph.indptr.size - 1
    first = 0
    mark = np.full(n, -1, np.int32)
    while first < n:
        stop, size = _chunk_end(graph.indptr, graph.head, first, chunk, mark)
        if size:
            out = np.empty((size, 3), np.int32)
            _list_triangles(graph.indptr, graph.head, first, stop, mark, out)
            yield out
        first = stop


def oriented_support(indptr: Ints, head: Shorts) -> Shorts:
    """Count the triangles on each oriented edge, int32[m]."""
    (support,) = sum_in_threads(_count_support, indptr, head, rows=head.size)
    return support


@njit(cache=True, nogil=True)
def _count_support(indptr, head, reached):
    n = indptr.size - 1
    support = np.zeros(head.size, np.int32)
    mark = np.full(n, -1, np.int32)  # mark[w] = position of the edge u->w, for the current u
    low, high = take_slice(reached, n)
    while low < high:
        for u in range(low, high):
            first, last = indptr[u], indptr[u + 1]
            if last - first < 2:
                continue
            for i in range(first, last):
                mark[head[i]] = i
            for i in range(first, last):
                v = head[i]
                count = 0
                for j in range(indptr[v], indptr[v + 1]):
                    k = mark[head[j]]
                    if k >= 0:
                        count += 1
                        support[j] += 1
                        support[k] += 1
                support[i] += count
            for i in range(first, last):
                mark[head[i]] = -1
        low, high = take_slice(reached, n)
    return (support,)


@njit(cache=True, nogil=True)
def _sum_at_vertices(n, tail, head, weight):
    """Return the sum of the weights of the edges at each vertex, int64[n]."""
    total = np.zeros(n, np.int64)
    for e in range(tail.size):
        total[tail[e]] += weight[e]
        total[head[e]] += weight[e]
    return total


@njit(cache=True, nogil=True)
def _chunk_end(indptr, head, first, chunk, mark):
    """Return (stop, size): vertices first .. stop-1 own `size` triangles; the least stop with size >= chunk."""
    n = indptr.size - 1
    size = 0
    for u in range(first, n):
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = u
        for i in range(indptr[u], indptr[u + 1]):
            for j in range(indptr[head[i]], indptr[head[i] + 1]):
                size += mark[head[j]] == u
        if size >= chunk:
            return u + 1, size
    return n, size


@njit(cache=True, nogil=True)
def _list_triangles(indptr, head, first, stop, mark, out):
    """Write the triangles that vertices first .. stop-1 own into out; `mark` is as `_chunk_end` left it."""
    t = 0
    for u in range(first, stop):
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = u
        for i in range(indptr[u], indptr[u + 1]):
            v = head[i]
            for j in range(indptr[v], indptr[v + 1]):
                if mark[head[j]] == u:
                    out[t, 0] = u
                    out[t, 1] = v
                    out[t, 2] = head[j]
                    t += 1
