"""The proof beside the maintenance says what the proof after each epoch says, and at which epoch a fault was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest

from altneu.algorithms.graph.kernels import concurrent_prover, incremental_prover, replay
from altneu.algorithms.graph.kernels.incremental_prover import LISTS, IncrementalProver
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, StateMismatch
from altneu.algorithms.graph.kernels.replay import ReplayResult, replay_window, resume_replay
from altneu.algorithms.graph.kernels.threads import use_threads
from altneu.algorithms.graph.proof_records import ProofScope
from tests import seeds
from tests.kernels.references import live_kernel_threads, slow_trussness
from tests.kernels.test_proof import check_counts, check_proof
from tests.kernels.test_replay import columns, intervals, known, random_history
from tests.kernels.test_warm import History, at

EPOCHS = 8
Damage = Callable[[PersistentGraph], None]


@pytest.fixture(autouse=True)
def _in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the graphs are."""
    monkeypatch.setattr(replay, "MANY_EPOCHS", 1)
    monkeypatch.setattr(replay, "WORTH_A_COPY", 10**9)


def replayed(history: History, first: int, threads: int, method: str = "auto") -> ReplayResult:
    start = at(history, first - 1)
    rows = [*columns(intervals(history, max(history))), *known(start, slow_trussness(start))]
    with use_threads(threads):
        return replay_window(*rows, first, max(history), method, kept=True, ask=ProofScope(3, 1))


@pytest.mark.law(10)
@pytest.mark.parametrize("whole", [incremental_prover.WHOLE, 1, 10**9])
@pytest.mark.parametrize("seed", seeds.several(range(12)))
def test_both_proofs_are_equal(seed: int, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    monkeypatch.setattr(incremental_prover, "WHOLE", whole)
    monkeypatch.setattr(concurrent_prover, "ARRANGE", [0, 8, 10**9][seed % 3])
    rng = np.random.default_rng(seed)
    history = random_history(rng, EPOCHS)
    first = sorted(history)[int(rng.integers(4))]
    method = ["auto", "incremental", "peel"][int(rng.integers(3))]
    one, two = (replayed(history, first, threads, method) for threads in (1, 2))
    check_proof(two.proof, history, first)
    assert one.proof is not None and two.proof is not None and asdict(one.proof) == asdict(two.proof)
    for mine, other in zip(one.graph.copy_certificate(), two.graph.copy_certificate(), strict=True):
        assert (mine == other).all()
    check_counts(two.graph)


def damaged(history: History, epoch: int, damage: Damage, monkeypatch: pytest.MonkeyPatch) -> ReplayResult:
    """Replay with damage that is done just after the maintenance of an epoch."""
    apply, times = PersistentGraph.apply_batch, sorted(history)

    def apply_and_damage(graph: PersistentGraph, *batch: np.ndarray, **more: bool) -> object:
        done = apply(graph, *batch, **more)
        if times.pop(0) == epoch:
            damage(graph)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(PersistentGraph, "apply_batch", apply_and_damage)
        return replayed(history, times[0], 2, "incremental")


def growing_history() -> History:
    """One new triangle at each epoch, and a pair of edges far away from it."""
    history, edges = History(), set[tuple[int, int]]()
    for epoch in range(EPOCHS):
        v = 10 * epoch
        edges = edges | {(v, v + 1), (v, v + 2), (v + 1, v + 2), (v + 1, v + 3)}
        history[epoch] = set(edges)
    return history


@pytest.mark.law(10)
@pytest.mark.parametrize("epoch", range(EPOCHS))
@pytest.mark.parametrize("level", [0, 2])
def test_a_wrong_level_is_reported_at_its_epoch(epoch: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The maintenance does not wait: it is at the last epoch before the proof has begun."""
    monkeypatch.setattr(concurrent_prover, "IN_FLIGHT", EPOCHS)
    monkeypatch.setattr(incremental_prover, "WHOLE", 0)  # else each later epoch finds it again
    may_begin, prove = threading.Event(), IncrementalProver.before_batch

    def wait_and_prove(prover: IncrementalProver, *batch: np.ndarray) -> None:
        assert threading.current_thread() is not threading.main_thread() and may_begin.wait(60)
        prove(prover, *batch)

    def plant(graph: PersistentGraph) -> None:
        (edge,) = graph.number_edges(np.array([10 * epoch]), np.array([10 * epoch + 1]))
        graph.levels.level[edge] = level

    class Waiting(concurrent_prover.ConcurrentProver):
        def __exit__(self, *error: object) -> None:
            may_begin.set()
            super().__exit__(*error)  # type: ignore[arg-type]

    monkeypatch.setattr(IncrementalProver, "before_batch", wait_and_prove)
    monkeypatch.setattr(replay, "ConcurrentProver", Waiting)
    proof = damaged(growing_history(), epoch, plant, monkeypatch).proof
    assert proof is not None and proof.wrong
    assert {edge.epoch for edge in proof.listed_edges if edge.why != LISTS} == {epoch}
    wrong = {step.epoch: step.wrong for step in proof.steps}
    assert wrong.pop(epoch) > 0 and not any(wrong.values())
    assert (10 * epoch, 10 * epoch + 1) in {edge[:2] for edge in proof.listed_edges}


@pytest.mark.parametrize("what", ["a neighbour", "the order", "an edge too few"])
def test_lists_of_the_maintenance_that_are_not_its_edges_are_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof has its own lists; those that the next run begins with are compared with them."""

    def damage(graph: PersistentGraph) -> None:
        levels = graph.levels
        first = levels.begin[0]
        if what == "a neighbour":
            levels.neighbour[first] += 1
        elif what == "the order":
            levels.place[levels.edge[first : first + 2], 0] ^= 1
        else:
            levels.live[0] -= 1

    history = growing_history()
    proof = damaged(history, max(history), damage, monkeypatch).proof
    assert proof is not None and proof.wrong and LISTS in {edge.why for edge in proof.listed_edges}


@pytest.mark.parametrize("where", ["_follow_edges", "_count_changes"])
def test_an_error_of_the_proof_is_an_error_of_the_replay(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ArithmeticError("no")

    monkeypatch.setattr(incremental_prover, "WHOLE", 0)
    monkeypatch.setattr(IncrementalProver, where, fail)
    with pytest.raises(ArithmeticError, match="no"):
        replayed(growing_history(), 0, 2)
    assert not live_kernel_threads()


def test_a_history_that_does_not_fit_ends_the_thread() -> None:
    """At epoch 3 an edge goes that is not there."""
    graph = replayed({0: {(1, 2)}, 1: {(1, 2), (2, 3)}}, 0, 1).graph
    rows = columns([(1, 2, 2, 2**63 - 1), (7, 8, 3, 4), (4, 5, 4, 9)])
    diff = np.array([-1, -1, 1], np.int64)
    with use_threads(2), pytest.raises(StateMismatch):
        resume_replay(graph, 1, (*rows, diff), np.zeros(3, bool), 2, 9, ProofScope())
    assert not live_kernel_threads()


def test_the_epoch_of_an_edge_lasts_in_json() -> None:
    proof = replayed(growing_history(), 0, 2).proof
    assert proof is not None
    edge = incremental_prover.UnprovedEdge(1, 2, 3, "too low", 5)
    proof = replace(proof, listed_edges=[edge], wrong=1, steps=[replace(proof.steps[0], wrong=1)])
    assert type(proof).from_json(proof.to_json()) == proof
