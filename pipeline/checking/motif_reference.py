"""Motifs as the audit reads them from the settings: by a reading of its own, so that a fault of
`algorithms.motif_patterns` shows as a difference.

Patterns of a motif that are the same but for the names of their vertices are one. Of the maps that differ by a symmetry
alone one is counted, by limits on the order of the vertices; that these admit exactly one is tried on every order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from math import factorial

from algorithms.motif_patterns import Pattern, PatternEdge
from algorithms.sql_predicates import normalize

Motifs = dict[str, list[Pattern]]
Shape = frozenset[tuple[str, frozenset[tuple[int, int]]]]


def read_motifs(motifs: Mapping[str, str | Sequence[str]]) -> Motifs:
    """`[motifs]` → by name, in order, its patterns without repetitions."""
    found: Motifs = {}
    for name, texts in motifs.items():
        different: dict[object, list[PatternEdge]] = {}
        for text in [texts] if isinstance(texts, str) else texts:
            edges = [_read_edge(part) for part in _split_edges(text)]
            different.setdefault(_least_shape(edges), edges)
        found[name] = [Pattern(tuple(edges), _symmetry_limits(edges)) for edges in different.values()]
    return found


def _split_edges(text: str) -> list[str]:
    """The edges of a pattern: between commas that stand outside of brackets and quotes."""
    parts, start, depth, quote = [], 0, 0, None
    for at, sign in enumerate(text):
        if quote is not None:
            quote = None if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        elif sign == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
        else:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
    return [*parts, text[start:]]


def _read_edge(part: str) -> PatternEdge:
    """`a-b`, `a->b`, either with `where CONDITION` behind it."""
    ends, *condition = re.split(r"\swhere\s", part, maxsplit=1)
    a, arrow, b = ends.partition("->")
    if not arrow:
        a, arrow, b = ends.partition("-")
    relation = " where ".join([arrow, *(asked.strip() for asked in condition)])
    return PatternEdge(relation, a.strip(), b.strip())


def _number_vertices(edges: Sequence[PatternEdge], place: Mapping[str, int]) -> Shape:
    """What a pattern asks with its vertices numbered; equal for patterns that ask the same of the same numbers."""
    asked: dict[str, set[tuple[int, int]]] = {}
    for edge in edges:
        kind, _, condition = edge.relation.partition(" where ")
        pair = place[edge.a], place[edge.b]
        asked.setdefault(f"{kind} {normalize(condition)}", set()).add(pair if kind == "->" else (min(pair), max(pair)))
    return frozenset((kind, frozenset(pairs)) for kind, pairs in asked.items())


def _list_numberings(edges: Sequence[PatternEdge]) -> list[dict[str, int]]:
    names = sorted({end for edge in edges for end in (edge.a, edge.b)})
    return [dict(zip(names, order, strict=True)) for order in permutations(range(len(names)))]


def _least_shape(edges: Sequence[PatternEdge]) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """One of the shapes of a pattern under all numberings: the same one for all patterns of its kind."""
    shapes = (_number_vertices(edges, place) for place in _list_numberings(edges))
    return min(tuple(sorted((kind, tuple(sorted(pairs))) for kind, pairs in shape)) for shape in shapes)


def _symmetry_limits(edges: Sequence[PatternEdge]) -> tuple[tuple[str, str], ...]:
    """Pairs (x, y) of vertices with x below y, so that of all maps onto an occurrence just one keeps to them."""
    numberings = _list_numberings(edges)
    first = numberings[0]
    names = list(first)
    symmetries = [place for place in numberings if _number_vertices(edges, place) == _number_vertices(edges, first)]
    left, limits = symmetries, []
    for name in reversed(names):
        images = {names[place[name]] for place in left}
        limits += [(name, other) for other in sorted(images - {name})]
        left = [place for place in left if place[name] == first[name]]
    kept = sum(all(place[x] < place[y] for x, y in limits) for place in numberings)
    if kept * len(symmetries) != factorial(len(names)):
        raise AssertionError(f"{len(symmetries)} symmetries, but {kept} orders of {len(names)} vertices are kept")
    return tuple(limits)
