"""Triangles over a history of intervals: the diffs at every epoch against enumeration, whole and in cells."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.graph.kernels import hash_sums as sums_kernel
from altneu.algorithms.graph.kernels.intervals import make_disjoint
from altneu.algorithms.graph.kernels.triangle_history import colours_for, vertex_changes
from tests import seeds

from .references import slow_triangles

EPOCHS = 7


def random_history(rng: np.random.Generator) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Edge → disjoint intervals; many edges leave and return."""
    out = {}
    for edge in combinations(rng.choice(1000, int(rng.integers(3, 14)), replace=False).tolist(), 2):
        if rng.random() < 0.6:
            cuts = sorted(rng.choice(EPOCHS, int(rng.choice([2, 2, 4, 6])), replace=False).tolist())
            spans = list(zip(cuts[::2], cuts[1::2], strict=True))
            if rng.random() < 0.4:
                spans[-1] = (spans[-1][0], FOREVER)
            out[min(edge), max(edge)] = spans
    return out


def columns(history) -> list[np.ndarray]:
    rows = sorted((a, b, s, u) for (a, b), spans in history.items() for s, u in spans)
    return [np.array(rows, np.int64).reshape(-1, 4)[:, i].copy() for i in range(4)]


def triples(found) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in found), strict=True))


def slow_changes(history) -> list[tuple[int, int, int]]:
    out, before = [], Counter()
    for epoch in range(EPOCHS + 1):
        alive = {edge for edge, spans in history.items() if any(s <= epoch < u for s, u in spans)}
        now = Counter(v for triangle in slow_triangles(alive) for v in triangle)
        out += [(v, epoch, now[v] - before[v]) for v in now | before if now[v] != before[v]]
        before = now
    return sorted(out)


@pytest.fixture(params=["plain sums", "hashed sums"], autouse=True)
def sums(request, monkeypatch):
    if request.param == "hashed sums":
        monkeypatch.setattr(sums_kernel, "SMALL", -(2**40))


@pytest.mark.law(4)
@pytest.mark.parametrize("seed", seeds.several(range(100)))
def test_every_epoch_equals_enumeration(seed):
    history = random_history(np.random.default_rng(seed))
    assert triples(vertex_changes(*columns(history))) == slow_changes(history)


@pytest.mark.parametrize("seed", seeds.several(range(60)))
@pytest.mark.parametrize("usual", [(0, FOREVER), (1, 4)])
def test_an_interval_that_most_edges_share_among_others(seed, usual):
    rng = np.random.default_rng(seed)
    history = {edge: spans if rng.random() < 0.3 else [usual] for edge, spans in random_history(rng).items()}
    assert triples(vertex_changes(*columns(history))) == slow_changes(history)


@pytest.mark.parametrize("span", [(3, FOREVER), (3, 5)])
def test_one_interval_for_all_is_a_plain_count(span):
    history = {edge: [span] for edge in combinations(range(6), 2) if edge != (0, 5)}
    assert triples(vertex_changes(*columns(history))) == slow_changes(history)


@pytest.mark.parametrize("seed", seeds.several(range(50)))
def test_cells_add_up_to_the_whole(seed):
    rng = np.random.default_rng(seed)
    history = random_history(rng)
    a, b, start, until = columns(history)
    colours = int(rng.integers(1, 6))
    of = rng.integers(colours, size=1000)
    total: Counter[tuple[int, int]] = Counter()
    for i in range(colours):
        for j in range(i, colours):
            for k in range(j, colours):
                # an edge is in the cells of its two colours and any third
                here = np.array(
                    [
                        any(sorted([of[x], of[y], c]) == [i, j, k] for c in range(colours))
                        for x, y in zip(a, b, strict=True)
                    ],
                    bool,
                )
                mixed = of.__getitem__ if len({i, j, k}) == 2 else None
                for v, e, d in triples(vertex_changes(a[here], b[here], start[here], until[here], mixed)):
                    total[v, e] += d
    assert sorted((v, e, d) for (v, e), d in total.items() if d) == slow_changes(history)


def test_many_changes_at_one_vertex_outgrow_the_first_table():
    n = 2_000  # a fan around vertex 0: a triangle for every epoch
    rim = np.arange(1, n + 1)
    a = np.concatenate([np.zeros(n, np.int64), rim[:-1]])
    b = np.concatenate([rim, rim[1:]])
    start = np.concatenate([rim, rim[1:]])
    rows = np.lexsort((start, b, a))
    found = triples(vertex_changes(a[rows], b[rows], start[rows], np.full(a.size, FOREVER)[rows]))
    assert [row for row in found if row[0] == 0] == [(0, epoch, 1) for epoch in range(2, n + 1)]


def test_no_cell_is_larger_than_its_share():
    for edges, limit in [(1_000, 1_000), (1_001, 1_000), (50_000, 1_000)]:
        colours = colours_for(edges, limit)
        assert colours == 1 or 6 * edges <= limit * colours**2
        assert (colours == 1) == (edges <= limit)


def test_intervals_that_contradict_each_other_are_an_error():
    one, two = np.array([1, 1]), np.array([2, 2])
    with pytest.raises(ValueError, match=r"edge \(1, 2\) exists 2 times at epoch 3"):
        make_disjoint(one, two, np.array([0, 3]), np.array([9, 9]), np.array([1, 1]))


@pytest.mark.parametrize("limit", [0, 1])
def test_colours_are_few_whatever_the_limit(limit):
    assert [colours_for(edges, limit) for edges in (0, 1, 10, 266, 10**9)][-1] <= 41
    assert max(colours_for(edges, limit) for edges in range(2_000)) <= 41
