"""Kernels in several threads: results are the same with any number; no thread is left; no core is taken twice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from altneu.algorithms.graph.kernels import parallel_peel, threads, truss
from altneu.algorithms.graph.kernels.certificate_counts import count_certificate
from altneu.algorithms.graph.kernels.graph import orient_edges
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph
from altneu.algorithms.graph.kernels.replay import replay_window
from altneu.algorithms.graph.kernels.threads import (
    available_cores,
    free_threads,
    occupy_core,
    run_in_threads,
    use_threads,
)
from altneu.algorithms.graph.kernels.triangles import count_triangles
from altneu.algorithms.graph.kernels.trussness_check import check_trussness
from altneu.algorithms.graph.proof_records import ProofScope
from tests import seeds
from tests.kernels.bucket_peel import bucket_trussness
from tests.kernels.references import live_kernel_threads

NUMBERS = (1, 2, 3, 8)
Edges = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """And threads for graphs of any size."""
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    monkeypatch.setattr(threads, "MANY_ROWS", 1)
    monkeypatch.setattr(threads, "MOST_COPIES", 8)
    monkeypatch.setattr(parallel_peel, "LARGE_BATCH", 2)


def random_edges(seed: int) -> Edges:
    """Some dense parts, a hub, and many edges that are in no triangle; ids in no order of degrees."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 900))
    parts = [rng.integers(0, n, (2 * n, 2)), rng.integers(0, 60, (1500, 2)), rng.integers(40, 100, (1500, 2))]
    parts.append(np.stack([np.full(n, 7), np.arange(n)], axis=1))
    ends = np.sort(rng.permutation(n)[np.concatenate(parts)], axis=1)
    ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    ends = ends[rng.permutation(len(ends))]
    return ends[:, 0].copy(), ends[:, 1].copy()


def everything(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """All results of kernels that work in threads."""
    graph = orient_edges(a, b)
    yield from (
        (f"order {name}", x) for name, x in truss.ordered_peel(graph.indptr, graph.tail, graph.head)._asdict().items()
    )
    trussness, layer = truss.peel_layers(a, b)
    yield from (("trussness", trussness), ("layer", layer))
    counted = count_triangles(a, b)
    yield from (("triangles", counted.per_edge), ("triangles at vertices", counted.per_vertex))
    label = np.arange(a.size, dtype=np.int64) % 5
    yield from ((f"facts {i}", x) for i, x in enumerate(count_certificate(a, b, trussness - 2, label)))
    claimed = trussness + (np.arange(a.size) % 50 == 0)
    yield from ((f"verdict {i}", x) for i, x in enumerate(check_trussness(a, b, claimed)))
    level = np.where(np.arange(a.size) % 9 == 0, 0, trussness - 2).astype(np.int32)
    persistent = PersistentGraph.from_edges(*_numbered(a, b), level)
    persistent.kept.certified = True
    persistent.levels.label[: a.size] = label
    prover = IncrementalProver(persistent, ProofScope())
    assert persistent.counted is not None and prover.wrong
    yield from (("backing", persistent.counted.backing), ("own", persistent.counted.own))
    prints = [(p.first, p.second) for p in persistent.counted.prints.values()]
    yield from (("prints", np.array(prints, np.uint64)), ("wrong", np.array([prover.wrong])))


def _numbered(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    return ids, ends[: a.size].astype(np.int32), ends[a.size :].astype(np.int32)


@pytest.mark.parametrize("seed", seeds.several(range(4)))
def test_results_do_not_depend_on_the_number_of_threads(seed: int) -> None:
    a, b = random_edges(seed)
    results = {}
    for number in NUMBERS:
        with use_threads(number):
            results[number] = dict(everything(a, b))
        for name, x in results[number].items():
            assert x.dtype == results[1][name].dtype and (x == results[1][name]).all(), (number, name)
    assert (results[8]["trussness"] == bucket_trussness(a, b)).all()


@pytest.mark.parametrize("number", NUMBERS)
def test_a_replay_leaves_the_same_graph(number: int) -> None:
    """Peels and proofs beside the maintenance included."""
    a, b = random_edges(9)
    start = np.arange(a.size, dtype=np.int64) % 4
    none = np.empty(0, np.int64)
    with use_threads(number):
        result = replay_window(
            a, b, start, start + 3, none, none, none.astype(np.int32), 0, 6, kept=True, ask=ProofScope(4)
        )
    with use_threads(1):
        alone = replay_window(
            a, b, start, start + 3, none, none, none.astype(np.int32), 0, 6, kept=True, ask=ProofScope(4)
        )
    assert result.proof == alone.proof and alone.proof is not None and not alone.proof.wrong
    for mine, other in zip(result.graph.copy_certificate(), alone.graph.copy_certificate(), strict=True):
        assert (mine == other).all()


def test_the_order_of_a_peel_proves_its_result() -> None:
    """In its order no edge has more triangles left than its level, by an enumeration of another module."""
    a, b = random_edges(5)
    graph = orient_edges(a, b)
    with use_threads(3):
        order = truss.ordered_peel(graph.indptr, graph.tail, graph.head)
    kappa, place, own, backing = (np.empty(a.size, np.int32) for _ in range(4))
    for out, column in zip((kappa, place, own, backing), order, strict=True):
        out[graph.origin] = column
    assert sorted(place.tolist()) == list(range(1, a.size + 1))
    counted = count_certificate(a, b, kappa, place.astype(np.int64))
    assert (counted.backing == backing).all() and (counted.first == own).all()
    assert (counted.backing >= kappa).all() and (counted.first <= kappa).all()


def test_threads_and_forks_do_not_meet() -> None:
    """A worker of Spark is a fork of a process that may have used the kernels, and is used again."""
    a, b = random_edges(1)
    with use_threads(3):
        here = truss.peel(a, b)
    assert not live_kernel_threads()
    child = os.fork()
    if not child:
        with use_threads(3):
            os._exit(not (truss.peel(a, b) == here).all())
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert status == 0


def test_no_core_is_taken_twice() -> None:
    with use_threads(4):
        assert free_threads() == 4
        with occupy_core():
            assert free_threads() == 4, "the thread that asks is the one that works"
            with occupy_core():
                assert free_threads() == 3
                with use_threads(1):
                    assert free_threads() == 1
    assert free_threads() == 1


def test_an_error_in_a_thread_is_raised() -> None:
    def work(x: int) -> float:
        return 1 / x

    assert run_in_threads(work, [(1,), (2,), (4,)], 3) == [1, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        run_in_threads(work, [(1,), (0,)], 2)
    assert not live_kernel_threads()


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 4), ("150000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), (None, 4)]
)
def test_a_container_gives_as_many_cores_as_it_may_use(
    limit: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.max"
    if limit is not None:
        file.write_text(f"{limit}\n")
    monkeypatch.setattr(threads, "_CPU_LIMIT", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert available_cores() == cores
