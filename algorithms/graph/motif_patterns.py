"""Motifs as text: the parser of small patterns of edges, without Spark, which checks the settings in `altneu.toml`.

Text     `"a-b, b-c, a-c"`: vertices by name, edges between them. `a-b` is an edge of the graph, `a->b` an upsert in
         force from a to b. `where` after it begins a condition on its values: `"a->b where w > 0, b->c where w < 0"`.
         `a-b where …` requires the condition of at least one direction. A pattern has up to `MAX_VERTICES` vertices and
         is connected.
Law      An occurrence maps the pattern's vertices to different vertices, and each of its edges to one that exists;
         further edges may exist between these vertices (not induced). Occurrences that differ only by a symmetry of
         the pattern are one: `less_than` admits one of each such class.
Source   Seed 4 (conjunctive queries); Grochow, Kellis 2007 (symmetry breaking).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from altneu.algorithms.sql_predicates import collapse_blanks, normalize, spark_sql, split_at_commas

MAX_VERTICES = 6  # vertices of a pattern: the symmetries are found by trying all permutations
OWN_EDGES = "-"  # the relation of the graph's own edges

_EDGE = r"\s*(\w+)\s*(->|-)\s*(\w+)\s*"
_ONE = re.compile(rf"{_EDGE}(?:where\s+(.+))?", re.DOTALL)


@dataclass(frozen=True)
class PatternEdge:
    """An edge of a pattern: two different vertices, and the name of its relation.

    A relation is called `-` for edges or `->` for upserts in force with their direction, perhaps followed by ` where
    CONDITION`.
    """

    relation: str
    a: str
    b: str

    @property
    def is_directed(self) -> bool:
        return self.relation.startswith("->")

    def edge_key(self) -> tuple[str, str, str]:
        """Return a key that is equal for edges that require the same."""
        a, b = (self.a, self.b) if self.is_directed else sorted((self.a, self.b))
        kind, _, condition = self.relation.partition(" where ")
        return f"{kind} {normalize(condition)}", a, b


@dataclass(frozen=True)
class Pattern:
    """A connected pattern: its edges, and pairs (x, y) of vertices that an occurrence has in the order x < y."""

    edges: tuple[PatternEdge, ...]
    less_than: tuple[tuple[str, str], ...]

    @classmethod
    def from_text(cls, text: str) -> Pattern:
        """Return the pattern of a text.

        Raises:
            ValueError: says what is wrong at which column of the text, counted from 1.

        >>> Pattern.from_text("a-b, b-c, a-c").less_than
        (('a', 'b'), ('a', 'c'), ('b', 'c'))
        >>> Pattern.from_text("a->b, b->c, c->a").less_than, Pattern.from_text("a->b, a->c").less_than
        ((('a', 'b'), ('a', 'c')), (('b', 'c'),))
        """
        edges: list[PatternEdge] = []
        columns: dict[str, int] = {}  # vertex → the column at which its first edge begins
        start = 0
        for piece in split_at_commas(text):
            match = _ONE.fullmatch(piece)
            if not match:
                raise ValueError(_syntax_message(start, piece))
            a, kind, b, where = match.groups()
            column = start + match.start(1) + 1
            if a == b:
                raise ValueError(f"at column {column}: {piece.strip()!r} joins a vertex to itself")
            edge = PatternEdge(kind + (f" where {collapse_blanks(where)}" if where else ""), a, b)
            if edge.edge_key() in {other.edge_key() for other in edges}:
                raise ValueError(f"at column {column}: an edge occurs twice")
            columns = {a: column, b: column} | columns
            edges.append(edge)
            start += len(piece) + 1
        vertices = _list_vertices(edges)
        if len(vertices) > MAX_VERTICES:
            raise ValueError(f"the pattern has {len(vertices)} vertices; at most {MAX_VERTICES} are possible")
        reached = {edges[0].a}
        for _ in vertices:
            reached |= {v for edge in edges if {edge.a, edge.b} & reached for v in (edge.a, edge.b)}
        if len(reached) < len(vertices):
            apart = sorted(set(vertices) - reached)
            column = min(columns[v] for v in apart)
            raise ValueError(f"at column {column}: not connected to {edges[0].a}: {', '.join(apart)}")
        return cls(tuple(edges), _symmetry_breaking_pairs(edges, vertices))

    @property
    def vertices(self) -> list[str]:
        """Return the names of the vertices, in order of appearance."""
        return _list_vertices(self.edges)

    def symmetries(self) -> list[dict[str, str]]:
        """Return every permutation of the vertices that leaves the pattern as it is."""
        return _find_symmetries(self.edges, self.vertices)

    def canonical(self) -> tuple[tuple[str, str, str], ...]:
        """Return a key that is equal for patterns with the same edges, directions and conditions up to the names of
        vertices.

        >>> Pattern.from_text("a-b, b-c").canonical() == Pattern.from_text("y-x, z-x").canonical()
        True
        >>> Pattern.from_text("a->b, b->c").canonical() == Pattern.from_text("a->b, a->c").canonical()
        False
        """
        names = [str(place) for place in range(len(self.vertices))]
        renamed = (dict(zip(self.vertices, order, strict=True)) for order in permutations(names))
        return min(
            tuple(sorted(PatternEdge(edge.relation, to[edge.a], to[edge.b]).edge_key() for edge in self.edges))
            for to in renamed
        )


def parse_motif(text: str | list[str]) -> list[Pattern]:
    """Return the pattern of a motif, or its several patterns, of which each occurrence counts.

    Raises:
        ValueError: says what is wrong with the text.
    """
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
        raise ValueError("expected a pattern, or a list of patterns")
    patterns = [Pattern.from_text(each) for each in texts]
    if len({len(pattern.vertices) for pattern in patterns}) > 1:
        raise ValueError("the patterns have different numbers of vertices: declare them as separate motifs")
    first: dict[tuple[tuple[str, str, str], ...], str] = {}
    for pattern, each in zip(patterns, texts, strict=True):
        same = first.setdefault(pattern.canonical(), each)
        if same is not each:
            raise ValueError(f"{each!r} and {same!r} are the same pattern: they differ only in the names of vertices")
    return patterns


def list_conditions(patterns: Sequence[Pattern]) -> list[str]:
    """Return the conditions of the patterns' edges on the values, as they are written in the settings."""
    relations = dict.fromkeys(edge.relation for pattern in patterns for edge in pattern.edges)
    return [asked for asked in (name.partition(" where ")[2] for name in relations) if asked]


def list_relations(motifs: Mapping[str, Sequence[Pattern]]) -> list[str]:
    """Return the relations of the edges of motifs, in order of appearance."""
    names = (edge.relation for patterns in motifs.values() for pattern in patterns for edge in pattern.edges)
    return list(dict.fromkeys(names))


def extra_relations(motifs: Mapping[str, Sequence[Pattern]]) -> list[str]:
    """Return the relations that are not the edges of the graph, and so are stored in addition to them."""
    return [name for name in list_relations(motifs) if name != OWN_EDGES]


def count_rules(motifs: Mapping[str, Sequence[Pattern]]) -> int:
    """Return the greatest number of delta rules of one of the patterns: one for each of its edges."""
    return max(len(pattern.edges) for patterns in motifs.values() for pattern in patterns)


def relation_condition(relation: str) -> str | None:
    """Return the condition of a relation on the values as Spark SQL, or None.

    >>> relation_condition("-> where rating > 0"), relation_condition("->")
    ('rating > 0', None)
    """
    return spark_sql(relation.partition(" where ")[2]) or None


def _syntax_message(start: int, piece: str) -> str:
    """Return a message that names the column at which a piece of the text is wrong, and what is expected there."""
    edge = re.match(_EDGE, piece)
    if edge is None:
        good, what = len(piece) - len(piece.lstrip()), "an edge: a-b, or a->b"
    elif re.match(r"where\s*$", piece[edge.end() :]):
        good, what = len(piece), "a condition after `where`"
    else:
        good, what = edge.end(), "a comma, or `where CONDITION`"
    return f"at column {start + good + 1}: {piece.strip()!r} is not an edge; expected {what}"


def _list_vertices(edges: list[PatternEdge] | tuple[PatternEdge, ...]) -> list[str]:
    return list(dict.fromkeys(v for edge in edges for v in (edge.a, edge.b)))


def _find_symmetries(edges: list[PatternEdge] | tuple[PatternEdge, ...], vertices: list[str]) -> list[dict[str, str]]:
    keys = {edge.edge_key() for edge in edges}
    symmetries = []
    for image in permutations(vertices):
        to = dict(zip(vertices, image, strict=True))
        if {PatternEdge(edge.relation, to[edge.a], to[edge.b]).edge_key() for edge in edges} == keys:
            symmetries.append(to)
    return symmetries


def _symmetry_breaking_pairs(edges: list[PatternEdge], vertices: list[str]) -> tuple[tuple[str, str], ...]:
    """Return pairs that admit one occurrence of each symmetry class.

    Vertex by vertex: it is the least of those for which it can be exchanged while the vertices before it stay.
    """
    symmetries = _find_symmetries(edges, vertices)
    pairs = []
    for vertex in vertices:
        others = {to[vertex] for to in symmetries} - {vertex}
        pairs += [(vertex, other) for other in vertices if other in others]
        symmetries = [to for to in symmetries if to[vertex] == vertex]
    return tuple(pairs)
