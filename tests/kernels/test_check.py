"""The audit's proof accepts the true trussness only, and the communities and cells equal their definitions."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from altneu.algorithms.graph.kernels import truss
from altneu.algorithms.graph.kernels.communities import truss_communities, truss_sizes
from altneu.algorithms.graph.kernels.trussness_check import check_trussness
from tests import seeds
from tests.e2e.graphs import parametrize_graphs
from tests.kernels.references import (
    TOTALS,
    arrays,
    clique,
    random_graph,
    read_rows,
    shuffled,
    simple_edges,
    slow_triangles,
    slow_trussness,
)


@pytest.mark.parametrize("seed", seeds.several(range(150)))
def test_check_finds_every_wrong_trussness(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    edges = random_graph(rng, 25)
    a, b = shuffled(rng, edges)
    truth = slow_trussness(edges)
    right = np.array([truth[e] for e in zip(a.tolist(), b.tolist(), strict=True)], np.int64)
    assert [x.size for x in check_trussness(a, b, right)] == [0, 0]
    for _ in range(4 if a.size else 0):
        wrong = np.maximum(right + rng.integers(-1, 2, a.size) * (rng.random(a.size) < rng.choice([0.05, 0.5])), 2)
        verdict = check_trussness(a, b, wrong)
        assert (verdict.too_high.size + verdict.too_low.size > 0) == (wrong != right).any()
        if (wrong >= right).all():
            assert verdict.too_low.size == 0
        if (wrong <= right).all() and (wrong < right).any():
            assert verdict.too_low.size > 0
            assert (wrong[verdict.too_low] < right[verdict.too_low]).all()


def test_check_on_edges_of_the_domain():
    none = np.empty(0, np.int64)
    assert [x.size for x in check_trussness(none, none, none)] == [0, 0]
    a, b = arrays(clique(12))
    assert [x.size for x in check_trussness(a, b, np.full(a.size, 12))] == [0, 0]
    assert check_trussness(a, b, np.full(a.size, 11)).too_low.size == a.size
    assert check_trussness(a, b, np.full(a.size, 13)).too_high.size == a.size
    with pytest.raises(ValueError, match="one per edge"):
        check_trussness(a, b, np.full(a.size, 1))


@pytest.mark.parametrize("name", parametrize_graphs(TOTALS))
def test_check_on_real_graphs(name):
    a, b = simple_edges(read_rows(name))
    trussness = truss.peel(a, b)
    assert [x.size for x in check_trussness(a, b, trussness)] == [0, 0]
    lowered = trussness.copy()
    lowered[np.argmax(lowered)] -= 1
    verdict = check_trussness(a, b, lowered)
    assert np.argmax(trussness) in verdict.too_low


@pytest.mark.parametrize("seed", seeds.several(range(100)))
def test_communities_and_sizes(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    edges = random_graph(rng, 25)
    a, b = shuffled(rng, edges)
    trussness = truss.peel(a, b)
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    measured = truss_sizes(a, b, trussness)
    for k, count, ends in zip(*(column.tolist() for column in measured), strict=True):
        kept = [e for e, t in zip(rows, trussness, strict=True) if t >= k]
        assert (count, ends) == (len(kept), len({v for e in kept for v in e}))
        links = nx.Graph()
        links.add_nodes_from(kept)
        for u, v, w in slow_triangles(set(kept)):
            links.add_edges_from([((u, v), (v, w)), ((u, v), (u, w))])
        expected = {frozenset(component) for component in nx.connected_components(links)}
        named = truss_communities(a, b, trussness, k)
        got: dict[int, set] = {}
        for edge, name in zip(rows, named.tolist(), strict=True):
            if name >= 0:
                got.setdefault(name, set()).add(edge)
        assert {frozenset(component) for component in got.values()} == expected
        assert all(rows[name] in component for name, component in got.items())
