"""Triangle counts and listings against the definition, closed forms and published totals."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from altneu.algorithms.graph.kernels import triangles
from altneu.algorithms.graph.kernels.graph import compact_ids, orient_edges, to_adjacency
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
)


@pytest.mark.parametrize("seed", seeds.several(range(200)))
def test_counts_and_listing_on_random_graphs(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    edges = random_graph(rng)
    a, b = shuffled(rng, edges)
    expected = slow_triangles(edges)
    total, vertices, per_vertex, per_edge = triangles.count_triangles(a, b)
    assert total == len(expected)
    assert vertices.tolist() == sorted({v for e in edges for v in e})
    assert dict(zip(vertices.tolist(), per_vertex.tolist(), strict=True)) == {
        v: sum(v in t for t in expected) for v in vertices.tolist()
    }
    assert per_edge.tolist() == [
        sum(u in t and v in t for t in expected) for u, v in zip(a.tolist(), b.tolist(), strict=True)
    ]
    listed = [tuple(t) for block in triangles.enumerate_triangles(a, b, chunk=7) for t in block.tolist()]
    assert len(listed) == len(set(listed)) == len(expected)
    assert set(listed) == expected


def test_empty_single_and_star():
    empty = np.empty(0, np.int64)
    total, vertices, per_vertex, per_edge = triangles.count_triangles(empty, empty)
    assert (total, vertices.size, per_vertex.size, per_edge.size) == (0, 0, 0, 0)
    assert list(triangles.enumerate_triangles(empty, empty)) == []
    total, vertices, _, per_edge = triangles.count_triangles(*arrays([(-(2**63), 2**63 - 1)]))
    assert (total, vertices.tolist(), per_edge.tolist()) == (0, [-(2**63), 2**63 - 1], [0])
    star = triangles.count_triangles(np.zeros(1000, np.int64), np.arange(1, 1001))
    assert (star.total, star.per_edge.max()) == (0, 0)


@pytest.mark.parametrize("n", [3, 10, 100])
def test_clique(n):
    total, _, per_vertex, per_edge = triangles.count_triangles(*arrays(clique(n)))
    assert total == comb(n, 3)
    assert set(per_vertex.tolist()) == {comb(n - 1, 2)}
    assert set(per_edge.tolist()) == {n - 2}


@pytest.mark.law(8)
def test_hub_with_many_neighbours_is_linear():
    """A wheel: the hub's d^2 pairs would be 10^10; the out-degrees are at most 3."""
    d = 100_000
    rim = np.arange(1, d + 1)
    a = np.concatenate([np.zeros(d, np.int64), rim[:-1]])
    b = np.concatenate([rim, rim[1:]])
    assert triangles.count_triangles(a, b).total == d - 1


@pytest.mark.parametrize("name", parametrize_graphs(TOTALS))
def test_published_totals(name):
    a, b = simple_edges(read_rows(name))
    assert (a.size, triangles.count_triangles(a, b).total) == TOTALS[name][:2]


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match=r"edge \(1, 2\) occurs twice"):
        triangles.count_triangles(*arrays([(1, 2), (1, 3), (1, 2)]))
    with pytest.raises(ValueError, match=r"edge 1 is \(3, 3\)"):
        triangles.count_triangles(*arrays([(1, 2), (3, 3)]))
    with pytest.raises(ValueError, match="the same length"):
        triangles.count_triangles(np.arange(2), np.arange(3))


@pytest.mark.parametrize("seed", seeds.several(range(20)))
def test_adjacency_is_sorted_and_symmetric(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    a, b = shuffled(rng, random_graph(rng))
    graph = orient_edges(a, b)
    both = to_adjacency(graph)
    ids = graph.vertices[graph.by_rank]
    tail, head = ids[graph.tail], ids[graph.head]
    assert np.minimum(tail, head).tolist() == a[graph.origin].tolist()
    assert np.maximum(tail, head).tolist() == b[graph.origin].tolist()
    for v in range(ids.size):
        row = slice(both.indptr[v], both.indptr[v + 1])
        assert (np.diff(both.neighbour[row]) > 0).all()
        for w, e in zip(both.neighbour[row], both.edge[row], strict=True):
            assert {graph.tail[e], graph.head[e]} == {v, w}


def test_compact_agrees_on_dense_and_scattered_ids():
    a, b = np.array([3, 3, 8]), np.array([5, 8, 9])
    far = 10**15
    dense, sparse = compact_ids(a, b), compact_ids(a * far, b * far)
    assert (dense[0] * far).tolist() == sparse[0].tolist()
    assert [x.tolist() for x in dense[1:]] == [x.tolist() for x in sparse[1:]]
