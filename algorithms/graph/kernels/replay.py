"""The replay of trussness over a window of epochs, from the state before it: many epochs in one call.

`replay_window` begins with the edges and their trussness, `resume_replay` with a cached graph (`persistent_graph`).

Law     At each epoch of first..last the result equals a full peel of the edges alive at that epoch.
Shapes  a, b, start, until: int64 vectors, one row per interval [start, until) in which edge a < b is alive; an edge
        may have many, in any order; `until` is 2**63 - 1 in an open interval. ea, eb, ek: the edges alive at first - 1
        and their trussness (>= 2).
Cost    An epoch costs as much as the edges that its changes can reach, or as one peel, whichever is estimated to be
        less. Epochs without a change cost nothing. Memory: about 200 bytes per edge that is ever alive in the window
        at the peak (one interval each; measured), besides input and output; 80 more where the epochs of a long window
        are proved in another thread (`concurrent_prover`). To free the memory of the input, call `prepare_replay`,
        release the vectors, and then call `run_replay`.
Source  `truss_maintenance` and `truss` in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from altneu.algorithms.graph.kernels.concurrent_prover import ConcurrentProver
from altneu.algorithms.graph.kernels.graph import Ints, Shorts, compact_ids, distinct_values, run_starts
from altneu.algorithms.graph.kernels.incremental_prover import IncrementalProver
from altneu.algorithms.graph.kernels.maintained_graph import BatchResult
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, StateMismatch
from altneu.algorithms.graph.kernels.threads import allowed_threads, occupy_core
from altneu.algorithms.graph.proof_records import Proof, ProofScope

# An epoch can be proved beside the next one where there are as many epochs,
MANY_EPOCHS = 3
WORTH_A_COPY = 1000  # and one change, whose proof costs more than to copy this number of edges, for so many edges


class TrussnessChanges(NamedTuple):
    """Rows in order of epoch: the trussness of edge (a, b) at the epoch and at the one before; 0 if the edge is absent.

    a, b, epoch  int64[c];  before, after  int32[c], never equal
    """

    a: Ints
    b: Ints
    epoch: Ints
    before: Shorts
    after: Shorts


class ReplayStep(NamedTuple):
    """The work of maintenance at one epoch.

    method: descend, lift, mixed, peel, or none (the changes cancelled out); steps: its cost in steps along neighbour
    lists; estimate: the estimated cost, by which the method was chosen; peel: the cost of a peel.
    """

    epoch: int
    inserted: int
    deleted: int
    changed: int
    method: str
    evaluations: int
    steps: int
    estimate: int
    peel: int
    seconds: float


Batch = tuple[int, Shorts, Shorts]  # epoch, edges that go, edges that come


class WindowSize(NamedTuple):
    """How many epochs a window has in which something may change, and how many edges come or go in it."""

    epochs: int
    events: int

    @classmethod
    def from_events(cls, at: Ints) -> WindowSize:
        return cls(distinct_values(at).size, at.size)


class PreparedReplay(NamedTuple):
    """The graph before the first epoch, the batch of each epoch, the epoch (or None) after which it is not used, and
    the size of the window.
    """

    graph: PersistentGraph
    steps: Iterator[Batch]
    final: int | None
    size: WindowSize


class ReplayResult(NamedTuple):
    changes: TrussnessChanges
    steps: list[ReplayStep]
    graph: PersistentGraph  # as it is after the last epoch
    proof: Proof | None = None  # if one was requested


def replay_window(
    a: Ints,
    b: Ints,
    start: Ints,
    until: Ints,
    ea: Ints,
    eb: Ints,
    ek: NDArray[np.integer],
    first: int,
    last: int,
    method: str = "auto",
    kept: bool = False,
    ask: ProofScope | None = None,
) -> ReplayResult:
    """Return the changes of trussness at the epochs first..last.

    Args:
        a: one end of the edge of each interval; the module docstring has the shapes.
        b: the other end.
        start: the first epoch of each interval.
        until: the epoch after the last one of each interval.
        ea: one end of each edge alive at first - 1.
        eb: the other end.
        ek: the trussness of these edges.
        first: the first epoch of the window.
        last: the last epoch of the window.
        method: auto, or incremental or peel to force one.
        kept: the graph will be used after this.
        ask: prove every epoch, and this part of the graph.

    Raises:
        ValueError: ea, eb are not the edges alive at first - 1.

    >>> row = lambda *values: np.array(values, np.int64)
    >>> changes, steps, *_ = replay_window(row(1, 1, 2), row(2, 3, 3), row(0, 0, 5), row(9, 9, 7), row(1, 1), row(2, 3),
    ...                            row(2, 2), 4, 8, "incremental")
    >>> [tuple(map(int, change)) for change in zip(*changes)]  # doctest: +NORMALIZE_WHITESPACE
    [(1, 2, 5, 2, 3), (1, 3, 5, 2, 3), (2, 3, 5, 0, 3), (1, 2, 7, 3, 2), (1, 3, 7, 3, 2), (2, 3, 7, 3, 0)]
    >>> [(step.epoch, step.method) for step in steps]
    [(5, 'lift'), (7, 'descend')]
    """
    return run_replay(prepare_replay(a, b, start, until, ea, eb, ek, first, last, kept), method, ask)


def prepare_replay(
    a: Ints,
    b: Ints,
    start: Ints,
    until: Ints,
    ea: Ints,
    eb: Ints,
    ek: NDArray[np.integer],
    first: int,
    last: int,
    kept: bool = False,
) -> PreparedReplay:
    """Return the input of `run_replay`, from the parameters of `replay_window`. Afterwards the vectors can be freed."""
    a, b, start, until = (np.ascontiguousarray(x, np.int64) for x in (a, b, start, until))
    if not a.shape == b.shape == start.shape == until.shape:
        raise ValueError(f"a, b, start, until differ in length: {a.size}, {b.size}, {start.size}, {until.size}")
    inside = (start <= last) & (until >= first) & (start < until)
    if not inside.all():
        a, b, start, until = (x[inside] for x in (a, b, start, until))
    vertices, u, v = compact_ids(a, b)
    u, v, edge = _distinct_pairs_of_vertices(u, v)
    times = np.bincount(edge[start < first], minlength=u.size).astype(np.int32)
    level = _levels_before(vertices, u, v, ea, eb, ek, times > 0, first)
    at, touched, sign = _interval_events(edge, start, until, first, last)
    graph = PersistentGraph.from_edges(vertices, u, v, level, spare=kept)
    final = int(at[-1]) if at.size and not kept else None
    return PreparedReplay(graph, _batches_by_epoch(times, at, touched, sign), final, WindowSize.from_events(at))


def run_replay(start: PreparedReplay, method: str = "auto", ask: ProofScope | None = None) -> ReplayResult:
    """Return the changes at the epochs of the steps, which can be taken only once."""
    graph, steps, final, size = start
    return _apply_batches(graph, steps, method, final, size, None if ask is None else IncrementalProver(graph, ask))


def resume_replay(
    graph: PersistentGraph,
    at: int,
    rows: tuple[Ints, Ints, Ints, Ints, Ints],
    old: NDArray[np.bool_],
    first: int,
    last: int,
    ask: ProofScope | None = None,
) -> ReplayResult:
    """Replay a history from a graph as it was at epoch `at`, which is changed in place.

    Args:
        graph: the graph.
        at: the epoch of the graph.
        rows: a, b, epoch, until, diff of the signed intervals that begin or end within first..max(at, last), in any
            order.
        old: which of these intervals the graph has seen.
        first: the first epoch of the result.
        last: the last epoch of the result.
        ask: prove every epoch, and this part of the graph.

    Raises:
        ValueError: the intervals do not fit the graph, which must then not be used any more.
    """
    steps = epoch_batches(graph, at, rows, old, first, last)
    back = next(steps)
    prover = None if ask is None else IncrementalProver(graph, ask)
    _apply_batch(graph, *back, prover)
    times = np.concatenate(rows[2:4])
    size = WindowSize.from_events(times[(times >= first) & (times <= last)])
    return _apply_batches(graph, steps, "auto", None, size, prover)


def epoch_batches(
    graph: PersistentGraph,
    at: int,
    rows: tuple[Ints, Ints, Ints, Ints, Ints],
    old: NDArray[np.bool_],
    first: int,
    last: int,
) -> Iterator[Batch]:
    """Yield (epoch, removed edges, inserted edges), by number; apply each to the graph before taking the next.

    The first batch makes the graph that of the epoch before `first`; then comes the batch of each epoch. The parameters
    are those of `resume_replay`.
    """
    pa, pb, place = _distinct_pairs(*rows[:2])
    edges = graph.number_edges(pa, pb)
    for epoch, gone, come in pair_batches(graph.levels.level[edges] >= 0, place, rows[2:], old, at, first, last):
        yield epoch, edges[gone], edges[come]


def pair_batches(
    present: NDArray[np.bool_],
    place: NDArray[np.integer],
    times: tuple[Ints, Ints, Ints],
    old: NDArray[np.bool_],
    at: int,
    first: int,
    last: int,
) -> Iterator[Batch]:
    """Yield the batches by which pairs change, as indices of pairs.

    Args:
        present: which pairs exist at epoch `at`.
        place: the pair of each interval.
        times: epoch, until, diff of each interval.
        old: which intervals the state has seen.
        at: the epoch of the state.
        first: the first epoch of the result.
        last: the last epoch of the result.
    """
    start, until, diff = times
    count = np.where(present, 1, 0).astype(np.int32)
    back = np.zeros(count.size, np.int64)
    for time, sign in ((start, diff), (until, -diff)):
        within = old & (time >= first) & (time <= at)
        np.subtract.at(back, place[within], sign[within])
    count += back.astype(np.int32)
    if (count < 0).any() or (count > 1).any():
        raise StateMismatch(f"the state at epoch {at} does not match the stored intervals")
    yield first - 1, np.flatnonzero(back < 0).astype(np.int32), np.flatnonzero(back > 0).astype(np.int32)
    begins, ends = ((time >= first) & (time <= last) for time in (start, until))
    epochs = np.concatenate([start[begins], until[ends]])
    touched = np.concatenate([place[begins], place[ends]])
    signs = np.concatenate([diff[begins], -diff[ends]])
    order = np.argsort(epochs, kind="stable")
    yield from _batches_by_epoch(count, epochs[order], touched[order], signs[order].astype(np.int32))


def _batches_by_epoch(times: Shorts, at: Ints, touched: NDArray[np.integer], sign: Shorts) -> Iterator[Batch]:
    """Yield the batch of each epoch in turn.

    times: how often each edge exists before the events, changed in place; touched: the edges of the events.
    """
    bounds = run_starts(at)
    epochs, ends = at[bounds].tolist(), np.append(bounds, at.size)[1:]
    del at
    for epoch, low, high in zip(epochs, bounds, ends, strict=True):
        here = distinct_values(touched[low:high]).astype(np.int32)
        was = times[here] > 0
        np.add.at(times, touched[low:high], sign[low:high])
        if (times[here] < 0).any():
            raise StateMismatch(f"an edge that is absent ends at epoch {epoch}")
        alive = times[here] > 0
        yield epoch, here[was & ~alive], here[alive & ~was]


def _apply_batch(
    graph: PersistentGraph,
    epoch: int,
    removed: Shorts,
    inserted: Shorts,
    prover: IncrementalProver | ConcurrentProver | None,
    method: str = "auto",
    last: bool = False,
) -> BatchResult:
    if prover is None:
        graph.counted = None  # without a prover the counts become stale
        return graph.apply_batch(removed, inserted, method, last=last)
    prover.before_batch(removed, inserted)
    with occupy_core():
        done = graph.apply_batch(removed, inserted, method)
    prover.after_batch(epoch)
    return done


def _apply_batches(
    graph: PersistentGraph,
    steps: Iterator[Batch],
    method: str,
    final: int | None,
    size: WindowSize,
    prover: IncrementalProver | None = None,
) -> ReplayResult:
    """Apply the batches. final: the epoch after which the graph will not be used, or None."""
    if prover is not None:
        prover.start_window()
    epochs: list[int] = []
    parts: list[BatchResult] = []
    made: list[ReplayStep] = []
    with _prove_beside(prover, size) as follower:
        began = perf_counter()
        for epoch, removed, inserted in steps:
            done = _apply_batch(graph, epoch, removed, inserted, follower, method, last=epoch == final)
            parts.append(done)
            epochs.append(epoch)
            effort, seconds = done.effort, round(perf_counter() - began, 6)
            made.append(ReplayStep(epoch, inserted.size, removed.size, done.edges.size, *effort, seconds))
            began = perf_counter()
    changes = _collect_changes(graph, np.array(epochs, np.int64), parts)
    return ReplayResult(changes, made, graph, None if prover is None else prover.get_proof())


def _prove_beside(
    prover: IncrementalProver | None, size: WindowSize
) -> AbstractContextManager[IncrementalProver | ConcurrentProver | None]:
    """Return the prover, or one in a thread of its own where there is a core for it, and enough to do beside it."""
    if prover is None or allowed_threads() < 2 or size.epochs < MANY_EPOCHS:
        return nullcontext(prover)
    if size.events * WORTH_A_COPY < prover.graph.used.edges:
        return nullcontext(prover)
    return ConcurrentProver(prover)


def _distinct_pairs(a: Ints, b: Ints) -> tuple[Ints, Ints, Shorts]:
    """Return the distinct pairs in order, and the pair of each row."""
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    new = np.ones(a.size, np.bool_)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    place = np.empty(a.size, np.int32)
    place[order] = np.cumsum(new, dtype=np.int32) - np.int32(1)
    return a[new], b[new], place


def _distinct_pairs_of_vertices(u: Shorts, v: Shorts) -> tuple[Shorts, Shorts, Shorts]:
    """Return the distinct pairs of int32 in order, and the pair of each row."""
    key = _pair_key(u, v)
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = np.ones(key.size, np.bool_)
    new[1:] = key[1:] != key[:-1]
    pair = np.empty(key.size, np.int32)
    pair[order] = np.cumsum(new, dtype=np.int32) - np.int32(1)
    key = key[new]
    return (key >> 32).astype(np.int32), (key & 0xFFFFFFFF).astype(np.int32), pair


def _pair_key(u: NDArray[np.integer], v: NDArray[np.integer]) -> Ints:
    return u.astype(np.int64) << 32 | v


def _levels_before(
    vertices: Ints,
    u: Shorts,
    v: Shorts,
    ea: Ints,
    eb: Ints,
    ek: NDArray[np.integer],
    alive: NDArray[np.bool_],
    first: int,
) -> Shorts:
    """Return kappa of each pair at first - 1, -1 if absent.

    Raises:
        ValueError: the edges with a known kappa are not the edges alive.
    """
    level = np.full(u.size, -1, np.int32)
    eu, ev = np.searchsorted(vertices, ea), np.searchsorted(vertices, eb)
    known, key = _pair_key(u, v), _pair_key(eu, ev)
    place = np.minimum(np.searchsorted(known, key), max(known.size - 1, 0))
    if key.size:
        met = np.zeros(key.size, np.bool_)
        if known.size:
            met = (known[place] == key) & (vertices[u[place]] == ea) & (vertices[v[place]] == eb)
        if not met.all():
            i = int(np.argmin(met))
            raise ValueError(f"edge ({ea[i]}, {eb[i]}) has a trussness before epoch {first}, but no interval then")
        level[place] = ek - 2
    wrong = np.flatnonzero(alive != (level >= 0))
    if wrong.size:
        i = wrong[0]
        edge = f"({vertices[u[i]]}, {vertices[v[i]]})"
        if alive[i]:
            raise ValueError(f"edge {edge} is alive just before epoch {first}, but its trussness is not given")
        raise ValueError(f"edge {edge} is not alive just before epoch {first}, but its trussness is given")
    return level


def _interval_events(edge: Shorts, start: Ints, until: Ints, first: int, last: int) -> tuple[Ints, Shorts, Shorts]:
    """Return (epoch, edge, +1 or -1) of every beginning and end within first..last, by epoch."""
    comes, goes = (start >= first) & (start <= last), until <= last
    at = np.concatenate([start[comes], until[goes]])
    order = np.argsort(at, kind="stable")
    sign = np.ones(at.size, np.int32)
    sign[int(comes.sum()) :] = -1
    return at[order], np.concatenate([edge[comes], edge[goes]])[order], sign[order]


def _collect_changes(graph: PersistentGraph, epochs: Ints, parts: list[BatchResult]) -> TrussnessChanges:
    if not parts:
        none, short = np.empty(0, np.int64), np.empty(0, np.int32)
        return TrussnessChanges(none, none, none, short, short)
    edges = np.concatenate([done.edges for done in parts])
    before, after = (np.concatenate([done[side] for done in parts]) for side in (1, 2))
    return TrussnessChanges(
        *graph.edge_ends(edges),
        np.repeat(epochs, [done.edges.size for done in parts]),
        np.where(before < 0, 0, before + 2).astype(np.int32),
        np.where(after < 0, 0, after + 2).astype(np.int32),
    )
