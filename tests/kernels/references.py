"""Slow, obvious references and random inputs for the kernel tests. They share nothing with the kernels."""

from __future__ import annotations

import gzip
import threading
from itertools import combinations

import numpy as np

from tests.e2e.graphs import GRAPHS, find_graph

Edge = tuple[int, int]

TOTALS = {  # file: (edges, triangles, greatest trussness)
    graph.file: (graph.edges, graph.triangles, graph.trussness) for graph in GRAPHS
}


def live_kernel_threads() -> list[str]:
    """Return the names of the threads of kernels and proofs that have not ended."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("kernel", "proof"))]


def torus(n: int) -> set[Edge]:
    """n × n vertices, each joined to the one to its right, the one above, and the one between these, all around.

    Every edge is in two triangles (n >= 4), so all have trussness 4; without any one of them all fall to 3.
    """
    at = [(x, y) for x in range(n) for y in range(n)]
    to = ((1, 0), (0, 1), (1, 1))
    pairs = [(x * n + y, (x + dx) % n * n + (y + dy) % n) for x, y in at for dx, dy in to]
    return {(min(pair), max(pair)) for pair in pairs}


def arrays(edges) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(list(edges), np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def pairs(a, b) -> set[Edge]:
    return set(zip(a.tolist(), b.tolist(), strict=True))


def neighbours(edges: set[Edge]) -> dict[int, set[int]]:
    out: dict[int, set[int]] = {}
    for u, v in edges:
        out.setdefault(u, set()).add(v)
        out.setdefault(v, set()).add(u)
    return out


def slow_triangles(edges: set[Edge]) -> set[tuple[int, int, int]]:
    near = neighbours(edges)
    return {(u, v, w) for u, v in edges for w in near[u] & near[v] if w > v}


def slow_trussness(edges: set[Edge]) -> dict[Edge, int]:
    """By the definition: drop edges in fewer than k-2 triangles until none is left to drop: the k-truss."""
    left, trussness, k = set(edges), dict.fromkeys(edges, 2), 2
    while left:
        k += 1
        while True:
            near = neighbours(left)
            weak = {(u, v) for u, v in left if len(near[u] & near[v]) < k - 2}
            if not weak:
                break
            left -= weak
        for edge in left:
            trussness[edge] = k
    return trussness


def random_graph(rng: np.random.Generator, greatest: int = 40) -> set[Edge]:
    """Sparse, dense, clustered or star-like; half of them with scattered 64-bit ids, negative ones too."""
    n = int(rng.integers(2, greatest))
    edges = {e for e in combinations(range(n), 2) if rng.random() < 0.05}
    kind = rng.integers(4)
    if kind == 0:
        density = rng.random()
        edges |= {e for e in combinations(range(n), 2) if rng.random() < density}
    elif kind == 1:
        for _ in range(int(rng.integers(1, 6))):
            group = sorted(rng.choice(n, int(rng.integers(1, min(n, 10) + 1)), replace=False).tolist())
            edges |= set(combinations(group, 2))
    elif kind == 2:
        edges |= {(0, v) for v in range(1, n)} | {(v, v + 1) for v in range(1, n - 1) if rng.random() < 0.7}
    if rng.random() < 0.5:
        ids = np.sort(rng.choice(2**62, n, replace=False) - 2**61).tolist()
        edges = {(ids[u], ids[v]) for u, v in edges}
    return edges


def shuffled(rng: np.random.Generator, edges: set[Edge]) -> tuple[np.ndarray, np.ndarray]:
    order = sorted(edges)
    rng.shuffle(order)
    return arrays(order)


def clique(n: int, first: int = 0) -> set[Edge]:
    return set(combinations(range(first, first + n), 2))


def read_rows(name: str) -> np.ndarray:
    """The numeric rows, float64[rows, columns], without comments, wrapped headers and column names."""
    rows = []
    with gzip.open(find_graph(name), "rt") as lines:
        for line in lines:
            fields = line.replace(",", " ").split()
            if len(fields) < 2 or not all(_is_number(field) for field in fields):
                continue
            rows.append([float(field) for field in fields])
    return np.array(rows)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def simple_edges(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The simple undirected graph of the first two columns."""
    s, d = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    low, high = np.minimum(s, d)[s != d], np.maximum(s, d)[s != d]
    both = np.unique(np.stack([low, high], axis=1), axis=0)
    return both[:, 0].copy(), both[:, 1].copy()
