"""Triangles followed from a kept graph equal a count of every epoch's graph, whatever was revised."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from altneu.algorithms.graph.kernels.intervals import consolidate
from altneu.algorithms.graph.kernels.persistent_graph import StateMismatch
from altneu.algorithms.graph.kernels.replay import epoch_batches
from altneu.algorithms.graph.kernels.triangle_update import vertex_changes
from altneu.algorithms.graph.proof_records import ProofScope
from tests import seeds
from tests.kernels.references import Edge, clique, slow_triangles
from tests.kernels.test_replay import intervals, random_history
from tests.kernels.test_warm import History, at, made, revised, signed


def counts(edges: set[Edge]) -> Counter[int]:
    return Counter(v for triangle in slow_triangles(edges) for v in triangle)


def followed(
    before: History, after: History, first: int, last: int, rng: np.random.Generator
) -> Counter[tuple[int, int]]:
    """(vertex, epoch) → the change, from the graph as `before` has left it."""
    frontier = max(before)
    old, new = Counter(intervals(before, frontier)), signed(before, after)
    rows = [(*row, n, True) for row, n in old.items()] + [(*row, n, False) for row, n in new.items() if n]
    inside = [row for row in rows if any(first <= time <= max(last, frontier) for time in row[2:4])]
    rng.shuffle(inside)
    table = tuple(np.array([row[i] for row in inside], np.int64) for i in range(5))
    flags = np.array([row[5] for row in inside], bool)
    graph = made(before, ProofScope())
    vertex, epoch, diff = vertex_changes(graph, epoch_batches(graph, frontier, table, flags, first, last), first)
    assert (diff != 0).all() and consolidate([vertex, epoch], diff)[0].size == vertex.size
    return Counter({(v, e): n for v, e, n in zip(vertex.tolist(), epoch.tolist(), diff.tolist(), strict=True)})


@pytest.mark.parametrize("seed", seeds.several(range(60)))
def test_every_epoch_of_a_revised_history(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    before = random_history(rng, 6)
    after, first, last = revised(rng, before)
    found = followed(before, after, first, last, rng)
    wanted: Counter[tuple[int, int]] = Counter()
    state = counts(at(after, first - 1))
    for epoch in sorted(e for e in after if first <= e <= last):
        now = counts(after[epoch])
        for vertex in {*now, *state}:
            if now[vertex] != state[vertex]:
                wanted[vertex, epoch] = now[vertex] - state[vertex]
        state = now
    assert found == wanted


def test_triangles_of_several_changed_edges_count_once() -> None:
    """A clique loses two edges of one triangle, and gets a vertex with all of its edges; beyond the room there was."""
    rng = np.random.default_rng(1)
    before: History = {0: clique(5)}
    after: History = {**before, 1: (clique(6) - {(0, 1), (0, 2)}) | {(5, v) for v in range(6, 3000)}}
    found = followed(before, after, 1, 1, rng)
    was, now = counts(before[0]), counts(after[1])
    assert found == Counter({(v, 1): now[v] - was[v] for v in range(6) if now[v] != was[v]})


def test_rows_of_another_graph_are_refused() -> None:
    graph = made({0: {(0, 1), (1, 2)}})
    gone = [np.array([x], np.int64) for x in (5, 6, 0, 3, 1)]
    with pytest.raises(StateMismatch):
        vertex_changes(graph, epoch_batches(graph, 0, tuple(gone), np.array([True]), 1, 4), 1)
