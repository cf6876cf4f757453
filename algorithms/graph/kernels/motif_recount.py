"""The occurrences of a motif at every vertex of one graph, counted from scratch: the reference of the audit.

It shares only the pattern with `motif_delta`: it has no intervals, changes or rules. From every vertex of the graph it
goes on vertex by vertex, in an order in which the pattern connects them.

Shapes  Relations by name: (a, b), int64[m] each, each pair once; relations that are not directed have either order.
        Result: vertices (sorted) and how often each occurs, int64, none zero.
Cost    Every partial occurrence is looked at once; a vertex has the candidates of its least neighbour list.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit

from altneu.algorithms.graph.kernels.intervals import Longs
from altneu.algorithms.graph.motif_patterns import Pattern

Pairs = tuple[Longs, Longs]


def count_motifs(patterns: Sequence[Pattern], relations: Mapping[str, Pairs]) -> tuple[Longs, Longs]:
    """Count the occurrences of patterns at each vertex; the module docstring has the shapes.

    >>> square = np.array([1, 2, 3, 1]), np.array([2, 3, 4, 4])
    >>> [column.tolist() for column in count_motifs([Pattern.from_text("a-b, b-c")], {"-": square})]
    [[1, 2, 3, 4], [3, 3, 3, 3]]
    """
    ends = np.concatenate([end for pair in relations.values() for end in pair])
    vertices, index = np.unique(ends, return_inverse=True)
    n = vertices.size
    order = np.argsort(np.bincount(index, minlength=n), kind="stable")
    ranks = np.empty(n, np.int64)
    ranks[order] = np.arange(n)
    near: list[Pairs] = []  # starts and neighbours: from a to b, from b to a
    places = {}
    for name, pairs in relations.items():
        a, b = (ranks[np.searchsorted(vertices, end)] for end in pairs)
        if not name.startswith("->"):
            a, b = np.concatenate([a, b]), np.concatenate([b, a])
        places[name] = len(near)
        for x, y in ((a, b), (b, a)):
            code = np.sort(x * n + y)
            near.append((np.searchsorted(code, np.arange(n + 1) * n), code % max(n, 1)))
    offsets = np.cumsum([0, *(heads.size for _, heads in near)])
    starts = np.stack([indptr + offset for (indptr, _), offset in zip(near, offsets, strict=False)])
    heads = np.concatenate([heads for _, heads in near])
    counts = np.zeros(n, np.int64)
    for pattern in patterns:
        place = {name: i for i, name in enumerate(_connected_order(pattern))}
        asks = []  # (later place, earlier place, the list of the earlier vertex in which the later one has to be)
        for edge in pattern.edges:
            first, second, of = place[edge.a], place[edge.b], places[edge.relation]
            asks.append((second, first, of) if first < second else (first, second, of + 1))
        limits = []  # (later place, earlier place, 1: the later vertex has to be above the earlier one, -1: below)
        for low, high in pattern.less_than:
            first, second = place[low], place[high]
            limits.append((second, first, 1) if first < second else (first, second, -1))
        at = np.zeros(len(place), np.int64)
        _count_embeddings(
            at, starts, heads, np.array(asks, np.int64), np.array(limits, np.int64).reshape(-1, 3), counts
        )
    by = np.argsort(vertices[order])
    by = by[counts[by] > 0]
    return vertices[order][by], counts[by]


def _connected_order(pattern: Pattern) -> list[str]:
    """Return the vertices in an order in which each but the first is joined to one before it."""
    known = [pattern.vertices[0]]
    while len(known) < len(pattern.vertices):
        for edge in pattern.edges:
            if (edge.a in known) != (edge.b in known):
                known.append(edge.b if edge.a in known else edge.a)
    return known


@njit(cache=True, nogil=True)
def _count_embeddings(at, starts, heads, asks, limits, counts):
    size = at.size
    inside = np.zeros(size, np.int64)  # occurrences that begin with the vertices up to each place
    here, end, by = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    for root in range(counts.size):
        at[0], inside[0] = root, 0
        depth, enter = 1, True
        while depth > 0:
            if depth == size:
                inside[size - 1] = 1
            elif enter:
                by[depth], here[depth], end[depth] = _smallest_candidates(depth, at, starts, heads, asks, limits)
            enter = False
            while depth < size and not enter and here[depth] < end[depth]:
                at[depth], inside[depth] = heads[here[depth]], 0
                here[depth] += 1
                enter = _is_match(depth, by[depth], at, starts, heads, asks)
            if enter:
                depth += 1
                continue
            depth -= 1
            counts[at[depth]] += inside[depth]
            if depth:
                inside[depth - 1] += inside[depth]


@njit(cache=True, nogil=True)
def _smallest_candidates(depth, at, starts, heads, asks, limits):
    """Return which requirement of a place offers the fewest neighbours, and where those that are in order are."""
    best, low, high = -1, 0, 0
    for k in range(asks.shape[0]):
        if asks[k, 0] == depth:
            x, of = at[asks[k, 1]], asks[k, 2]
            if best < 0 or starts[of, x + 1] - starts[of, x] < high - low:
                best, low, high = k, starts[of, x], starts[of, x + 1]
    for k in range(limits.shape[0]):
        if limits[k, 0] == depth:
            cut = low + np.searchsorted(heads[low:high], at[limits[k, 1]])
            low, high = (cut, high) if limits[k, 2] > 0 else (low, cut)
    return best, low, high


@njit(cache=True, nogil=True)
def _is_match(depth, by, at, starts, heads, asks):
    """Tell whether the vertex at a place differs from those before, and is joined to all that the pattern requires."""
    w = at[depth]
    for p in range(depth):
        if at[p] == w:
            return False
    for k in range(asks.shape[0]):
        if k != by and asks[k, 0] == depth:
            x, of = at[asks[k, 1]], asks[k, 2]
            near = heads[starts[of, x] : starts[of, x + 1]]
            j = np.searchsorted(near, w)
            if j == near.size or near[j] != w:
                return False
    return True
