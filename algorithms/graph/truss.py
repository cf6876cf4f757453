"""The trussness of every edge, maintained epoch by epoch in one task: the Spark side of `kernels/`.

Law      At every epoch of the replay, the stored trussness equals a full peel of that epoch's graph (law 4). Trussness
         is not linear, so the epochs are replayed in order, from the earliest changed one to the frontier. The replay
         starts from the state just before it: the sum of the stored diffs, or a state that an earlier run has left.
Shapes   Edges: a, b, epoch, until, diff: signed validity intervals. Trussness: diff triples a, b, k, epoch, diff.
         Result: rows of several kinds (`tagged_rows.RESULT`), which `truss_plan.read_result` reads: the difference of
         such triples from the stored ones; a JSON note for each replayed epoch; the proof, if one is requested. A task
         that cannot write the graph into files leaves every edge's certificate.
Plans    resume   From the graph cache of the parent's run (`kernels/persistent_graph`): the task receives the changes,
                  and time follows the change, except for opening and saving the files. If the cache is missing or
                  does not fit:
         restore  From the checkpoint that the parent's run has left in a table because its task did not see the
                  files: all edges with their certificates, which replace a peel.
         replay   In one task, if it can hold the intervals that are alive in the replayed range: the task receives
                  them and the stored trussness, some 200 bytes for each edge at the peak. Time is that of the
                  kernels.
         Beyond one task's memory there are `truss_bsp`, in partitions that exchange messages, and
         `truss_local_update`, if an earlier run has left a certificate of each edge and the change is small.
Source   reference/truss of the design; Cohen 2008; Wang, Cheng 2012; Huang et al. 2014; Zhang, Yu 2019.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.fingerprint import Fingerprint
from altneu.algorithms.graph.graph_cache_task import CachedGraph, resume_task, split_fresh
from altneu.algorithms.graph.kernels.intervals import Longs, consolidate, make_disjoint
from altneu.algorithms.graph.kernels.persistent_graph import PersistentGraph, StateMismatch, TrussCertificate
from altneu.algorithms.graph.kernels.replay import (
    ReplayResult,
    ReplayStep,
    TrussnessChanges,
    prepare_replay,
    resume_replay,
    run_replay,
)
from altneu.algorithms.graph.kernels.threads import use_threads
from altneu.algorithms.graph.proof_records import Proof, ProvedState
from altneu.algorithms.graph.tagged_rows import (
    CHUNK,
    INTERVAL,
    RowKind,
    Task,
    compute_in_one_task,
    result_table,
    run_in_one_task,
    tag_rows,
    take_kinds,
)
from altneu.algorithms.graph.truss_plan import TRIPLE, ReplayRequest, TrussCheckpoint

CERTIFICATE = [*TrussCertificate._fields[1:]]
REPLAY, RESUME, RESTORE = 5, 6, 7  # how many numbers a row of each plan's input has


def alive_intervals(edges: DataFrame, request: ReplayRequest) -> DataFrame:
    """Return the intervals that are alive at an epoch of a request, or just before it.

    They are clipped to these epochs: outside of them the sums would lack the signed intervals that are left out.
    """
    first, last = request.first_epoch, request.last_epoch
    alive = edges.where(f"until >= {first} AND epoch <= {last}")
    until = f"if(until > {last}, {FOREVER}L, until) AS until"
    return alive.selectExpr("a", "b", f"greatest(epoch, {first - 1}L) AS epoch", until, "diff")


def replayed_changes(edges: DataFrame, trussness: DataFrame, request: ReplayRequest) -> DataFrame:
    """Return trussness changes computed from the tables.

    Args:
        edges: all signed intervals as they are now.
        trussness: the stored triples.
        request: what is computed.

    Raises:
        ValueError: the task raises it if the edges, or the edges and the stored trussness, contradict each other.
    """
    alive = tag_rows(REPLAY, alive_intervals(edges, request), RowKind.INTERVAL, *INTERVAL)
    stored = tag_rows(REPLAY, trussness.where(f"epoch <= {request.last_epoch}"), RowKind.STORED, *TRIPLE)
    return compute_in_one_task(_replay_task(request), alive, stored)


def resumed_changes(edges: DataFrame, trussness: DataFrame, cached: CachedGraph, request: ReplayRequest) -> DataFrame:
    """Return trussness changes computed from the graph cache; the task stores the next cache as requested.

    Args:
        edges: the intervals that begin or end within `first`..max(`cached.epoch`, `last`), and `fresh`: those that the
            cached graph has not seen. Further intervals do no harm.
        trussness: the stored triples from `first` on.
        cached: the cached graph.
        request: what is computed, with a place for the next cache in the same folder.
    """
    rows = tag_rows(RESUME, edges, RowKind.INTERVAL, *INTERVAL, "fresh")
    stored = trussness.where(f"epoch BETWEEN {request.first_epoch} AND {request.last_epoch}")
    return compute_in_one_task(_resume_task(cached, request), rows, tag_rows(RESUME, stored, RowKind.STORED, *TRIPLE))


def restored_changes(
    edges: DataFrame, trussness: DataFrame, checkpoint: TrussCheckpoint, counted: ProvedState, request: ReplayRequest
) -> DataFrame:
    """Return trussness changes computed from the checkpoint that an earlier task has left.

    If the task does not see the place of the graph cache, it leaves the change of the checkpoint in turn.

    Args:
        edges: as in `resumed_changes`.
        trussness: as in `resumed_changes`.
        checkpoint: all rows so far. They take about twice as many bytes in the task as a replay.
        counted: the fingerprints and counts of the graph at the epoch of the checkpoint.
        request: what is computed.
    """
    stored = trussness.where(f"epoch BETWEEN {request.first_epoch} AND {request.last_epoch}")
    return compute_in_one_task(
        _restore_task(checkpoint.epoch, checkpoint.ends, counted, request),
        tag_rows(RESTORE, edges, RowKind.INTERVAL, *INTERVAL, "fresh"),
        tag_rows(RESTORE, stored, RowKind.STORED, *TRIPLE),
        tag_rows(RESTORE, checkpoint.rows, RowKind.CERTIFICATE, "a", "b", "level", *CERTIFICATE, "diff"),
    )


def _replay_task(request: ReplayRequest) -> Task:
    def replay_rows(parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        in_files = _sees_cache(request)
        # Statement by statement the graph replaces the rows: at no time are all of both in memory.
        intervals, stored = take_kinds(parts, REPLAY, RowKind.INTERVAL, RowKind.STORED)
        before, later = _split_before(stored, request.first_epoch)
        del stored
        alive = make_disjoint(*intervals)
        del intervals
        start = prepare_replay(*alive, *before, request.first_epoch, request.last_epoch, in_files)
        del alive, before
        with use_threads(request.threads):
            result = run_replay(start, ask=request.scope)
        del start
        yield from _leave_graph(result, request, in_files=in_files, least=request.checkpoint_edges)
        change, steps, proof = result.changes, result.steps, result.proof
        del result
        yield from _result_tables(change, steps, proof, later)

    return run_in_one_task(replay_rows)


def _split_before(stored: list[Longs], first: int) -> tuple[tuple[Longs, Longs, Longs], list[Longs]]:
    """Return the edges and their trussness just before an epoch, and the triples from it on."""
    *triples, epoch, diff = stored
    earlier = epoch < first
    a, b, k, present = consolidate([column[earlier] for column in triples], diff[earlier])
    assert (present == 1).all(), "the stored trussness holds an edge twice"
    return (a, b, k), [column[~earlier] for column in stored]


def _resume_task(cached: CachedGraph, request: ReplayRequest) -> Task:
    def resume_graph(graph: PersistentGraph, parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        intervals, stored = take_kinds(parts, RESUME, RowKind.INTERVAL, RowKind.STORED)
        result = _resume_replay(graph, cached.epoch, intervals, request)
        yield from _leave_graph(result, request, in_files=True)
        yield from _result_tables(result.changes, result.steps, result.proof, stored)

    return resume_task(cached, resume_graph)


def _restore_task(at: int, ends: tuple[int, int], counted: ProvedState, request: ReplayRequest) -> Task:
    def restore_graph(parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        intervals, stored, rows = take_kinds(parts, RESTORE, RowKind.INTERVAL, RowKind.STORED, RowKind.CERTIFICATE)
        try:
            graph = _graph_from_checkpoint(rows, ends, counted)
            rows.clear()
            before = graph.copy_certificate()
            result = _resume_replay(graph, at, intervals, request)
            if result.proof is not None and result.proof.wrong:
                raise StateMismatch(f"{result.proof.wrong:,} edges are wrong by the proof")
        except StateMismatch as error:
            yield result_table(RowKind.UNFIT, f"the checkpoint of the run before does not fit: {error}")
            return
        yield from _leave_graph(result, request, in_files=_sees_cache(request), least=0, before=before)
        yield from _result_tables(result.changes, result.steps, result.proof, stored)

    return run_in_one_task(restore_graph)


def _resume_replay(graph: PersistentGraph, at: int, intervals: list[Longs], request: ReplayRequest) -> ReplayResult:
    with use_threads(request.threads):
        return resume_replay(graph, at, *split_fresh(intervals), request.first_epoch, request.last_epoch, request.scope)


def _graph_from_checkpoint(rows: list[Longs], ends: tuple[int, int], counted: ProvedState) -> PersistentGraph:
    *columns, diff = consolidate(rows[:-1], rows[-1])
    a, b, level, label, own, backing = columns
    if (diff != 1).any() or Fingerprint.from_rows([a, b, level + 2]) != counted.prints["trussness"]:
        raise StateMismatch("the checkpoint has another trussness")
    if own.sum() != counted.counts.triangles:  # each triangle counts as `own` of exactly one edge
        raise StateMismatch("the checkpoint has other triangles")
    short = (column.astype(np.int32) for column in (level, own, backing))
    values = dict(zip(("level", "own", "backing"), short, strict=True))
    return PersistentGraph.from_checkpoint(a, b, TrussCertificate(label=label, **values), ends, counted)


def _sees_cache(request: ReplayRequest) -> bool:
    return request.cache is not None and request.cache.files.is_here()


def _leave_graph(
    result: ReplayResult,
    request: ReplayRequest,
    *,
    in_files: bool,
    least: int | None = None,
    before: TrussCertificate | None = None,
) -> Iterator[pa.Table]:
    """Leave the graph for the next run, in files or as the rows of a checkpoint, unless it was proved wrong.

    If there is no room for files (a full disk) the next run begins from the tables. The rows are all certificates, or
    their changes since `before`, if that is less. There are none if the graph has no counts or fewer than `least`
    edges, or if `least` is None.
    """
    graph, cache = result.graph, request.cache
    if result.proof is not None and result.proof.wrong:
        return
    if in_files and cache is not None:
        with contextlib.suppress(OSError):
            graph.save_graph(cache.files.folder, cache.key, at=cache.epoch)
        return
    if graph.counted is None or result.proof is None or least is None:
        return
    now = graph.copy_certificate()
    exists = now.level >= 0
    if exists.sum() < least:
        return
    pieces = [(exists, now, 1)]
    if before is not None and 2 * (moved := now.differs_from(before)).sum() <= exists.sum():
        pieces = [(moved[: before.level.size] & (before.level >= 0), before, -1), (moved & exists, now, 1)]
    for chosen, values, diff in pieces:
        edges = np.flatnonzero(chosen).astype(np.int32)
        for chunk in (edges[at : at + CHUNK] for at in range(0, edges.size, CHUNK)):
            a, b = graph.edge_ends(chunk)
            level, *others = (column.astype(np.int64) for column in values.for_edges(chunk))
            named = dict(zip(CERTIFICATE, others, strict=True))
            yield result_table(RowKind.CERTIFICATE, a=a, b=b, k=level + 2, diff=diff, **named)
    yield result_table(RowKind.CHECKPOINT, json.dumps([*graph.label_bounds, len(pieces) == 1]))


def _result_tables(
    change: TrussnessChanges, steps: list[ReplayStep], proof: Proof | None, stored: list[Longs]
) -> Iterator[pa.Table]:
    """Yield the changes as triples minus the stored ones of the same epochs, the notes of the epochs, and the proof."""
    sa, sb, sk, se, sd = stored[: len(TRIPLE)]
    gone, come = change.before > 0, change.after > 0
    triples: list[Longs] = [
        np.concatenate(parts).astype(np.int64)
        for parts in (
            (change.a[gone], change.a[come], sa),
            (change.b[gone], change.b[come], sb),
            (change.before[gone], change.after[come], sk),
            (change.epoch[gone], change.epoch[come], se),
        )
    ]
    diffs = np.concatenate([-np.ones(gone.sum(), np.int64), np.ones(come.sum(), np.int64), -sd])
    yield result_table(RowKind.CHANGE, **dict(zip(TRIPLE, consolidate(triples, diffs), strict=True)))
    epochs = np.array([step.epoch for step in steps], np.int64)
    yield result_table(RowKind.NOTE, [json.dumps(step._asdict()) for step in steps], epoch=epochs)
    if proof is not None:
        yield result_table(RowKind.PROOF, proof.to_json())
