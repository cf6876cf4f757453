"""`kernels/region`: windows of batches on a part of a graph that asks for what it lacks, against a peel of the whole;
its certificates against a recount; its proof against the counts of the whole graph before and after."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.kernels import partial_graph_solver
from altneu.algorithms.graph.kernels.certificate_counts import count_certificate
from altneu.algorithms.graph.kernels.level_sorted_graph import LABEL_GAP, UNASKED
from altneu.algorithms.graph.kernels.partial_graph_solver import KnownEdges, MissingLookups, SolvedRegion, solve_region
from altneu.algorithms.graph.kernels.persistent_graph import StateMismatch
from altneu.algorithms.graph.proof_records import GraphCounts, Prints
from tests import reference, seeds

Edge = tuple[int, int]
VALUES = ("level", "label", "own", "backing")


class Store:
    """The whole graph: edge → level, label, own, backing. `coarse`: labels have many ties, as those of rounds have."""

    def __init__(self, edges: set[Edge], coarse: bool) -> None:
        self.rows: dict[Edge, list[int]] = {}
        levels = {edge: k - 2 for edge, k in reference.trussness(edges).items()}
        for at, layer in enumerate(_layers(edges, levels)):
            for turn, edge in enumerate(sorted(layer)):
                self.rows[edge] = [levels[edge], (at if coarse else at * 10_000 + turn) * LABEL_GAP, 0, 0]
        self._count()
        labels = [row[1] for row in self.rows.values()]
        self.ends = min(labels, default=0) - LABEL_GAP, max(labels, default=0) + LABEL_GAP
        self.looked_up = self.most = 0

    def _count(self) -> None:
        order = sorted(self.rows)
        a, b = (np.array([edge[i] for edge in order], np.int64) for i in (0, 1))
        level, label = (np.array([self.rows[edge][i] for edge in order], np.int64) for i in (0, 1))
        if order:
            counted = count_certificate(a, b, level, label)
            for edge, own, backing in zip(order, counted.first.tolist(), counted.backing.tolist(), strict=True):
                self.rows[edge][2:] = own, backing
                assert own <= self.rows[edge][0] <= backing

    def triangles(self, edge: Edge, least: int, moving: set[Edge]) -> set[Edge]:
        """Their other edges."""
        found = set[Edge]()
        there = self.rows.keys() | moving
        for w in {v for pair in there for v in pair} - set(edge):
            others = [(min(w, v), max(w, v)) for v in edge]
            if all(o in moving or (o in self.rows and self.rows[o][0] >= least) for o in others):
                found.update(others)
        return found

    def known(self, edges: set[Edge], floor: dict[Edge, int]) -> tuple[KnownEdges, list[Edge]]:
        order = sorted(edges)
        rows = [self.rows.get(edge, [-1, 0, 0, 0]) for edge in order]
        columns = [np.array([row[i] for row in rows], np.int64) for i in range(4)]
        ends = [np.array([edge[i] for edge in order], np.int64) for i in (0, 1)]
        level, label, own, backing = columns
        shorts = [column.astype(np.int32) for column in (level, own, backing)]
        floors = np.array([floor.get(edge, UNASKED) for edge in order], np.int32)
        return KnownEdges(*ends, shorts[0], label, shorts[1], shorts[2], floors), order

    def maintain(self, batches: list[tuple[int, set[Edge], set[Edge]]]) -> SolvedRegion:
        """As the caller in Spark does it; the store is as after the batches."""
        moving = set[Edge]().union(*(gone | come for _, gone, come in batches))
        degree = Counter(v for edge in self.rows for v in edge)
        vertices = sorted({v for edge in moving for v in edge})
        degrees = np.array(vertices, np.int64), np.array([degree[v] for v in vertices], np.int64)
        edges, floor = set(moving), dict[Edge, int]()
        while True:
            known, order = self.known(edges, floor)
            at = {edge: place for place, edge in enumerate(order)}
            placed = [
                (epoch, *(np.array(sorted(at[edge] for edge in side), np.int32) for side in sides))
                for epoch, *sides in batches
            ]
            result = solve_region(known, self.ends, placed, degrees)  # type: ignore[arg-type]
            if isinstance(result, SolvedRegion):
                break
            assert isinstance(result, MissingLookups) and result.place.size
            for place, least in zip(result.place.tolist(), result.least.tolist(), strict=True):
                edge = order[place]
                assert least < floor.get(edge, UNASKED), "nothing is looked up twice"
                floor[edge] = least
                edges |= self.triangles(edge, least, moving)
            self.looked_up += 1
        self.most = max(self.most, len(order))
        for epoch in result.epochs:
            for place, *values in zip(epoch.place.tolist(), *(column.tolist() for column in epoch.after), strict=True):
                self.rows.pop(order[place], None)
                if values[0] >= 0:
                    self.rows[order[place]] = values
        self.ends = result.ends
        return result


def _layers(edges: set[Edge], levels: dict[Edge, int]) -> list[set[Edge]]:
    """Level by level what can be taken away at once, by places of one after the other: each owns few triangles then."""
    left, out = set(edges), list[set[Edge]]()
    for k in sorted(set(levels.values())):
        while any(levels[edge] == k for edge in left):
            taken = set[Edge]()
            for edge in sorted(left):
                inside = sum(
                    (min(w, edge[0]), max(w, edge[0])) in left and (min(w, edge[1]), max(w, edge[1])) in left
                    for w in {v for pair in left for v in pair}
                )
                if levels[edge] == k and inside <= k:
                    taken.add(edge)
            out.append(taken)
            left -= taken
    return out


def counted(edges: set[Edge]) -> tuple[Prints, GraphCounts]:
    """Of a whole graph."""
    degree = Counter(v for edge in edges for v in edge)
    corners = Counter(v for triangle in reference.triangles(edges) for v in triangle)
    trusses = reference.trussness(edges)

    def of(rows: list[tuple[int, ...]], times: list[int] | None = None) -> Fingerprint:
        if not rows:
            return Fingerprint()
        columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
        return Fingerprint.from_rows(columns, None if times is None else np.array(times, np.int64))

    prints = {
        "edges": of(sorted(edges)),
        "degrees": of([(v,) for v in degree], list(degree.values())),
        "triangle_counts": of([(v,) for v in corners], list(corners.values())),
        "trussness": of([(*edge, k) for edge, k in trusses.items()]),
    }
    wedges = sum(d * (d - 1) // 2 for d in degree.values())
    counts = GraphCounts(len(edges), len(degree), wedges, sum(corners.values()) // 3, dict(Counter(trusses.values())))
    return prints, counts


def less(one: Any, other: Any) -> Any:
    """The difference of two of `counted`."""
    prints = {name: one[0][name] - other[0][name] for name in one[0]}
    numbers = [getattr(one[1], n) - getattr(other[1], n) for n in ("edges", "vertices", "wedges", "triangles")]
    ks = {*one[1].trusses, *other[1].trusses}
    trusses = {k: one[1].trusses.get(k, 0) - other[1].trusses.get(k, 0) for k in ks}
    return prints, GraphCounts(*numbers, {k: n for k, n in trusses.items() if n})


def window(rng: random.Random, edges: set[Edge], pool: list[Edge], batches: int, size: int) -> Any:
    """Batches, of which some are empty, and the graph after each."""
    out, graphs, now = [], [], set(edges)
    for epoch in range(batches):
        chosen = set(rng.sample(pool, min(len(pool), rng.randrange(0, size + 1))))
        gone, come = chosen & now, chosen - now
        now = (now - gone) | come
        out.append((epoch, gone, come))
        graphs.append(set(now))
    return out, graphs


SHAPES = {  # vertices, edges at first, batches in a window, edges in a batch
    "one edge": (7, 12, 1, 1),
    "sparse": (16, 30, 3, 5),
    "dense": (9, 30, 2, 4),
    "much": (10, 24, 3, 20),
    "from nothing": (8, 0, 4, 8),
}


@pytest.mark.parametrize(
    "few", [0.0, partial_graph_solver.FEW, 1.0], ids=["proved last", "as it is", "each guess is followed"]
)
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("some", [range(6), pytest.param(range(6, 25), marks=pytest.mark.slow)], ids=str)
def test_as_a_peel_with_certificates_and_proofs(
    shape: str, coarse: bool, few: float, some: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_graph_solver, "FEW", few)
    n, m, batches, size = SHAPES[shape]
    for seed in seeds.several(some):
        rng = random.Random(seed)
        base = rng.choice([0, 2**40, -(2**35)])  # ids of any size
        pool = [(base + a * 3, base + b * 3) for b in range(n) for a in range(b)]
        store = Store(set(rng.sample(pool, min(m, len(pool)))), coarse)
        for _ in range(4):
            edges = set(store.rows)
            made, graphs = window(rng, edges, pool, batches, size)
            result = store.maintain(made)
            levels = {edge: k - 2 for edge, k in reference.trussness(edges).items()}
            for epoch, step, graph in zip(result.epochs, result.proof.steps, graphs, strict=True):
                assert (step.prints, step.counts) == less(counted(graph), counted(edges)), seed
                assert epoch.effort.method == "region"
                edges = graph
            assert not result.proof.wrong, (seed, result.proof.listed_edges)
            levels = {edge: k - 2 for edge, k in reference.trussness(edges).items()}
            assert {edge: row[0] for edge, row in store.rows.items()} == levels, seed
            before = {edge: list(row) for edge, row in store.rows.items()}
            store._count()
            assert store.rows == before, seed
            assert all(store.ends[0] < row[1] < store.ends[1] for row in before.values()), seed


def test_each_batch_of_a_window_is_as_a_peel_of_its_own() -> None:
    """The levels before and after of every edge that a batch changes, and of no other."""
    for seed in seeds.several(range(40)):
        rng = random.Random(seed)
        pool = [(a, b) for b in range(9) for a in range(b)]
        store = Store(set(rng.sample(pool, 20)), False)
        edges = set(store.rows)
        made, graphs = window(rng, edges, pool, 4, 4)
        result = store.maintain(made)
        for epoch, graph in zip(result.epochs, graphs, strict=True):
            was, now = ({e: k - 2 for e, k in reference.trussness(g).items()} for g in (edges, graph))
            changed = {e: (was.get(e, -1), now.get(e, -1)) for e in was.keys() | now.keys() if was.get(e) != now.get(e)}
            found = Counter(zip(epoch.before.level.tolist(), epoch.after.level.tolist(), strict=True))
            found = Counter({pair: n for pair, n in found.items() if pair[0] != pair[1]})
            assert found == Counter(changed.values()), seed
            assert epoch.effort.changed == len(changed)
            edges = graph


def test_a_part_is_enough() -> None:
    """Far from the change nothing is looked up: the second clique is never known."""
    clique = [(a, b) for b in range(6) for a in range(b)]
    far = [(a + 100, b + 100) for a, b in clique]
    store = Store({*clique, *far, (5, 100)}, False)
    store.maintain([(0, {(0, 1)}, set())])
    assert store.most <= len(clique) and store.looked_up <= 3


@pytest.mark.parametrize("name", VALUES)
def test_a_stored_fault_is_found(name: str) -> None:
    """One value of the certificate of an edge that the change touches is wrong: the proof fails, or the two counts
    differ; a label may be any, as long as nothing owns too many for it."""
    seen = 0
    for seed in seeds.several(range(40)):
        rng = random.Random(seed)
        clique = [(a, b) for b in range(6) for a in range(b)]
        store = Store(set(clique), False)
        edge = (0, 1)
        victim = rng.choice([e for e in clique if e != edge])
        row = store.rows[victim]
        at = VALUES.index(name)
        row[at] += rng.choice([-1, 1]) * (10**9 * LABEL_GAP if name == "label" else 1)
        result = store.maintain([(0, {edge}, set())])
        right = {e: k - 2 for e, k in reference.trussness(set(clique) - {edge}).items()}
        if {e: r[0] for e, r in store.rows.items()} != right or name != "label":
            assert result.proof.wrong, (seed, victim)
            seen += 1
    assert seen or name == "label"


@pytest.mark.parametrize("gone, come", [({(0, 9)}, set()), (set(), {(0, 1)})], ids=["absent", "present"])
def test_a_change_that_does_not_fit(gone: set[Edge], come: set[Edge]) -> None:
    store = Store({(0, 1), (1, 2), (0, 2)}, False)
    with pytest.raises(StateMismatch, match="is removed that is absent, or inserted that is present"):
        store.maintain([(0, gone, come)])
