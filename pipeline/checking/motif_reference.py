"""The audit's own parser of the motifs in the settings, so that a fault of `altneu.algorithms.graph.motif_patterns` is
found.

Patterns of a motif that differ only in the names of their vertices are one pattern. Of the maps that differ only by a
symmetry one is counted, by limits on the order of the vertices. It is verified over all orders that these limits admit
exactly one map.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from math import factorial

from altneu.algorithms.graph.motif_patterns import Pattern, PatternEdge
from altneu.algorithms.sql_predicates import normalize

Motifs = dict[str, list[Pattern]]
Shape = frozenset[tuple[str, frozenset[tuple[int, int]]]]


def read_motifs(motifs: Mapping[str, str | Sequence[str]]) -> Motifs:
    """Read `[motifs]`, and return the patterns of each motif without repetitions, in order."""
    patterns: Motifs = {}
    for name, texts in motifs.items():
        different: dict[object, list[PatternEdge]] = {}
        for text in [texts] if isinstance(texts, str) else texts:
            edges = [_read_edge(part) for part in _split_edges(text)]
            different.setdefault(_least_shape(edges), edges)
        patterns[name] = [Pattern(tuple(edges), _symmetry_limits(edges)) for edges in different.values()]
    return patterns


def _split_edges(text: str) -> list[str]:
    """Split a pattern into its edges, at the commas outside of brackets and quotes."""
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
    """Parse an edge `a-b` or `a->b`, with or without `where CONDITION` after it."""
    ends, *condition = re.split(r"\swhere\s", part, maxsplit=1)
    a, arrow, b = ends.partition("->")
    if not arrow:
        a, arrow, b = ends.partition("-")
    relation = " where ".join([arrow, *(asked.strip() for asked in condition)])
    return PatternEdge(relation, a.strip(), b.strip())


def _number_vertices(edges: Sequence[PatternEdge], place: Mapping[str, int]) -> Shape:
    """Return the shape of a pattern under a numbering of its vertices: the pairs of numbers of each relation."""
    pairs_by_kind: dict[str, set[tuple[int, int]]] = {}
    for edge in edges:
        kind, _, condition = edge.relation.partition(" where ")
        pair = place[edge.a], place[edge.b]
        pairs_by_kind.setdefault(f"{kind} {normalize(condition)}", set()).add(
            pair if kind == "->" else (min(pair), max(pair))
        )
    return frozenset((kind, frozenset(pairs)) for kind, pairs in pairs_by_kind.items())


def _list_numberings(edges: Sequence[PatternEdge]) -> list[dict[str, int]]:
    names = sorted({end for edge in edges for end in (edge.a, edge.b)})
    return [dict(zip(names, order, strict=True)) for order in permutations(range(len(names)))]


def _least_shape(edges: Sequence[PatternEdge]) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """Return the least shape of a pattern under all numberings, which is equal for isomorphic patterns."""
    shapes = (_number_vertices(edges, place) for place in _list_numberings(edges))
    return min(tuple(sorted((kind, tuple(sorted(pairs))) for kind, pairs in shape)) for shape in shapes)


def _symmetry_limits(edges: Sequence[PatternEdge]) -> tuple[tuple[str, str], ...]:
    """Return pairs (x, y) of vertices such that exactly one of all maps onto an occurrence puts every x below its y."""
    numberings = _list_numberings(edges)
    first = numberings[0]
    names = list(first)
    symmetries = [place for place in numberings if _number_vertices(edges, place) == _number_vertices(edges, first)]
    remaining, limits = symmetries, []
    for name in reversed(names):
        images = {names[place[name]] for place in remaining}
        limits += [(name, other) for other in sorted(images - {name})]
        remaining = [place for place in remaining if place[name] == first[name]]
    admitted = sum(all(place[x] < place[y] for x, y in limits) for place in numberings)
    if admitted * len(symmetries) != factorial(len(names)):
        raise AssertionError(f"{len(symmetries)} symmetries, but {admitted} orders of {len(names)} vertices are kept")
    return tuple(limits)
