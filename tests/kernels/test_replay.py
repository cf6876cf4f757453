"""Replay against a full recomputation at EVERY epoch: random histories, adversarial ones, and real messages."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from altneu.algorithms.graph.kernels import maintained_graph, truss
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.replay import TrussnessChanges, replay_window
from tests import seeds
from tests.e2e.graphs import parametrize_graphs
from tests.kernels.references import (
    TOTALS,
    Edge,
    arrays,
    clique,
    random_graph,
    read_rows,
    simple_edges,
    slow_trussness,
    torus,
)

OPEN = 2**63 - 1
Interval = tuple[int, int, int, int]


def intervals(history: dict[int, set[Edge]], last: int) -> list[Interval]:
    """The maximal intervals of a history {epoch: the edges alive from there on}, open at `last`."""
    rows, since = [], {}
    for epoch in sorted(history):
        alive = history[epoch]
        for edge in [edge for edge in since if edge not in alive]:
            rows.append((*edge, since.pop(edge), epoch))
        for edge in alive - since.keys():
            since[edge] = epoch
    return rows + [(*edge, start, OPEN) for edge, start in since.items()]


def columns(rows: list[Interval]) -> list[np.ndarray]:
    return list(np.array(rows, np.int64).reshape(-1, 4).T.copy())


def known(edges: set[Edge], trussness: dict[Edge, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = arrays(sorted(edges))
    return a, b, np.array([trussness[edge] for edge in sorted(edges)], np.int32)


def follow(
    changes: TrussnessChanges, state: dict[Edge, int], history: dict[int, set[Edge]], first: int, last: int
) -> None:
    """Apply the changes to a trussness, epoch by epoch: each finds what it says was there, and leaves the true one."""
    for epoch in sorted(e for e in history if first <= e <= last):
        here = changes.epoch == epoch
        for a, b, old, new in zip(*(column[here].tolist() for column in changes[:2] + changes[3:]), strict=True):
            assert state.pop((a, b), 0) == old, f"epoch {epoch}: ({a}, {b}) was not {old}"
            if new:
                state[a, b] = new
        assert state == slow_trussness(history[epoch]), f"epoch {epoch} differs"


def check_history(history: dict[int, set[Edge]], first: int, last: int, method: str = "auto", rng=None):
    """Every change that replay reports, and no other, turns each epoch's true trussness into the next's."""
    rows = intervals(history, last)
    if rng is not None:
        rng.shuffle(rows)
    before = max((epoch for epoch in history if epoch < first), default=None)
    state = slow_trussness(history[before]) if before is not None else {}
    changes, steps, *_ = replay_window(*columns(rows), *known(set(state), state), first, last, method)
    assert (changes.before != changes.after).all()
    assert (np.diff(changes.epoch) >= 0).all()
    follow(changes, state, history, first, last)
    assert set(changes.epoch.tolist()) <= set(history)
    return steps


def random_history(rng: np.random.Generator, epochs: int) -> dict[int, set[Edge]]:
    """Edges of one random graph come, go and return; now and then a big batch, an empty graph or the whole one."""
    pool = sorted(random_graph(rng, 22))
    times = np.sort(rng.choice(10**12, epochs, replace=False)).tolist()
    alive: set[Edge] = set()
    history = {}
    for epoch in times:
        kind = rng.integers(12)
        share = 1.0 if kind == 0 else 0.4 if kind < 3 else 0.08
        drawn = {edge for edge in pool if rng.random() < share}
        side = rng.integers(3)
        alive = alive - drawn if side == 0 else alive | drawn if side == 1 else alive ^ drawn
        history[epoch] = alive
    return history


@pytest.mark.law(4)
@pytest.mark.parametrize("method", ["auto", "incremental", "peel"])
@pytest.mark.parametrize("seed", seeds.mark_wide(range(100), 20))
def test_random_histories(seed, method):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    history = random_history(rng, 14)
    times = sorted(history)
    check_history(history, times[int(rng.integers(5))], times[-1], method, rng)


@pytest.mark.law(4)
@pytest.mark.parametrize("seed", seeds.mark_wide(range(60), 15))
def test_certified_maintenance(seed):
    """A peel at the first epoch gives labels; then only maintenance, so that the labels have to stay true."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    pool = sorted(random_graph(rng, 25)) or [(0, 1)]
    names = {v: i for i, v in enumerate(sorted({v for e in pool for v in e}))}
    pool, n = [(names[u], names[v]) for u, v in pool], len(names)
    u, v = (x.astype(np.int32) for x in arrays(pool))
    kept = PersistentGraph.from_edges(np.arange(n), u, v, np.full(u.size, -1, np.int32), spare=False).kept
    alive = rng.random(u.size) < 0.6
    kept.apply_batch(np.empty(0, np.int32), np.flatnonzero(alive).astype(np.int32), "peel")
    assert kept.certified
    for _ in range(25):
        flip = rng.random(u.size) < rng.choice([1.5 / u.size, 0.1, 0.3])
        flip &= rng.choice([alive, ~alive, np.ones(u.size, bool)])
        removed, inserted = (np.flatnonzero(flip & x).astype(np.int32) for x in (alive, ~alive))
        kept.apply_batch(removed, inserted, "incremental")
        alive ^= flip
        expected = np.full(u.size, -1)
        expected[alive] = truss.peel(u[alive].astype(np.int64), v[alive].astype(np.int64)) - 2
        assert kept.graph.level.tolist() == expected.tolist()
        assert not kept.graph.state.any()
        check_structure(kept.graph)
        check_certificate(kept.graph)


def check_structure(graph) -> None:
    """Each list holds the present edges of its vertex, highest level first, and every place is right."""
    for vertex in range(graph.live.size):
        row = slice(graph.begin[vertex], graph.begin[vertex] + graph.live[vertex])
        listed = graph.edge[row]
        at = (graph.tail == vertex) | (graph.head == vertex)
        assert sorted(listed.tolist()) == np.flatnonzero(at & (graph.level >= 0)).tolist()
        assert (np.diff(graph.level[listed]) <= 0).all()
        assert (graph.neighbour[row] == graph.tail[listed] + graph.head[listed] - vertex).all()
        side = np.where(graph.tail[listed] == vertex, 0, 1)
        assert graph.place[listed, side].tolist() == list(range(listed.size))


def check_certificate(graph) -> None:
    """The counts and the invariant of `truss_maintenance`, from their definitions."""
    present = np.flatnonzero(graph.level >= 0)
    pair = {tuple(sorted((int(graph.tail[e]), int(graph.head[e])))): int(e) for e in present}
    own, backing = dict.fromkeys(pair.values(), 0), dict.fromkeys(pair.values(), 0)
    key = {e: (int(graph.level[e]), int(graph.label[e]), e) for e in own}
    near: dict[int, set[int]] = {}
    for u, v in pair:
        near.setdefault(u, set()).add(v)
        near.setdefault(v, set()).add(u)
    for (u, v), e in pair.items():
        for w in near[u] & near[v]:
            f, g = pair[min(u, w), max(u, w)], pair[min(v, w), max(v, w)]
            own[e] += min(key[f], key[g]) > key[e]
            backing[e] += min(key[f], key[g])[0] >= key[e][0]
    assert own == {e: int(graph.own[e]) for e in own}
    assert backing == {e: int(graph.backing[e]) for e in backing}
    assert all(own[e] <= key[e][0] for e in own)


@pytest.mark.parametrize("method", ["auto", "incremental"])
def test_clique_grown_and_cut_edge_by_edge(method):
    edges = sorted(clique(9))
    history = {t: set(edges[:t]) for t in range(1, len(edges) + 1)}
    history |= {100 + t: set(edges[t:]) for t in range(1, len(edges) + 1)}
    steps = check_history(history, 1, 1000, method)
    assert sum(step.inserted for step in steps) == sum(step.deleted for step in steps) == len(edges)


@pytest.mark.parametrize("method", ["auto", "incremental", "peel"])
def test_one_edge_moves_all_others(method):
    """A torus of triangles: without one edge, wherever it is, all of them fall; with it again all rise."""
    whole = torus(9)
    rng = np.random.default_rng(seeds.one(5))
    first, second, third = (sorted(whole)[i] for i in rng.choice(len(whole), 3, replace=False))
    history = {1: whole, 2: whole - {first}, 3: whole, 4: whole - {second, third}, 5: whole, 6: set(), 7: whole}
    steps = check_history(history, 2, 7, method)
    assert [step.deleted for step in steps] == [1, 0, 2, 0, len(whole), 0]
    assert [step.changed for step in steps] == [len(whole)] * 6


def test_emptied_and_refilled_and_hub():
    wheel = {(0, v) for v in range(1, 60)} | {(v, v + 1) for v in range(1, 59)}
    history = {1: wheel, 2: set(), 3: wheel, 4: wheel - {(0, 30)}, 5: wheel | clique(6), 6: set(), 7: clique(6)}
    for method in ("auto", "incremental", "peel"):
        check_history(history, 1, 7, method)


def test_intervals_that_touch_overlap_or_lie_outside():
    rows = [(1, 2, 0, 5), (1, 2, 5, 9), (1, 3, -4, OPEN), (2, 3, 3, 6), (2, 3, 5, 7), (2, 3, 8, 8), (2, 3, 50, 60)]
    none = np.empty(0, np.int64)
    changes, steps, *_ = replay_window(*columns(rows), none, none, none, -(2**63), 40)
    got = sorted(zip(*(column.tolist() for column in changes), strict=True), key=lambda row: row[2:3] + row[:2])
    assert got == [
        (1, 3, -4, 0, 2),
        (1, 2, 0, 0, 2),
        (1, 2, 3, 2, 3),
        (1, 3, 3, 2, 3),
        (2, 3, 3, 0, 3),
        (1, 2, 7, 3, 2),
        (1, 3, 7, 3, 2),
        (2, 3, 7, 3, 0),
        (1, 2, 9, 2, 0),
    ]
    assert [step.method for step in steps if step.epoch in (5, 6)] == ["none", "none"]


def test_nothing_to_do():
    none = np.empty(0, np.int64)
    changes, steps, *_ = replay_window(none, none, none, none, none, none, none, 0, 10)
    assert (changes.a.size, steps) == (0, [])
    changes, steps, *_ = replay_window(*columns([(1, 2, 0, OPEN)]), *arrays([(1, 2)]), np.array([2]), 5, 10)
    assert (changes.a.size, steps) == (0, [])


def test_state_that_does_not_fit_is_named():
    rows = columns([(1, 2, 0, OPEN), (2, 3, 7, OPEN)])
    none = np.empty(0, np.int64)
    with pytest.raises(ValueError, match=r"\(1, 2\) is alive just before epoch 5, but its trussness is not given"):
        replay_window(*rows, none, none, none, 5, 9)
    with pytest.raises(ValueError, match=r"\(2, 3\) is not alive just before epoch 5"):
        replay_window(*rows, *arrays([(1, 2), (2, 3)]), np.array([2, 2]), 5, 9)
    with pytest.raises(ValueError, match=r"\(1, 9\) has a trussness before epoch 5, but no interval"):
        replay_window(*rows, *arrays([(1, 2), (1, 9)]), np.array([2, 2]), 5, 9)


def message_intervals(name: str, time: int, live_for: int, every: float) -> list[np.ndarray]:
    """An edge per message of a file, see `windows`. time: the column of its seconds."""
    rows = read_rows(name)
    return windows(rows[:, [0, 1, time]], live_for, every)


def windows(rows: np.ndarray, live_for: int, every: float) -> list[np.ndarray]:
    """Edges from (vertex, vertex, second), alive for `live_for` epochs of `every` seconds; overlaps joined."""
    rows = rows[rows[:, 0] != rows[:, 1]]
    a, b = rows[:, :2].min(axis=1).astype(np.int64), rows[:, :2].max(axis=1).astype(np.int64)
    day = np.floor(rows[:, 2] / every).astype(np.int64)
    out: dict[Edge, list[list[int]]] = {}
    for u, v, t in sorted(zip(a.tolist(), b.tolist(), day.tolist(), strict=True), key=lambda row: row[2]):
        spans = out.setdefault((u, v), [])
        if spans and t <= spans[-1][1]:
            spans[-1][1] = t + live_for
        else:
            spans.append([t, t + live_for])
    return columns([(*edge, *span) for edge, spans in out.items() for span in spans])


def check_against_peel(a, b, start, until) -> None:
    """Replay in one call; at every breakpoint the accumulated trussness equals a peel."""
    none = np.empty(0, np.int64)
    first, last = int(start.min()), int(until.max())
    changes, *_ = replay_window(a, b, start, until, none, none, none, first, last)
    names = {edge: i for i, edge in enumerate(sorted(set(zip(a.tolist(), b.tolist(), strict=True))))}
    row = np.array([names[edge] for edge in zip(a.tolist(), b.tolist(), strict=True)])
    pairs = np.array(sorted(names), np.int64)
    changed = np.array([names[e] for e in zip(changes.a.tolist(), changes.b.tolist(), strict=True)], np.int64)
    state = np.zeros(len(names), np.int32)
    for epoch in np.unique(np.concatenate([start, until])).tolist():
        here = changes.epoch == epoch
        assert (state[changed[here]] == changes.before[here]).all()
        state[changed[here]] = changes.after[here]
        alive = np.zeros(len(names), bool)
        alive[row[(start <= epoch) & (epoch < until)]] = True
        expected = np.zeros(len(names), np.int32)
        expected[alive] = truss.peel(pairs[alive, 0], pairs[alive, 1])
        assert (state == expected).all(), f"epoch {epoch}"
    assert not state.any()


@pytest.mark.law(4)
def test_college_messages_over_thirty_days_equal_the_peel_at_every_epoch():
    check_against_peel(*message_intervals("CollegeMsg.txt.gz", 2, 30, 86400.0))


WITH_TIME = {  # column of the time, epochs that an edge lives, seconds of an epoch
    "email-Eu-core-temporal.txt.gz": (2, 14, 86400.0),
    "soc-sign-bitcoinotc.csv.gz": (3, 20, 7 * 86400.0),
    "soc-sign-bitcoinalpha.csv.gz": (3, 20, 7 * 86400.0),
    "CollegeMsg.txt.gz": (2, 48, 3600.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", parametrize_graphs(WITH_TIME))
def test_real_histories_with_windows(name):
    check_against_peel(*message_intervals(name, *WITH_TIME[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", parametrize_graphs(set(TOTALS) - set(WITH_TIME)))
def test_real_graphs_without_time(name):
    """Edges come in any order until all are there, go, and half of them return for a while."""
    a, b = simple_edges(read_rows(name))
    rng = np.random.default_rng(seeds.one(1))
    start, until = rng.integers(0, 20, a.size), rng.integers(21, 40, a.size)
    again = rng.random(a.size) < 0.5
    back = until[again] + 1
    second = a[again], b[again], back, back + rng.integers(1, 9, back.size)
    check_against_peel(*map(np.concatenate, zip((a, b, start, until), second, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds.several(range(1000, 1600)))
def test_many_random_histories(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    history = random_history(rng, 25)
    check_history(history, min(history), max(history), ["auto", "incremental"][seed % 2], rng)


def test_every_triple_of_changes_on_five_vertices():
    """All graphs reached from K5 by removing any three edges and putting them back one by one."""
    whole = clique(5)
    for gone in combinations(sorted(whole), 3):
        history = {0: whole, 1: whole - set(gone), 2: whole - set(gone[1:]), 3: whole - {gone[2]}, 4: whole}
        check_history(history, 1, 4, "incremental")


def test_labels_are_made_for_batches_to_come_and_not_for_the_last():
    """From levels without labels: a batch that costs about a peel is maintained when it is the last, else peeled."""
    from tests.benchmarks.kernels import rmat

    a, b = rmat(10, 6)
    come = np.random.default_rng(3).choice(a.size, 20, replace=False)
    there = np.setdiff1d(np.arange(a.size), come)
    start, until = np.zeros(a.size, np.int64), np.full(a.size, OPEN)
    start[come] = 5
    state = a[there], b[there], truss.peel(a[there], b[there])
    alone, (step,), *_ = replay_window(a, b, start, until, *state, 5, 5)
    until[there[0]] = 6
    both, steps, *_ = replay_window(a, b, start, until, *state, 5, 6)
    assert maintained_graph.PATIENCE < step.estimate / step.peel < maintained_graph.ALONE, "the batch is no example"
    assert [step.method, steps[0].method] == ["lift", "peel"]
    here = both.epoch == 5
    assert here.any() and not here.all()
    assert all((x == y[here]).all() for x, y in zip(alone, both, strict=True))


def test_columns_of_different_lengths_are_named():
    a, b, start, until = columns([(1, 2, 0, OPEN), (2, 3, 0, OPEN)])
    none = np.empty(0, np.int64)
    for shorter in (*combinations(range(4), 1), *combinations(range(4), 3)):
        cut = [column[: 1 if j in shorter else 2] for j, column in enumerate((a, b, start, until))]
        lengths = ", ".join(str(column.size) for column in cut)
        with pytest.raises(ValueError, match=f"^a, b, start, until differ in length: {lengths}$"):
            replay_window(*cut, none, none, none, 0, 9)


def test_a_step_says_what_came_and_went_and_how():
    history = {1: clique(6), 2: clique(6) - {(0, 1)}, 3: clique(6), 4: (clique(6) - {(0, 1)}) | {(0, 9)}, 5: set()}
    steps = check_history(history, 1, 5, "incremental")
    assert [(step.epoch, step.inserted, step.deleted, step.method) for step in steps] == [
        (1, 15, 0, "lift"),
        (2, 0, 1, "descend"),
        (3, 1, 0, "lift"),
        (4, 1, 1, "mixed"),
        (5, 0, 15, "descend"),
    ]
    assert [step.changed for step in steps] == [15, 15, 15, 16, 15]
    peeled = check_history(history, 1, 5, "peel")
    assert [step.method for step in peeled] == ["peel"] * 5
    assert all(step.steps == step.peel > 0 for step in peeled if step.epoch > 1)


def test_how_far_changes_spread_is_learned_from_each_batch():
    """Half-way to what a batch showed; of one that was given up, the least that it would have cost."""
    kept = PersistentGraph.from_edges(np.arange(3), *(np.array(x, np.int32) for x in ([0], [1], [0])), spare=False).kept
    assert kept.spread == maintained_graph.SPREAD and kept.spread is not maintained_graph.SPREAD
    kept.spread = {"descend": 1.0}
    kept._learn_cost("descend", 30, 10.0, finished=True)
    assert kept.spread == {"descend": 2.0}
    kept._learn_cost("descend", 5, 10.0, finished=True)
    assert kept.spread == {"descend": 1.25}
    kept._learn_cost("descend", 5, 10.0, finished=False)  # 0.75 at the least: less than what is known
    assert kept.spread == {"descend": 1.25}
    kept._learn_cost("descend", 15, 10.0, finished=False)
    assert kept.spread == {"descend": 1.75}
    kept._learn_cost("descend", 3, 0.0, finished=True)  # of no triangle: as of one step
    assert kept.spread == {"descend": 2.375}


def unlabelled(present: bool) -> tuple[maintained_graph.MaintainedGraph, np.ndarray]:
    """A torus and an edge in no triangle, with known levels and no labels; and the number of that edge."""
    edges = [*sorted(torus(6)), (0, 36)]
    trussness = slow_trussness(set(edges))
    levels = np.array([trussness[edge] - 2 for edge in edges], np.int32)
    levels[-1] = 0 if present else -1
    u, v = (ends.astype(np.int32) for ends in arrays(edges))
    return PersistentGraph.from_edges(np.arange(37), u, v, levels, spare=False).kept, np.array(
        [len(edges) - 1], np.int32
    )


def test_the_cost_of_a_batch_is_of_that_batch():
    """In steps of a descent, whatever the batches before it have cost."""
    kept, edge = unlabelled(present=False)
    none = np.empty(0, np.int32)
    clock, costs = kept.graph.clock, []
    for _ in range(3):
        for removed, inserted, worth in ((none, edge, maintained_graph.LIFT_STEP), (edge, none, 1)):
            before, rent = int(clock[maintained_graph.STEPS]), kept.rent
            cost = kept.apply_batch(removed, inserted, "incremental").effort[2]
            assert 0 < cost <= int((int(clock[maintained_graph.STEPS]) - before) * worth)
            assert kept.rent - rent == (cost if inserted.size else 0)
            costs.append(cost)
    assert costs[:2] == costs[2:4] == costs[4:]


def test_once_lifts_without_labels_have_cost_a_peel_a_peel_makes_labels():
    none = np.empty(0, np.int32)
    for rent, last, expected in ((0, False, "lift"), (10**9, False, "peel"), (10**9, True, "lift")):
        kept, edge = unlabelled(present=False)
        kept.rent = rent
        done = kept.apply_batch(none, edge, last=last)
        assert (done.effort[0], kept.certified) == (expected, expected == "peel")
        assert kept.rent == 0 if expected == "peel" else kept.rent > rent
    kept, edge = unlabelled(present=True)
    kept.rent = 10**9
    assert kept.apply_batch(edge, none).effort[0] == "descend"  # it needs no labels
