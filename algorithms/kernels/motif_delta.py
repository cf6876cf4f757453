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
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from algorithms.kernels.hash_sums import add_to_key, grow_table, make_table, nonzero_sums
from algorithms.kernels.intervals import Longs
from algorithms.motif_patterns import Pattern, list_relations
from algorithms.time_lattice import FOREVER

Rows = tuple[Longs, Longs, Longs, Longs, Longs]  # a, b, start, until, diff


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
        self.indptr = np.stack(indptr)
        y, start, until, diff, neu = (np.concatenate(each) for each in zip(*columns, strict=True))
        self.index = y.astype(np.int32), start.astype(np.int32), until.astype(np.int32), diff.astype(np.int8), neu

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
                plan = _plan_rule(pattern, rule, self.sides)
                edge = pattern.edges[rule]
                keys, sums, used = _enumerate_occurrences(  # type: ignore[call-arg]
                    *self.starts[edge.relation],
                    not edge.is_directed,
                    *(self.indptr, *self.index),
                    *(*plan.to_columns(), plan.order, rule),
                    *(n_epochs, never),
                    *(keys, sums, used),
                )
        keys, sums = nonzero_sums(keys, sums)
        vertex, epoch = self.ids[keys // n_epochs], self.epochs[keys % n_epochs]
        by = np.lexsort((epoch, vertex))
        return vertex[by], epoch[by], sums[by]


@dataclass(frozen=True)
class _RulePlan:
    """The order in which a rule goes on: a level for each edge except its own; levels that bind the same vertex are
    together.

    levels: (edge, side, place of the bound end, place of the other end, the number of levels that bind this vertex,
    which only the first of them has). order: order[p, q] is 1 if the vertex at place p has to be above that at place q,
    -1 if it has to be below.
    """

    levels: list[tuple[int, int, int, int, int]]
    order: Any

    def to_columns(self) -> list[Longs]:
        return [np.array([level[i] for level in self.levels], np.int64) for i in range(5)]


def _plan_rule(pattern: Pattern, rule: int, sides: Mapping[tuple[str, bool], int]) -> _RulePlan:
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
    return _RulePlan(levels, order)


@njit(cache=True, nogil=True)
def _enumerate_occurrences(
    start_a, start_b, start_from, start_until, start_diff, both_ways,
    indptr, heads, froms, untils, diffs, neu,
    edges, sides, bounds, places, groups, order, rule,
    n_epochs, never, keys, sums, used,
):  # fmt: skip
    """Add the occurrences that one rule finds to the sums by key = rank * n_epochs + epoch; return the table."""
    levels, n_places = edges.size, order.shape[0]
    edges, sides, bounds = edges.copy(), sides.copy(), bounds.copy()  # the levels of a group change places
    at = np.zeros(n_places, np.int64)
    here, end = np.zeros(levels + 1, np.int64), np.zeros(levels + 1, np.int64)
    begins, ends, signs = np.zeros((3, levels + 1), np.int64)
    kept = np.zeros((n_places, 4), np.int64)
    for row in range(start_a.size):
        for way in range(2 if both_ways else 1):
            at[0], at[1] = (start_b[row], start_a[row]) if way else (start_a[row], start_b[row])
            if (order[1, 0] > 0 and at[1] < at[0]) or (order[1, 0] < 0 and at[1] > at[0]):
                continue
            begins[0], ends[0], signs[0] = start_from[row], start_until[row], start_diff[row]
            level, enter = 0, True
            while level >= 0:
                if level == levels:
                    found = begins[level], ends[level], signs[level]
                    keys, sums, used = _add_occurrence(kept, at, *found, n_epochs, never, keys, sums, used)
                    level, enter = level - 1, False
                    continue
                place = places[level]
                if enter and groups[level]:
                    best, least = level, np.int64(-1)
                    for other in range(level, level + groups[level]):
                        x = at[bounds[other]]
                        offers = indptr[sides[other], x + 1] - indptr[sides[other], x]
                        if least < 0 or offers < least:
                            best, least = other, offers
                    edges[level], edges[best] = edges[best], edges[level]
                    sides[level], sides[best] = sides[best], sides[level]
                    bounds[level], bounds[best] = bounds[best], bounds[level]
                    x = at[bounds[level]]
                    here[level], end[level] = indptr[sides[level], x], indptr[sides[level], x + 1]
                    for p in range(place):
                        if order[place, p] > 0:
                            here[level] = _first_position(heads, here[level], end[level], at[p] + 1)
                        elif order[place, p] < 0:
                            end[level] = _first_position(heads, here[level], end[level], at[p])
                elif enter:
                    x = at[bounds[level]]
                    high = indptr[sides[level], x + 1]
                    here[level] = _first_position(heads, indptr[sides[level], x], high, at[place])
                    end[level] = here[level]
                    while end[level] < high and heads[end[level]] == at[place]:
                        end[level] += 1
                enter = False
                while here[level] < end[level]:
                    i = here[level]
                    here[level] += 1
                    begin, until = max(begins[level], froms[i]), min(ends[level], untils[i])
                    if begin >= until or (neu[i] and edges[level] > rule):
                        continue
                    if groups[level]:
                        taken = False
                        for p in range(place):
                            taken |= at[p] == heads[i]
                        if taken:
                            continue
                        at[place] = heads[i]
                    begins[level + 1], ends[level + 1], signs[level + 1] = begin, until, signs[level] * diffs[i]
                    enter = True
                    break
                level += 1 if enter else -1
    return _add_occurrence(kept, np.full(n_places, -1, np.int64), 0, 0, 0, n_epochs, never, keys, sums, used)


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
