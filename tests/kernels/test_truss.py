"""The peel against the definition, networkx, closed forms and published totals."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from altneu.algorithms.graph.kernels import truss
from tests import seeds
from tests.e2e.graphs import parametrize_graphs
from tests.kernels.bucket_peel import bucket_trussness
from tests.kernels.references import (
    TOTALS,
    arrays,
    clique,
    pairs,
    random_graph,
    read_rows,
    shuffled,
    simple_edges,
    slow_triangles,
    slow_trussness,
)


@pytest.mark.parametrize("seed", seeds.several(range(200)))
def test_peel_on_random_graphs(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    edges = random_graph(rng)
    a, b = shuffled(rng, edges)
    expected = slow_trussness(edges)
    assert truss.peel(a, b).tolist() == [expected[e] for e in zip(a.tolist(), b.tolist(), strict=True)]


def test_empty_single_and_clique():
    empty = np.empty(0, np.int64)
    assert truss.peel(empty, empty).tolist() == []
    assert truss.peel(*arrays([(1, 2)])).tolist() == [2]
    for n in (3, 4, 30, 120):
        assert set(truss.peel(*arrays(clique(n))).tolist()) == {n}


@pytest.mark.parametrize("name", parametrize_graphs(TOTALS))
def test_published_greatest_trussness(name):
    assert truss.peel(*simple_edges(read_rows(name))).max() == TOTALS[name][2]


@pytest.mark.parametrize("name", ["CollegeMsg.txt.gz", "ca-GrQc_relabelled.txt.gz"])
def test_every_k_truss_equals_networkx(name):
    a, b = simple_edges(read_rows(name))
    trussness = truss.peel(a, b)
    graph = nx.Graph(zip(a.tolist(), b.tolist(), strict=True))
    for k in range(3, int(trussness.max()) + 2):
        graph = nx.k_truss(graph, k)  # the k-truss lies within the (k-1)-truss
        kept = {(min(e), max(e)) for e in graph.edges}
        assert kept == pairs(a[trussness >= k], b[trussness >= k]), f"the {k}-truss differs"


@pytest.mark.parametrize("seed", seeds.several(range(60)))
def test_second_opinion_and_layer_certificate(seed):
    """At most kappa triangles of an edge have both others higher, or level with it and in no earlier layer."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    edges = random_graph(rng)
    a, b = shuffled(rng, edges)
    trussness, layer = truss.peel_layers(a, b)
    assert bucket_trussness(a, b).tolist() == trussness.tolist()
    key = dict(zip(zip(a.tolist(), b.tolist(), strict=True), zip(trussness, layer, strict=True), strict=True))
    later = dict.fromkeys(edges, 0)
    for u, v, w in slow_triangles(edges):
        for e, f, g in (((u, v), (u, w), (v, w)), ((u, w), (u, v), (v, w)), ((v, w), (u, v), (u, w))):
            later[e] += key[f] >= key[e] and key[g] >= key[e]
    assert all(later[e] <= key[e][0] - 2 for e in edges)
