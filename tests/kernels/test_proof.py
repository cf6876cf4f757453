"""Every epoch of a maintained graph is proved: what is claimed equals a slow count, and what is planted is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.kernels import incremental_prover
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, TrussCertificate
from altneu.algorithms.graph.kernels.replay import replay_window, resume_replay
from altneu.algorithms.graph.proof_records import GraphCounts, Proof, ProofScope, ProvedState, add_counts
from altneu.pipeline.local.demo import messages_file
from tests import seeds
from tests.kernels.references import Edge, slow_triangles, slow_trussness
from tests.kernels.test_replay import columns, intervals, known, random_history, windows
from tests.kernels.test_warm import History, at, revised, signed

PARTS = 3


def printed(rows: Counter[tuple[int, ...]]) -> Fingerprint:
    listed = [row for row, n in rows.items() if n]
    if not listed:
        return Fingerprint()
    return Fingerprint.from_rows(
        [np.array(x, np.int64) for x in zip(*listed, strict=True)], np.array([rows[r] for r in listed])
    )


def slowly(edges: set[Edge]) -> tuple[dict[str, Fingerprint], GraphCounts]:
    trussness, triangles = slow_trussness(edges), slow_triangles(edges)
    degrees = Counter((v,) for edge in edges for v in edge)
    at_vertex = Counter((v,) for triangle in triangles for v in triangle)
    prints = {
        "edges": printed(Counter(edges)),
        "degrees": printed(degrees),
        "triangle_counts": printed(at_vertex),
        "trussness": printed(Counter((*edge, k) for edge, k in trussness.items())),
    }
    wedges = sum(d * (d - 1) // 2 for d in degrees.values())
    sizes = dict(sorted(Counter(trussness.values()).items()))
    return prints, GraphCounts(len(edges), len(degrees), wedges, len(triangles), sizes)


def check_proof(found: Proof | None, history: History, first: int) -> None:
    assert found is not None and not found.wrong, found and found.listed_edges
    prints, counts = found.base, found.counts
    assert (prints, counts) == slowly(at(history, first - 1))
    last = first - 1
    for step in found.steps:
        prints = {name: prints[name] + step.prints[name] for name in prints}
        counts, last = add_counts(counts, step.counts), step.epoch
        assert (prints, counts) == slowly(at(history, step.epoch)), f"epoch {step.epoch}"
    edges = at(history, last)
    low, high = found.between
    inside = {v for edge in edges for v in edge if low <= v <= high}
    some = {edge: k for edge, k in slow_trussness(edges).items() if edge[0] in inside}
    assert found.part == {
        "edges": printed(Counter(list(some))),
        "trussness": printed(Counter((*edge, k) for edge, k in some.items())),
        "degrees": printed(Counter((v,) for edge in edges for v in edge if v in inside)),
        "triangle_counts": printed(Counter((v,) for t in slow_triangles(edges) for v in t if v in inside)),
    }


def through_rows(graph: PersistentGraph) -> PersistentGraph:
    """Made again of its edges with their certificates."""
    there = np.flatnonzero(graph.levels.level >= 0).astype(np.int32)
    values = TrussCertificate(*(column[there] for column in graph.copy_certificate()))
    assert graph.counted is not None and not values.differs_from(values).any()
    state = ProvedState(graph.counted.prints, graph.counted.counts)
    return PersistentGraph.from_checkpoint(*graph.edge_ends(there), values, graph.label_bounds, state)


@pytest.mark.law(10)
@pytest.mark.parametrize(
    "whole", [incremental_prover.WHOLE, 1, 10**9]
)  # as planned; hardly ever, and always by an enumeration
@pytest.mark.parametrize("seed", seeds.several(range(25)))
def test_what_is_proved_is_so(seed: int, whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    monkeypatch.setattr(incremental_prover, "WHOLE", whole)
    rng = np.random.default_rng(seed)
    history = random_history(rng, 8)
    times = sorted(history)
    first = times[int(rng.integers(4))]
    start = at(history, first - 1)
    method = ["auto", "incremental", "peel"][int(rng.integers(3))]
    rows = [*columns(intervals(history, times[-1])), *known(start, slow_trussness(start))]
    result = replay_window(*rows, first, times[-1], method, kept=True, ask=ProofScope(PARTS, 1))
    check_proof(result.proof, history, first)
    graph = result.graph
    check_counts(graph)
    for revision in range(3):
        match int(rng.integers(3)):
            case 0:
                graph.save_graph(tmp_path, f"r{revision}")
                opened = PersistentGraph.open_graph(tmp_path, f"r{revision}")
                assert opened is not None
                graph = opened
            case 1:
                graph = through_rows(graph)
        after, first, last = revised(rng, history)
        frontier = max(history)
        old, new = Counter(intervals(history, frontier)), signed(history, after)
        listed = [(*row, n, True) for row, n in old.items()] + [(*row, n, False) for row, n in new.items() if n]
        listed = [row for row in listed if any(first <= time <= max(last, frontier) for time in row[2:4])]
        table = tuple(np.array([row[i] for row in listed], np.int64) for i in range(5))
        flags = np.array([row[5] for row in listed], bool)
        result = resume_replay(graph, frontier, table, flags, first, last, ProofScope(PARTS, revision))
        check_proof(result.proof, after, first)
        graph, history = result.graph, after
        check_counts(graph)


def check_counts(graph: PersistentGraph) -> None:
    """What was counted along the changes is what one enumeration counts."""
    followed, fresh = graph.counted, IncrementalProver(graph, ProofScope())._recount()
    assert followed is not None and followed[:2] == fresh[:2]
    assert (followed.backing == fresh.backing).all() and (followed.own == fresh.own).all()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("seed", seeds.several(range(10)))
def test_within_as_many_runs_as_there_are_parts_every_vertex_comes(seed: int, kept: bool, tmp_path: Path) -> None:
    """kept: some of the edges change between them; else each run has a new graph, of the same edges. From any on."""
    rng = np.random.default_rng(seed)
    edges = {(int(a), int(b) + 50) for a, b in rng.integers(-40, 40, (rng.integers(1, 300), 2)) if a < b + 50}
    parts = int(rng.integers(1, 12))
    bounds, graph = list[tuple[int, int]](), None
    shift = int(rng.integers(parts))
    for which in range(parts):
        if graph is None or not kept:
            graph = replay_window(*columns(intervals({0: edges}, 0)), *known(set(), {}), 0, 0, kept=True).graph
        stretch = graph.next_vertex_range(parts, (which + shift) % parts)
        assert 0 <= stretch.which < parts
        vertices = graph.ids[stretch.vertices]
        assert ((vertices >= stretch.low) & (vertices <= stretch.high)).all()
        bounds.append((stretch.low, stretch.high))
        if kept:
            swapped = np.sort(rng.integers(-60, 60, (5, 2)), axis=1)
            come = graph.number_edges(*np.unique(swapped[swapped[:, 0] < swapped[:, 1]], axis=0).T.copy())
            come = come[graph.levels.level[come] < 0]
            gone = np.flatnonzero(graph.levels.level >= 0)[: come.size].astype(np.int32)
            graph.apply_batch(gone, come[: gone.size])
            graph.save_graph(tmp_path, str(which))
            graph = PersistentGraph.open_graph(tmp_path, str(which))
    reach = -(2**63) - 1
    for low, high in sorted(bounds):
        assert low <= reach + 1
        reach = max(reach, high)
    assert reach == 2**63 - 1


@pytest.mark.law(10)
def test_every_day_of_the_demo_is_proved() -> None:
    """Its labels meet: edges that moved behind another, and one that fell to where they are."""
    rows = pd.read_csv(messages_file())
    second = pd.to_datetime(rows["Timestamp"], format="%m/%d/%y %I:%M %p").to_numpy("datetime64[s]").astype(np.int64)
    table = windows(np.stack([rows["Source"], rows["Target"], second], axis=1), 30, 86400.0)
    first, last = int(table[2].min()), int(table[2].max())
    found = replay_window(*table, *known(set(), {}), first, last, ask=ProofScope()).proof
    assert found is not None and (len(found.steps), found.wrong, found.listed_edges) == (193, 0, [])


@pytest.mark.parametrize("seed", seeds.several(range(20)))
def test_labels_that_are_equal_come_in_the_order_of_the_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = random_edges(rng)
    graph = replay_window(
        *columns(intervals({0: edges}, 0)), *known(set(), {}), 0, 0, kept=bool(seed % 2), ask=ProofScope()
    ).graph
    levels = graph.levels
    levels.label[:] = rng.integers(3, size=levels.label.size)
    graph.counted = None
    place = {edge: (levels.level[e], levels.label[e], e) for e, edge in enumerate(zip(*ends(graph), strict=True))}
    own = Counter(min((a, b), (a, c), (b, c), key=place.__getitem__) for a, b, c in slow_triangles(edges))
    wrong = sorted(edge for edge in edges if own[edge] > place[edge][0])
    prover = IncrementalProver(graph, ProofScope())
    before = prover.wrong
    assert before == len(wrong), "by one enumeration"
    prover.share_fingerprints(graph.next_vertex_range(1, 0))
    assert prover.wrong == before, "edge by edge it is the same"
    levels.label[:] = levels.label[::-1].copy()
    counts = prover._recount()
    differ = (counts.own != graph.counted.own).any() or (counts.backing != graph.counted.backing).any()
    prover.share_fingerprints(graph.next_vertex_range(1, 0))
    assert prover.wrong - before == differ, "and what was changed behind its back shows there"


def ends(graph: PersistentGraph) -> tuple[list[int], list[int]]:
    a, b = graph.edge_ends(np.arange(graph.used.edges, dtype=np.int32))
    return a.tolist(), b.tolist()


def test_a_base_that_is_wrong_is_not_proved() -> None:
    edges = {(1, 2), (1, 3), (2, 3), (3, 4)}
    rows = intervals({0: edges, 1: edges | {(4, 5)}}, 1)
    for edge, k in (((1, 2), 2), ((1, 2), 4), ((3, 4), 3)):
        claimed = slow_trussness(edges) | {edge: k}
        found = replay_window(*columns(rows), *known(edges, claimed), 1, 1, kept=True, ask=ProofScope()).proof
        assert found is not None and found.wrong and found.listed_edges[0][:3] == (*edge, k)


@pytest.mark.parametrize("seed", seeds.several(range(10)))
def test_what_the_maintenance_gets_wrong_near_a_change_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A level or a label that is changed behind the maintenance's back, or an edge that is forgotten."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    edges = sorted(random_edges(rng))
    start, come = set(edges[::2]), set(edges[1::2][:3])
    rows = intervals({0: start, 1: start | come}, 1)
    graph = replay_window(
        *columns(intervals({0: start}, 0)), *known(set(), {}), 0, 0, kept=True, ask=ProofScope()
    ).graph
    apply = PersistentGraph.apply_batch

    def wrongly(graph: PersistentGraph, removed, inserted, *rest):
        done = apply(graph, removed, inserted, *rest)
        if inserted.size:
            graph.levels.level[inserted[0]] += rng.choice([-1, 1]) if graph.levels.level[inserted[0]] else 1
        return done

    monkeypatch.setattr(PersistentGraph, "apply_batch", wrongly)
    table = columns([row for row in rows if row[2] == 1])
    diff, old = np.ones(table[0].size, np.int64), np.zeros(table[0].size, bool)
    found = resume_replay(graph, 0, (*table, diff), old, 1, 1, ProofScope()).proof
    assert found is not None and found.wrong


def random_edges(rng: np.random.Generator) -> set[Edge]:
    return {(u, v) for u in range(12) for v in range(u + 1, 12) if rng.random() < 0.5}


@pytest.mark.parametrize("whole", [0, 10**9])
@pytest.mark.parametrize("what", ["a neighbour", "the order", "an edge too few"])
def test_neighbours_that_are_not_those_of_the_edges_are_found(
    what: str, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental_prover, "WHOLE", whole)
    edges = {(1, 2), (1, 3), (2, 3), (3, 4)}
    graph = replay_window(
        *columns(intervals({0: edges}, 0)), *known(set(), {}), 0, 0, kept=True, ask=ProofScope()
    ).graph
    prover, levels = IncrementalProver(graph, ProofScope()), graph.levels
    prover.share_fingerprints(graph.next_vertex_range(1, 0))
    assert not prover.wrong
    come = graph.number_edges(np.array([1], np.int64), np.array([4], np.int64))
    prover.before_batch(come[:0], come)
    graph.apply_batch(come[:0], come)
    if what == "a neighbour":
        levels.neighbour[levels.begin[0]] += 1
    elif what == "the order":
        levels.place[levels.edge[levels.begin[0] : levels.begin[0] + 2], 0] ^= 1
    else:
        levels.live[2] -= 1
    prover.after_batch(1)
    assert prover.wrong and "lists of neighbours" in prover.listed_edges[0].why
