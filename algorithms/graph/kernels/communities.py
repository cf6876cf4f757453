"""The sizes of the k-trusses of a graph, and its k-truss communities, from the trussness of its edges.

A k-truss community is a class of edges of the k-truss that are joined by chains of triangles within it, in which each
triangle shares an edge with the next. A vertex may be in several communities.

Cost    One enumeration of the triangles, with union-find (path halving). Memory: about 55 bytes an edge.
Source  Huang, Cheng, Qin, Tian, Yu, "Querying k-truss community in large and dynamic graphs" (SIGMOD 2014).
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.graph import Ints, compact_ids, orient_edges


class Sizes(NamedTuple):
    """The sizes of k-trusses: int64[c] each, for k = 2 .. the greatest trussness.

    edges: the edges in the k-truss; vertices: the vertices with such an edge.
    """

    k: Ints
    edges: Ints
    vertices: Ints


def truss_sizes(a: Ints, b: Ints, trussness: NDArray[np.integer]) -> Sizes:
    """Return the size of every k-truss.

    >>> [x.tolist() for x in truss_sizes(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4]), np.array([3, 3, 3, 2]))]
    [[2, 3], [4, 3], [4, 3]]
    """
    if not a.size:
        return Sizes(*(np.empty(0, np.int64) for _ in range(3)))
    vertices, u, v = compact_ids(a, b)
    highest = np.zeros(vertices.size, np.int64)
    np.maximum.at(highest, u, trussness)
    np.maximum.at(highest, v, trussness)
    k = np.arange(2, int(trussness.max()) + 1)
    edges, ends = (np.bincount(x, minlength=k[-1] + 1)[::-1].cumsum()[::-1][2:] for x in (trussness, highest))
    return Sizes(k, edges, ends)


def truss_communities(a: Ints, b: Ints, trussness: NDArray[np.integer], k: int) -> Ints:
    """Return the community of each edge, int64[m], named by the position of its first edge; -1 outside the k-truss.

    >>> truss_communities(np.array([1, 1, 2, 3]), np.array([2, 3, 3, 4]), np.array([3, 3, 3, 2]), 3).tolist()
    [0, 0, 0, -1]
    """
    inside = np.flatnonzero(np.asarray(trussness) >= k)
    out = np.full(a.size, -1, np.int64)
    if inside.size:
        graph = orient_edges(a[inside], b[inside])
        parent = np.arange(inside.size, dtype=np.int32)
        _join_triangles(graph.indptr, graph.head, graph.origin, parent)
        out[inside] = inside[parent]
    return out


@njit(cache=True, nogil=True)
def _join_triangles(indptr, head, origin, parent):
    """Unite the three edges of every triangle; at the end parent[i] is the least position in the class of i."""
    mark = np.full(indptr.size - 1, -1, np.int32)
    for u in range(indptr.size - 1):
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = i
        for i in range(indptr[u], indptr[u + 1]):
            v = head[i]
            for j in range(indptr[v], indptr[v + 1]):
                k = mark[head[j]]
                if k >= 0:
                    _union_roots(parent, origin[i], origin[j])
                    _union_roots(parent, origin[i], origin[k])
        for i in range(indptr[u], indptr[u + 1]):
            mark[head[i]] = -1
    for i in range(parent.size):
        parent[i] = _find_root(parent, i)


@njit(cache=True, nogil=True, inline="always")
def _union_roots(parent, i, j):
    """Unite two classes. The lesser root wins, so that the root is the least position of its class."""
    i, j = _find_root(parent, i), _find_root(parent, j)
    if i < j:
        parent[j] = i
    elif j < i:
        parent[i] = j


@njit(cache=True, nogil=True)
def _find_root(parent, i):
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
