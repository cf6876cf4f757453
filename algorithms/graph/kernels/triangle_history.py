"""The triangles at every vertex over a whole history: every epoch by one enumeration, without a list of triangles.

A history is a set of edges with the disjoint intervals of epochs in which each exists. A triangle exists while its
three edges do. It adds one to the count of each corner at the first epoch of such an interval, and subtracts it at the
end.

Shapes  a, b, start, until: int64[m], a < b, sorted by (a, b, start), an edge's intervals disjoint and not empty.
        Result: diff triples (vertex, epoch, diff) of the number of triangles at the vertex, sorted, none zero.
Cells   A graph too large for one task is cut into cells: vertices have colors, a cell is three colors i <= j <= k and
        holds the edges that two of them may join. A triangle belongs to the cell of its corners' colors and to no
        other: the cells' results add up. With p colors an edge is in p cells, and the largest of them, of three
        different colors, hold about 6/p² of the edges.
Cost    O(sum over edges u->v, from the lower to the higher degree, of outdeg(v)) <= O(m^1.5), as
        `triangles.count_triangles`, times the intervals of an edge. If three edges share the interval that most edges
        have, as after a first load, a triangle costs three additions to its edges, whose sums their ends receive at
        the end: a sixth of the time.
Memory  About 200 bytes an interval, and 16 to 48 for every (vertex, epoch) at which a count changes.
Source  Chiba, Nishizeki 1985; Suri, Vassilvitskii 2011 (partition); Afrati, Ullman 2011 (shares).
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import njit

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels.graph import Colours, Ints
from altneu.algorithms.graph.kernels.hash_sums import add_to_key, grow_table, make_table, nonzero_sums


def vertex_changes(
    a: Ints, b: Ints, start: Ints, until: Ints, colours: Colours | None = None
) -> tuple[Ints, Ints, Ints]:
    """Return (vertex, epoch, diff) of the number of triangles at each vertex; the module docstring has the shapes.

    `colours` colors vertices, in a cell of just two different colors: triangles of one color are left to the cell of
    that color.

    >>> a, b = np.array([1, 1, 2]), np.array([2, 3, 3])
    >>> [c.tolist() for c in vertex_changes(a, b, np.array([0, 4, 2]), np.array([9, 9, 7]))]
    [[1, 1, 2, 2, 3, 3], [4, 7, 4, 7, 4, 7], [1, -1, 1, -1, 1, -1]]
    """
    if not a.size:
        return a, start, until
    new = np.ones(a.size, bool)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    first = np.flatnonzero(new)
    spans = np.append(first, a.size)
    vertices, ranks, indptr, head, origin = _arrange_graph(a[first], b[first])
    epochs = np.unique(np.concatenate([start, until]))
    begins, ends = np.searchsorted(epochs, start), np.searchsorted(epochs, until)
    colour = np.full(vertices.size, -1, np.int32)
    if colours is not None:
        colour[ranks] = colours(vertices)
    spans_of, most = np.unique(begins * epochs.size + ends, return_counts=True)
    usual = int(spans_of[np.argmax(most)])
    keys, sums = _count_changes(
        indptr,
        head,
        spans[origin],
        spans[origin + 1],
        begins,
        ends,
        usual // epochs.size,
        usual % epochs.size,
        epochs.size,
        int(np.searchsorted(epochs, FOREVER)),
        colour,
        *make_table(vertices.size * epochs.size, a.size),
    )
    keys, sums = nonzero_sums(keys, sums)
    ids = np.empty(vertices.size, np.int64)
    ids[ranks] = vertices
    vertex, epoch = ids[keys // epochs.size], epochs[keys % epochs.size]
    order = np.lexsort((epoch, vertex))
    return vertex[order], epoch[order], sums[order]


def _arrange_graph(a: Ints, b: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return the sorted vertices, their ranks by degree, and indptr, head and origin of the edges from lower to higher
    rank.

    This is not `graph.orient_edges`: the audit's counts share no code with the results that it checks.
    """
    vertices, index = np.unique(np.concatenate([a, b]), return_inverse=True)
    n = vertices.size
    ranks = np.empty(n, np.int64)
    ranks[np.argsort(np.bincount(index, minlength=n), kind="stable")] = np.arange(n)
    u, v = ranks[index[: a.size]], ranks[index[a.size :]]
    code = np.minimum(u, v) * n + np.maximum(u, v)
    origin = np.argsort(code)
    code = code[origin]
    return vertices, ranks, np.searchsorted(code, np.arange(n + 1) * n), (code % n).astype(np.int32), origin


MOST_COLOURS = 40


def colours_for(edges: int, limit: int) -> int:
    """Return the least number of colors with which no cell holds more than about `limit` of the edges.

    It is at most `MOST_COLOURS`, because every edge is copied as often.

    >>> colours_for(10, 10), colours_for(15, 10), colours_for(100, 10), colours_for(10**9, 0)
    (1, 3, 8, 40)
    """
    limit = max(limit, -(-6 * edges // MOST_COLOURS**2))
    colours = 1 if edges <= limit else 3
    while colours > 1 and 6 * edges > limit * colours**2:
        colours += 1
    return colours


@njit(cache=True, nogil=True)
def _count_changes(
    indptr, head, low, high, start, until, usual_start, usual_until, n_epochs, never, colour, keys, sums
):
    """Return the sums by key = rank * n_epochs + epoch."""
    n, m, used = indptr.size - 1, head.size, 0
    usual = np.empty(m, np.bool_)
    for e in range(m):
        x = low[e]
        usual[e] = high[e] == x + 1 and start[x] == usual_start and until[x] == usual_until
    support = np.zeros(m, np.int32)  # the triangles of three usual edges, by edge
    mark = np.full(n, -1, np.int32)
    for u in range(n):
        first, last = indptr[u], indptr[u + 1]
        if last - first < 2:
            continue
        for i in range(first, last):
            mark[head[i]] = i
        for i in range(first, last):
            v = head[i]
            for j in range(indptr[v], indptr[v + 1]):
                w = head[j]
                k = mark[w]
                if k < 0 or (colour[u] >= 0 and colour[u] == colour[v] and colour[u] == colour[w]):
                    continue
                if usual[i] and usual[j] and usual[k]:
                    support[i] += 1
                    support[j] += 1
                    support[k] += 1
                    continue
                x, y, z = low[i], low[j], low[k]
                while x < high[i] and y < high[j] and z < high[k]:
                    begin = max(start[x], start[y], start[z])
                    end = min(until[x], until[y], until[z])
                    if begin < end:
                        if keys.size and 2 * (used + 6) > keys.size:
                            keys, sums = grow_table(keys, sums)
                        for vertex in (np.int64(u), np.int64(v), np.int64(w)):
                            used += add_to_key(keys, sums, vertex * n_epochs + begin, 1)
                            if end < never:
                                used += add_to_key(keys, sums, vertex * n_epochs + end, -1)
                    if until[x] == end:
                        x += 1
                    if until[y] == end:
                        y += 1
                    if until[z] == end:
                        z += 1
        for i in range(first, last):
            mark[head[i]] = -1
    twice = np.zeros(n, np.int64)  # a triangle at a vertex lies on two of its edges
    for u in range(n):
        for i in range(indptr[u], indptr[u + 1]):
            twice[u] += support[i]
            twice[head[i]] += support[i]
    for u in range(n):
        if twice[u]:
            if keys.size and 2 * (used + 2) > keys.size:
                keys, sums = grow_table(keys, sums)
            used += add_to_key(keys, sums, u * n_epochs + usual_start, twice[u] // 2)
            if usual_until < never:
                used += add_to_key(keys, sums, u * n_epochs + usual_until, -(twice[u] // 2))
    return keys, sums
