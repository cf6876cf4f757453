"""Motifs on arrays: what a change does, against the counts before and after it; those against every injective map."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels import motif_delta, motif_recount
from altneu.algorithms.graph.motif_patterns import MAX_VERTICES, Pattern, PatternEdge, extra_relations, parse_motif
from tests import seeds

EPOCHS = 5
PATTERNS = [
    "a-b",
    "a->b",
    "a-b, b-c",
    "a-b, b-c, a-c",
    "a-b, a-c, a-d",
    "a-b, b-c, c-d, d-a",
    "a-b, a-c, b-c, b-d, c-d",
    "a-b, a-c, a-d, b-c, b-d, c-d",
    "a->b, b->c, c->a",
    "a->b, a->c, b-c",
    "a->b where x, b->a where y",
    "a->b where x, b-c, c->a where y, b-a where z",
]
Graph = dict[str, set[tuple[int, int]]]


def occurrences(pattern: Pattern, graph: Graph) -> dict[int, int]:
    """Every injective map of the vertices; each class of symmetric ones is counted as many times as it has members."""
    found: Counter[int] = Counter()
    ids = sorted({v for pairs in graph.values() for pair in pairs for v in pair})
    for image in itertools.permutations(ids, len(pattern.vertices)):
        to = dict(zip(pattern.vertices, image, strict=True))
        ends = [(edge, (to[edge.a], to[edge.b])) for edge in pattern.edges]
        if all((pair if e.is_directed else (min(pair), max(pair))) in graph[e.relation] for e, pair in ends):
            found.update(image)
    same = len(pattern.symmetries())
    assert all(count % same == 0 for count in found.values())
    return {vertex: count // same for vertex, count in found.items()}


def rows(levels: dict[str, dict[tuple[int, int], list[int]]]) -> dict[str, motif_delta.Rows]:
    """Multiplicities epoch by epoch, as signed intervals."""
    out = {}
    for name, pairs in levels.items():
        found = []
        for (a, b), line in pairs.items():
            runs = [(value, list(run)) for value, run in itertools.groupby(range(EPOCHS), key=lambda t: line[t])]
            found += [(a, b, r[0], r[-1] + 1 if r[-1] + 1 < EPOCHS else FOREVER, value) for value, r in runs if value]
        columns = np.array(found, np.int64).reshape(-1, 5).T.copy()
        out[name] = (columns[0], columns[1], columns[2], columns[3], columns[4])
    return out


def at(found: tuple[np.ndarray, ...], epoch: int) -> dict[int, int]:
    sums: Counter[int] = Counter()
    for vertex, begin, diff in zip(*(column.tolist() for column in found), strict=True):
        sums[vertex] += diff if begin <= epoch else 0
    return {vertex: count for vertex, count in sums.items() if count}


@pytest.mark.parametrize("text", PATTERNS)
def test_random_changes(text: str) -> None:
    pattern = Pattern.from_text(text)
    names = {edge.relation for edge in pattern.edges}
    for seed in seeds.several(range(8)):
        rng = random.Random(f"{text} {seed}")
        n = rng.randrange(3, 7)
        ways = {r: itertools.permutations if r.startswith("->") else itertools.combinations for r in names}
        pairs = {r: [(7 * a, 7 * b) for a, b in way(range(n), 2)] for r, way in ways.items()}
        old = {r: {pair: [int(rng.random() < 0.6) for _ in range(EPOCHS)] for pair in pairs[r]} for r in sorted(names)}
        new = {
            r: {p: line if rng.random() < 0.5 else rng.sample(line, EPOCHS) for p, line in old[r].items()} for r in old
        }
        change = {r: {p: [y - x for x, y in zip(old[r][p], new[r][p], strict=True)] for p in old[r]} for r in old}
        found = motif_delta.vertex_changes({"it": [pattern]}, rows(old), rows(change))["it"]
        before, after = (motif_delta.vertex_changes({"it": [pattern]}, rows(state))["it"] for state in (old, new))
        for epoch in range(EPOCHS):
            sides = []
            for state, counted in ((old, before), (new, after)):
                graph = {r: {pair for pair, line in state[r].items() if line[epoch]} for r in state}
                wanted = occurrences(pattern, graph)
                assert at(counted, epoch) == wanted, (seed, epoch)
                ends = {r: np.array(sorted(found), np.int64).reshape(-1, 2).T.copy() for r, found in graph.items()}
                vertices, counts = motif_recount.count_motifs([pattern], {r: (e[0], e[1]) for r, e in ends.items()})
                assert dict(zip(vertices.tolist(), counts.tolist(), strict=True)) == wanted, (seed, epoch)
                sides.append(wanted)
            differences = {v: sides[1].get(v, 0) - sides[0].get(v, 0) for v in {*sides[0], *sides[1]}}
            assert at(found, epoch) == {v: diff for v, diff in differences.items() if diff}, (seed, epoch)


def test_many_epochs_and_vertices_grow_the_table() -> None:
    """Cliques apart, each at an epoch of its own: more (vertex, epoch) places than are kept as a plain array."""
    many = 3_000
    base, epoch = 10 * np.arange(many, dtype=np.int64), np.arange(many, dtype=np.int64)
    ends = [(base + i, base + j) for i in range(4) for j in range(i + 1, 4)]
    a, b = (np.concatenate([pair[side] for pair in ends]) for side in (0, 1))
    start = np.tile(epoch, 6)
    rows = (a, b, start, np.full(a.size, FOREVER), np.ones(a.size, np.int64))
    (found,) = motif_delta.vertex_changes({"clique": parse_motif(PATTERNS[7])}, {"-": rows}).values()
    assert found[0].tolist() == sorted((base[:, None] + np.arange(4)).ravel().tolist())
    assert found[1].tolist() == np.repeat(epoch, 4).tolist() and (found[2] == 1).all()


def test_a_motif_of_two_patterns_counts_both() -> None:
    edges = np.array([[1, 2], [1, 2], [2, 3]])
    patterns = parse_motif(["a-b where x, b-c where y", "a-b where x, b-c where x"])
    graph = {"- where x": (edges[0], edges[1] + 1), "- where y": (edges[2], edges[2] + 1)}
    vertices, counts = motif_recount.count_motifs(patterns, graph)
    zero = np.zeros(2, np.int64)
    intervals = {name: (a, b, zero, zero + FOREVER, zero + 1) for name, (a, b) in graph.items()}
    found = motif_delta.vertex_changes({"it": patterns}, intervals)["it"]
    assert found[0].tolist() == vertices.tolist() and found[2].tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a-b,  a-a", "^at column 7: 'a-a' joins a vertex to itself"),
        ("a-b, b-a", "^at column 6: an edge occurs twice"),
        ("a->b where w > 0, a->b  where  w > 0", "^at column 19: an edge occurs twice"),
        ("a-b, c-d, d-e", "^at column 6: not connected to a: c, d, e"),
        ("a=b", "^at column 1: 'a=b' is not an edge; expected an edge"),
        (" ", "^at column 2: '' is not an edge; expected an edge"),
        ("a-b, b-c c-a", "^at column 10: 'b-c c-a' is not an edge; expected a comma"),
        ("a-b, b=c", "^at column 6: 'b=c' is not an edge; expected an edge"),
        ("a-b,", "^at column 5: '' is not an edge; expected an edge"),
        ("a-b where", "^at column 10: 'a-b where' is not an edge; expected a condition"),
        (", ".join(f"v{i}-v{i + 1}" for i in range(MAX_VERTICES)), f"at most {MAX_VERTICES} are possible"),
        (["a-b, b-c", "a-b"], "different numbers of vertices"),
        (["a-b", "b-a"], "the same pattern"),
        (["a-b, b-c", "x-y, y-z"], "'x-y, y-z' and 'a-b, b-c' are the same pattern"),
        (["a->b, b->c, c->a", "b->a, a->c, c->b"], "the same pattern"),
        (["a-b where w>0, b-c", "x-y, y-z where W > 0"], "the same pattern"),
        ("a-b where w>0, b-a where w > 0", "twice"),
        ([], "expected a pattern"),
        (7, "expected a pattern"),
    ],
)
def test_bad_patterns_are_refused_in_words(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_motif(text)  # type: ignore[arg-type]


def test_commas_in_a_condition_do_not_end_it() -> None:
    (pattern,) = parse_motif("a->b where greatest(w, w - x) IN (1, 2), b-c where w - 1 > 0")
    assert [edge.relation for edge in pattern.edges] == ["-> where greatest(w, w - x) IN (1, 2)", "- where w - 1 > 0"]
    assert pattern.edges[1] == PatternEdge("- where w - 1 > 0", "b", "c")
    assert extra_relations({"it": [pattern], "plain": parse_motif("a-b, b-c")}) == [
        edge.relation for edge in pattern.edges
    ]


@pytest.mark.parametrize(
    "texts",
    [["a->b, b->c", "a->b, c->b", "b->a, b->c"], ["a-b where w > 0, b-c", "a-b, b-c"], ["a->b, b-c", "b->a, b-c"]],
)
def test_patterns_that_differ_may_stand_together(texts: list[str]) -> None:
    assert len(parse_motif(texts)) == len(texts)


def test_equal_conditions_make_a_symmetry() -> None:
    assert len(Pattern.from_text("a-b where w>0, b-c where w > 0").symmetries()) == 2
    assert len(Pattern.from_text("a-b where w>0, b-c where w > 1").symmetries()) == 1
