"""The changes of the occurrences of motifs at every vertex over a history, from a change of the relations.

This is the generic delta query (`delta_query`) on arrays. Rule i starts from the changes of a pattern's edge i. It sees
the edges before i with this change and the later ones without it, so that exactly one rule finds each changed
occurrence. It goes on vertex by vertex: the edge with the fewest rows at a bound vertex proposes, the others are looked
up. Without a state before, one rule is enough, because everything changes.

Shapes  Relations by name: (a, b, start, until[, diff]), int64[m] each. The state before: the intervals of an edge are
        disjoint; the change: signed intervals. In relations that are not directed a < b, and each edge occurs once.
        Result: diff triples (vertex, epoch, diff) of the number of occurrences at the vertex, sorted, none zero.
Cost    Σ over the changes of each rule of the least number of rows at a bound vertex (law 8), and the occurrences
        found. All relations are arranged once, by both ends: about 300 bytes a row.
Source  Seed 4; Ngo et al. 2012, Ammar et al. 2018. Ranks by degree, so that `less_than` cuts at hubs: Chiba, Nishizeki.
"""

# numba infers the types of kernels from the arrays that they receive.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels.graph import Shorts
from altneu.algorithms.graph.kernels.hash_sums import add_to_key, grow_table, make_table, nonzero_sums
from altneu.algorithms.graph.kernels.intervals import Longs
from altneu.algorithms.graph.motif_patterns import Pattern, list_relations

Rows = tuple[Longs, Longs, Longs, Longs, Longs]  # a, b, start, until, diff


class _Index(NamedTuple):
    """The rows of all relations, sorted from both ends; those of vertex x on a side are indptr[side, x : x + 2]."""

    indptr: Longs
    head: Shorts
    start: Shorts
    until: Shorts
    diff: NDArray[np.int8]
    neu: NDArray[np.bool_]


class _Levels(NamedTuple):
    """The levels at which a rule goes on, one for each edge of the pattern but its own.

    edge, side: of the index; bound, place: the places of the end that is bound and of the other end; group: how many
    levels bind this vertex, at the first of them, which stand together; order: order[p, q] is 1 if the vertex at place
    p has to be above that at place q, -1 if it has to be below.
    """

    edge: Longs
    side: Longs
    bound: Longs
    place: Longs
    group: Longs
    order: Longs


def vertex_changes(
    motifs: Mapping[str, Sequence[Pattern]], before: Mapping[str, Rows], change: Mapping[str, Rows] | None = None
) -> dict[str, tuple[Longs, Longs, Longs]]:
    """Return (vertex, epoch, diff) of each motif. Without `change` the result is all of `before`, from an empty state.

    >>> edges = [np.array(column) for column in ([1, 1, 2], [2, 3, 3], [0, 4, 2], [9, 9, 7], [1, 1, 1])]
    >>> found = vertex_changes({"triangle": [Pattern.from_text("a-b, b-c, a-c")]}, {"-": tuple(edges)})
    >>> [column.tolist() for column in found["triangle"]]
    [[1, 1, 2, 2, 3, 3], [4, 7, 4, 7, 4, 7], [1, -1, 1, -1, 1, -1]]
    """
    relations = {name: before.get(name, _NOTHING) for name in list_relations(motifs)}
    arranged = _ArrangedRelations(relations, change)
    return {name: arranged.count_changes(patterns) for name, patterns in motifs.items()}


_NOTHING: Rows = (np.zeros(0, np.int64),) * 5


class _ArrangedRelations:
    """All relations with vertices as ranks and epochs as places, sorted from both ends."""

    def __init__(self, before: Mapping[str, Rows], change: Mapping[str, Rows] | None) -> None:
        parts = [*before.values(), *(change or {}).values()]
        self.rows = sum(part[0].size for part in parts)
        ends = np.concatenate([column for part in parts for column in part[:2]])
        self.vertices, index = np.unique(ends, return_inverse=True)
        order = np.argsort(np.bincount(index, minlength=self.vertices.size), kind="stable")
        self.ranks = np.empty(self.vertices.size, np.int64)
        self.ranks[order] = np.arange(self.vertices.size)
        self.ids = self.vertices[order]
        self.epochs = np.unique(np.concatenate([column for part in parts for column in part[2:4]]))
        self.from_nothing = change is None
        self.starts: dict[str, Rows] = {}
        self.sides: dict[tuple[str, bool], int] = {}  # (relation, from its first end?) -> row of `indptr`
        indptr: list[Longs] = []
        columns: list[list[Any]] = []
        offset = 0
        for name in dict.fromkeys([*before, *(change or {})]):
            old = self._rank_rows(before.get(name))
            new = self._rank_rows((change or {}).get(name))
            self.starts[name] = old if change is None else new
            a, b, start, until, diff = (np.concatenate(pair) for pair in zip(old, new, strict=True))
            neu = np.arange(a.size) >= old[0].size
            ways = [(a, b), (b, a)]
            if not name.startswith("->"):
                ways = [(np.concatenate([a, b]), np.concatenate([b, a]))]
                start, until, diff, neu = (np.concatenate([c, c]) for c in (start, until, diff, neu))
            for way, (x, y) in enumerate(ways):
                by = np.lexsort((y, x))
                self.sides[name, way == 0] = len(indptr)
                indptr.append(offset + np.searchsorted(x[by], np.arange(self.vertices.size + 1)))
                columns.append([column[by] for column in (y, start, until, diff, neu)])
                offset += x.size
            self.sides.setdefault((name, False), self.sides[name, True])
        y, start, until, diff, neu = (np.concatenate(each) for each in zip(*columns, strict=True))
        short = y.astype(np.int32), start.astype(np.int32), until.astype(np.int32)
        self.index = _Index(np.stack(indptr), *short, diff.astype(np.int8), neu)

    def _rank_rows(self, rows: Rows | None) -> Rows:
        if rows is None:
            return _NOTHING
        a, b = (self.ranks[np.searchsorted(self.vertices, end)] for end in rows[:2])
        start, until = (np.searchsorted(self.epochs, at) for at in rows[2:4])
        return a, b, start, until, rows[4]

    def count_changes(self, patterns: Sequence[Pattern]) -> tuple[Longs, Longs, Longs]:
        n_epochs = max(1, self.epochs.size)
        never = int(np.searchsorted(self.epochs, FOREVER))
        keys, sums = make_table(self.vertices.size * n_epochs, self.rows)
        used = 0
        for pattern in patterns:
            for rule in range(1 if self.from_nothing else len(pattern.edges)):
                edge, levels = pattern.edges[rule], _plan_rule(pattern, rule, self.sides)
                starts, ways = self.starts[edge.relation], 1 if edge.is_directed else 2
                keys, sums, used = _enumerate_occurrences(
                    starts, ways, self.index, levels, rule, n_epochs, never, keys, sums, used
                )
        keys, sums = nonzero_sums(keys, sums)
        vertex, epoch = self.ids[keys // n_epochs], self.epochs[keys % n_epochs]
        by = np.lexsort((epoch, vertex))
        return vertex[by], epoch[by], sums[by]


def _plan_rule(pattern: Pattern, rule: int, sides: Mapping[tuple[str, bool], int]) -> _Levels:
    places = {pattern.edges[rule].a: 0, pattern.edges[rule].b: 1}
    remaining = {j: edge for j, edge in enumerate(pattern.edges) if j != rule}
    levels: list[tuple[int, int, int, int, int]] = []

    def bind_vertex(vertex: str, *, first: bool) -> None:
        place = places[vertex]
        group_edges = [(j, e) for j, e in remaining.items() if vertex in (e.a, e.b) and {e.a, e.b} <= set(places)]
        for j, edge in group_edges:
            from_a = edge.b == vertex
            bound = places[edge.a if from_a else edge.b]
            group = len(group_edges) if first and (j, edge) == group_edges[0] else 0
            levels.append((j, sides[edge.relation, from_a], bound, place, group))
            del remaining[j]

    bind_vertex(pattern.edges[rule].b, first=False)  # other edges between the same two vertices
    free = [vertex for vertex in pattern.vertices if vertex not in places]
    while free:
        tied = {v: sum(v in (e.a, e.b) and bool({e.a, e.b} & set(places)) for e in remaining.values()) for v in free}
        vertex = max(free, key=lambda v: tied[v])
        places[vertex] = len(places)
        free.remove(vertex)
        bind_vertex(vertex, first=True)
    order = np.zeros((len(places), len(places)), np.int64)
    for low, high in pattern.less_than:
        order[places[high], places[low]] = 1
        order[places[low], places[high]] = -1
    edge, side, bound, place, group = (np.array([level[i] for level in levels], np.int64) for i in range(5))
    return _Levels(edge, side, bound, place, group, order)


@njit(cache=True, nogil=True)
def _enumerate_occurrences(starts, ways, index, levels, rule, n_epochs, never, keys, sums, used):
    """Add the occurrences that one rule finds to the sums by key = rank * n_epochs + epoch; return the table.

    starts: `Rows`; ways: 2 if each of them is taken in both directions; index: `_Index`; levels: `_Levels`.
    """
    start_a, start_b, start_from, start_until, start_diff = starts
    number, n_places = levels.edge.size, levels.order.shape[0]
    chosen = np.stack((levels.edge, levels.side, levels.bound))  # the levels of a group change places
    at = np.zeros(n_places, np.int64)
    here, end = np.zeros(number + 1, np.int64), np.zeros(number + 1, np.int64)
    begins, ends, signs = np.zeros((3, number + 1), np.int64)
    kept = np.zeros((n_places, 4), np.int64)
    for row in range(start_a.size):
        for way in range(ways):
            at[0], at[1] = (start_b[row], start_a[row]) if way else (start_a[row], start_b[row])
            order = levels.order[1, 0]
            if (order > 0 and at[1] < at[0]) or (order < 0 and at[1] > at[0]):
                continue
            begins[0], ends[0], signs[0] = start_from[row], start_until[row], start_diff[row]
            level, enter = 0, True
            while level >= 0:
                if level == number:
                    slot = begins[level], ends[level], signs[level]
                    keys, sums, used = _add_occurrence(kept, at, *slot, n_epochs, never, keys, sums, used)
                    level, enter = level - 1, False
                    continue
                if enter:
                    here[level], end[level] = _open_level(index, levels, chosen, level, at)
                enter = False
                while here[level] < end[level] and not enter:
                    i = here[level]
                    here[level] += 1
                    begin, until = max(begins[level], index.start[i]), min(ends[level], index.until[i])
                    if begin >= until or (index.neu[i] and chosen[0, level] > rule):
                        continue
                    place = levels.place[level]
                    if levels.group[level]:
                        if _is_among(index.head[i], at, place):
                            continue
                        at[place] = index.head[i]
                    begins[level + 1], ends[level + 1], signs[level + 1] = begin, until, signs[level] * index.diff[i]
                    enter = True
                level += 1 if enter else -1
    return _add_occurrence(kept, np.full(n_places, -1, np.int64), 0, 0, 0, n_epochs, never, keys, sums, used)


@njit(cache=True, nogil=True)
def _open_level(index, levels, chosen, level, at):
    """Return the stretch of the index that a level goes through, from the vertices bound so far (`at`).

    If the level binds a vertex, the edge with the fewest rows of its group proposes, and changes places with it.
    """
    indptr, place, group = index.indptr, levels.place[level], levels.group[level]
    if group:
        best, least = level, np.int64(-1)
        for other in range(level, level + group):
            side, x = chosen[1, other], at[chosen[2, other]]
            offers = indptr[side, x + 1] - indptr[side, x]
            if least < 0 or offers < least:
                best, least = other, offers
        for part in range(3):
            chosen[part, level], chosen[part, best] = chosen[part, best], chosen[part, level]
    side, x = chosen[1, level], at[chosen[2, level]]
    low, high = indptr[side, x], indptr[side, x + 1]
    if not group:
        low = end = _first_position(index.head, low, high, at[place])
        while end < high and index.head[end] == at[place]:
            end += 1
        return low, end
    for p in range(place):
        if levels.order[place, p] > 0:
            low = _first_position(index.head, low, high, at[p] + 1)
        elif levels.order[place, p] < 0:
            high = _first_position(index.head, low, high, at[p])
    return low, high


@njit(cache=True, nogil=True)
def _is_among(vertex, at, number):
    """Tell whether a vertex is among the first ones of `at`."""
    is_among = False
    for p in range(number):
        is_among |= at[p] == vertex
    return is_among


@njit(cache=True, nogil=True)
def _add_occurrence(kept, at, begin, until, sign, n_epochs, never, keys, sums, used):
    """Count an occurrence at its vertices.

    Successive occurrences share most of their vertices: the sum for each place (vertex, from, until, sum) is kept, and
    added to the table when another vertex or interval comes.
    """
    for p in range(at.size):
        if kept[p, 0] == at[p] and kept[p, 1] == begin and kept[p, 2] == until:
            kept[p, 3] += sign
            continue
        if kept[p, 3]:
            if keys.size and 2 * (used + 2) > keys.size:
                keys, sums = grow_table(keys, sums)
            used += add_to_key(keys, sums, kept[p, 0] * n_epochs + kept[p, 1], kept[p, 3])
            if kept[p, 2] < never:
                used += add_to_key(keys, sums, kept[p, 0] * n_epochs + kept[p, 2], -kept[p, 3])
        kept[p, 0], kept[p, 1], kept[p, 2], kept[p, 3] = at[p], begin, until, sign
    return keys, sums, used


@njit(cache=True, nogil=True)
def _first_position(heads, low, high, value):
    """Return the first place in a sorted stretch whose head is not below `value`."""
    while low < high:
        middle = (low + high) >> 1
        if heads[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
