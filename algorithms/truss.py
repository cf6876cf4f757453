"""The trussness of every edge, maintained epoch by epoch: the Spark side of `kernels/`.

Law      At every epoch of the replay, the stored trussness equals a full peel of that epoch's graph (law 4). Trussness
         is not linear, so the epochs are replayed in order, from the earliest changed one to the frontier. The replay
         starts from the state just before it: the sum of the stored diffs, or a state that an earlier run has left.
Shapes   Edges: a, b, epoch, until, diff: signed validity intervals. Trussness: diff triples a, b, k, epoch, diff.
         Result: the difference of such triples from the stored ones, and one row per replayed epoch with diff 0 and a
         JSON `note` (what the epoch's maintenance did). If a proof is requested and one task does the work, a row of
         k = `PROOF` has the proof as its note (`algorithms.proof_records`). A task that cannot write the graph into
         files leaves rows with a `CERTIFICATE`, one for each edge, and one row of k = `LEFT` (`checkpoint_rows`).
Plans    resume   From the graph cache of the parent's run (`kernels/persistent_graph`): the task receives the changes,
                  and time follows the change, except for opening and saving the files. If the cache is missing or
                  does not fit:
         state    From the checkpoint that the parent's run has left in a table (`SavedCheckpointRows`) because its
                  task did not see the files: all edges with their certificates, which replace a peel.
         replay   In one task, if at most `limit_edges` intervals are alive in the replayed range: the task receives
                  them and the stored trussness, some 200 bytes for each edge at the peak. Time is that of the
                  kernels.
         parts    Beyond the limit: in partitions that exchange messages (`truss_bsp`). If an earlier run has left a
                  certificate of each edge, a small change needs no partitions (`truss_local_update`).
Source   reference/truss of the design; Cohen 2008; Wang, Cheng 2012; Huang et al. 2014; Zhang, Yu 2019.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms import truss_bsp
from algorithms.bsp import RoundStore
from algorithms.fingerprint import Fingerprint
from algorithms.graph_cache_task import (
    CHUNK,
    INTERVAL,
    CachedGraph,
    GraphCacheLocation,
    Task,
    absent_result,
    consume_columns,
    resume_task,
    run_in_one_task,
    split_moved,
    split_rows,
    tag_rows,
)
from algorithms.kernels.intervals import Longs, consolidate, make_disjoint, to_longs
from algorithms.kernels.persistent_graph import PersistentGraph, StateMismatch, TrussCertificate
from algorithms.kernels.replay import ReplayResult, TrussnessChanges, prepare_replay, resume_replay, run_replay
from algorithms.proof_records import ProofScope, ProvedState
from algorithms.time_lattice import FOREVER

PROOF, LEFT = 1, -1  # values of k that are no trussness of an edge
GIVEN = ["mark", *"abcdefg"]  # the input of a task that goes on from a state: three kinds of rows in the same columns
TRIPLE, CERTIFICATE = ["a", "b", "k", "epoch", "diff"], [*TrussCertificate._fields[1:]]
SCHEMA = ", ".join([*(f"{name} bigint" for name in (*TRIPLE, *CERTIFICATE)), "note string"])


def trussness_changes(
    edges: DataFrame,
    trussness: DataFrame,
    first: int,
    last: int,
    limit_edges: int | None = None,
    say: truss_bsp.Say = lambda epoch, text: None,
    keep: tuple[GraphCacheLocation, str] | None = None,
    ask: ProofScope | None = None,
    rounds: RoundStore | None = None,
    part_edges: int | None = None,
    leave: int | None = None,
) -> DataFrame:
    """Return the difference between the trussness replayed over epochs `first`..`last` and the stored one at these
    epochs.

    EXECUTES if there is a limit: a count of the intervals, and beyond the limit all rounds.

    Args:
        edges: all signed intervals as they are now.
        trussness: the stored triples.
        first: the first epoch to replay.
        last: the last epoch to replay.
        limit_edges: the greatest number of intervals that one task replays. None: no limit.
        say: takes the progress of the rounds: an epoch and a text.
        keep: where the task writes the graph cache as of `last`, and under what key.
        ask: prove every epoch, and this part of the graph.
        rounds: the store of the results of rounds.
        part_edges: the greatest number of edges that each of many tasks holds, if it is not `limit_edges`.
        leave: if the task does not see the place of `keep`, it leaves every edge's certificate instead
            (`checkpoint_rows`) of a graph with at least so many edges.

    Raises:
        ValueError: the edges, or the edges and the stored trussness, contradict each other. The task may raise it, too.
    """
    # Clipped to the window: outside of it the sums would lack the signed intervals that are left out.
    alive = edges.where((F.col("until") >= first) & (F.col("epoch") <= last))
    start = F.greatest("epoch", F.lit(first - 1)).alias("epoch")
    until = F.when(F.col("until") > last, FOREVER).otherwise(F.col("until")).alias("until")
    alive = alive.select("a", "b", start, until, "diff")
    stored = trussness.where(F.col("epoch") <= last).select("a", "b", "k", "epoch", "diff")
    if limit_edges is not None and alive.count() > limit_edges:
        return truss_bsp.trussness_changes(alive, stored, first, last, part_edges or limit_edges, say, rounds)
    zero = F.lit(0).cast("bigint")  # no edge has trussness 0: this tells the intervals from the stored triples
    both = alive.withColumn("k", zero).unionByName(stored.withColumn("until", zero))
    return both.coalesce(1).mapInArrow(_replay_task(first, last, keep, ask, leave), SCHEMA)


@dataclass(frozen=True)
class SavedCheckpointRows:
    """The checkpoint that a task has left of the graph after the last epoch.

    rows: a, b, level (kappa), label, own, backing, diff: every edge with its certificate if the checkpoint is made
    `anew`, otherwise the changes of these. ends: the labels at which the next edges are put at the front and at the
    back.
    """

    rows: DataFrame
    ends: tuple[int, int]
    anew: bool


def result_triples(changes: DataFrame) -> DataFrame:
    """Return the triples and notes of a result, without the rows of a checkpoint."""
    if "label" not in changes.columns:  # a result of partitions, or of a region
        return changes
    return changes.where("label IS NULL").drop(*CERTIFICATE)


def checkpoint_rows(changes: DataFrame, note: str) -> SavedCheckpointRows:
    """Return the checkpoint in a result, by the note of its row whose k is `LEFT`."""
    rows = changes.where("label IS NOT NULL").select("a", "b", (F.col("k") - 2).alias("level"), *CERTIFICATE, "diff")
    front, back, anew = json.loads(note)
    return SavedCheckpointRows(rows, (front, back), anew)


def resumed_changes(
    edges: DataFrame,
    trussness: DataFrame,
    kept: CachedGraph,
    first: int,
    last: int,
    keep: str,
    ask: ProofScope | None = None,
) -> DataFrame:
    """Return trussness changes computed from the graph cache; the task stores the new cache under `keep`.

    If the cache is missing or does not fit, the result is one row with an epoch of null and the reason as its note
    (`graph_cache_task.absent_reason`).

    Args:
        edges: the intervals that begin or end within `first`..max(`kept.at`, `last`), and `fresh`: those that the
            cached graph has not seen. Further intervals do no harm.
        trussness: the stored triples from `first` on.
        kept: the cached graph.
        first: the first epoch of the result.
        last: the last epoch of the result.
        keep: the key of the new cache.
        ask: prove every epoch, and this part of the graph.
    """
    zero = F.lit(0).cast("bigint")
    stored = trussness.where(F.col("epoch").between(first, last)).select("a", "b", "k", "epoch", "diff")
    both = edges.select("a", "b", "epoch", "until", "diff", "fresh", zero.alias("k"))
    both = both.unionByName(stored.select("*", zero.alias("until"), F.lit(False).alias("fresh")))
    return both.coalesce(1).mapInArrow(_resume_task(kept, first, last, keep, ask), SCHEMA)


def restored_changes(
    edges: DataFrame,
    trussness: DataFrame,
    state: DataFrame,
    *,
    ends: tuple[int, int],
    counted: ProvedState,
    at: int,
    first: int,
    last: int,
    keep: tuple[GraphCacheLocation, str] | None = None,
    ask: ProofScope | None = None,
) -> DataFrame:
    """Return trussness changes computed from the checkpoint that an earlier task has left of the graph at epoch `at`.

    If the task does not see the place of `keep`, it leaves the change of the checkpoint in turn. If the checkpoint does
    not fit, the result is that of `resumed_changes` without a cache.

    Args:
        edges: as in `resumed_changes`.
        trussness: as in `resumed_changes`.
        state: all rows of the checkpoint so far, whose diffs are summed. They take about twice as many bytes in the
            task as a replay.
        ends: the labels at which the next edges are put at the front and at the back.
        counted: the fingerprints and counts of the graph at epoch `at`.
        at: the epoch of the checkpoint.
        first: the first epoch of the result.
        last: the last epoch of the result.
        keep: where the task writes the graph cache, and under what key.
        ask: prove every epoch, and this part of the graph.
    """
    stored = trussness.where(F.col("epoch").between(first, last))
    rows = tag_rows(edges, GIVEN, 0, *INTERVAL, "fresh").unionByName(tag_rows(stored, GIVEN, 1, *TRIPLE))
    rows = rows.unionByName(tag_rows(state, GIVEN, 2, "a", "b", "level", *CERTIFICATE, "diff"))
    return rows.coalesce(1).mapInArrow(_restore_task(ends, counted, at, first, last, keep, ask), SCHEMA)


def _replay_task(
    first: int,
    last: int,
    keep: tuple[GraphCacheLocation, str] | None = None,
    ask: ProofScope | None = None,
    leave: int | None = None,
) -> Task:
    def replay_rows(parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        kept = keep is not None and keep[0].is_here()
        # Statement by statement the graph replaces the rows: at no time are all of both in memory.
        a, b, epoch, until, diff, k = consume_columns(parts, [*INTERVAL, "k"])
        edge = k == 0
        intervals, stored = [x[edge] for x in (a, b, epoch, until, diff)], [x[~edge] for x in (a, b, k, epoch, diff)]
        del a, b, k, epoch, until, diff, edge
        before, later = _split_before(stored, first)
        del stored
        alive = make_disjoint(*intervals)
        del intervals
        start = prepare_replay(*alive, *before, first, last, kept)
        del alive, before
        result = run_replay(start, ask=ask)
        del start
        if kept and keep is not None:
            _save_graph(result, *keep, last)
        elif leave is not None:
            yield from _checkpoint_changes(result, least=leave)
        change, notes = result.changes, _result_notes(result)
        del result
        yield _change_triples(change, notes, later)

    return run_in_one_task(replay_rows)


def _split_before(stored: list[Longs], first: int) -> tuple[tuple[Longs, Longs, Longs], list[Longs]]:
    """Return the edges and their trussness just before an epoch, and the triples from it on."""
    *triples, epoch, diff = stored
    earlier = epoch < first
    a, b, k, present = consolidate([column[earlier] for column in triples], diff[earlier])
    assert (present == 1).all(), "the stored trussness holds an edge twice"
    return (a, b, k), [column[~earlier] for column in stored]


def _resume_task(kept: CachedGraph, first: int, last: int, keep: str, ask: ProofScope | None) -> Task:
    def resume_graph(graph: PersistentGraph, rows: pa.Table) -> pa.Table:
        edges, stored = split_rows(rows, "k")
        result = resume_replay(graph, kept.at, *split_moved(edges), first, last, ask)
        _save_graph(result, kept.files, keep, last)
        return _change_triples(result.changes, _result_notes(result), to_longs(stored, TRIPLE))

    return resume_task(kept, [*TRIPLE, *CERTIFICATE], resume_graph)


def _save_graph(result: ReplayResult, files: GraphCacheLocation, key: str, at: int) -> None:
    """Save the graph cache, unless the graph was proved wrong.

    If there is no room for it (a full disk) the next run begins from the tables.
    """
    if result.proof is not None and result.proof.wrong:
        return
    with contextlib.suppress(OSError):
        result.graph.save_graph(files.folder, key, at=at)


def _restore_task(
    ends: tuple[int, int],
    counted: ProvedState,
    at: int,
    first: int,
    last: int,
    keep: tuple[GraphCacheLocation, str] | None,
    ask: ProofScope | None,
) -> Task:
    def restore_graph(parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        mark, *columns = consume_columns(parts, GIVEN)
        intervals, stored, rows = ([column[mark == kind] for column in columns] for kind in range(3))
        del mark, columns
        a, b, epoch, until, diff, fresh, _ = intervals
        try:
            graph = _graph_from_checkpoint(rows, ends, counted)
            rows.clear()
            before = graph.copy_certificate()
            result = resume_replay(graph, at, (a, b, epoch, until, diff), fresh == 0, first, last, ask)
            if result.proof is not None and result.proof.wrong:
                raise StateMismatch(f"{result.proof.wrong:,} edges are wrong by the proof")
        except StateMismatch as error:
            yield absent_result([*TRIPLE, *CERTIFICATE], f"the checkpoint of the run before does not fit: {error}")
            return
        if keep is not None and keep[0].is_here():
            _save_graph(result, *keep, last)
        else:
            yield from _checkpoint_changes(result, before)
        yield _change_triples(result.changes, _result_notes(result), stored[: len(TRIPLE)])

    return run_in_one_task(restore_graph)


def _graph_from_checkpoint(rows: list[Longs], ends: tuple[int, int], counted: ProvedState) -> PersistentGraph:
    *columns, diff = consolidate(rows[:-1], rows[-1])
    a, b, level, label, own, backing = columns
    if (diff != 1).any() or Fingerprint.from_rows([a, b, level + 2]) != counted.prints["trussness"]:
        raise StateMismatch("its trussness is not the stored one")
    if own.sum() != counted.counts.triangles:  # each triangle counts as `own` of exactly one edge
        raise StateMismatch("its triangles are not those that were counted")
    short = (column.astype(np.int32) for column in (level, own, backing))
    values = dict(zip(("level", "own", "backing"), short, strict=True))
    return PersistentGraph.from_checkpoint(a, b, TrussCertificate(label=label, **values), ends, counted)


def _checkpoint_changes(
    result: ReplayResult, before: TrussCertificate | None = None, least: int = 0
) -> Iterator[pa.Table]:
    """Yield the rows of `checkpoint_rows`: the changes of the certificates, or all certificates.

    All are written if most have changed, or if there was no checkpoint before and the graph has at least `least` edges.
    Nothing is written if the graph was proved wrong or has no counts.
    """
    graph = result.graph
    if graph.counted is None or result.proof is None or result.proof.wrong:
        return
    now = graph.copy_certificate()
    exists = now.level >= 0
    pieces = [(exists, now, 1)]
    if before is None and exists.sum() < least:
        return
    if before is not None and 2 * (moved := now.differs_from(before)).sum() <= exists.sum():
        pieces = [(moved[: before.level.size] & (before.level >= 0), before, -1), (moved & exists, now, 1)]
    for chosen, values, diff in pieces:
        edges = np.flatnonzero(chosen).astype(np.int32)
        for chunk in (edges[at : at + CHUNK] for at in range(0, edges.size, CHUNK)):
            a, b = graph.edge_ends(chunk)
            level, *others = (column.astype(np.int64) for column in (*values.for_edges(chunk),))
            named = dict(zip(CERTIFICATE, others, strict=True))
            yield _result_table(a=a, b=b, k=level + 2, epoch=np.zeros_like(a), diff=np.full_like(a, diff), **named)
    yield _note_table([(LEFT, 0, json.dumps([*graph.label_bounds, len(pieces) == 1]))])


def _note_table(notes: list[tuple[int, int, str]]) -> pa.Table:
    """Return rows of k, epoch and note."""
    zero = np.zeros(len(notes), np.int64)
    numbers = (np.array([note[place] for note in notes], np.int64) for place in (0, 1))
    named = dict(zip(("k", "epoch"), numbers, strict=True))
    return _result_table(a=zero, b=zero, diff=zero, **named, note=[note for *_, note in notes])


def _result_table(**columns: Longs | list[str]) -> pa.Table:
    """Return rows of `SCHEMA`; the columns that are not named are null."""
    size = len(next(iter(columns.values())))
    nulls = {name: pa.nulls(size, pa.int64()) for name in (*TRIPLE, *CERTIFICATE)} | {
        "note": pa.nulls(size, pa.string())
    }
    return pa.table({name: columns.get(name, null) for name, null in nulls.items()})


def _result_notes(result: ReplayResult) -> list[tuple[int, int, str]]:
    """Return k, epoch and note for each replayed epoch, and for the proof."""
    notes = [(0, step.epoch, json.dumps(step._asdict())) for step in result.steps]
    return notes if result.proof is None else [*notes, (PROOF, 0, result.proof.to_json())]


def _change_triples(change: TrussnessChanges, notes: list[tuple[int, int, str]], stored: list[Longs]) -> pa.Table:
    """Return the changes as triples minus the stored ones of the same epochs, and the notes."""
    sa, sb, sk, se, sd = stored
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
    summed = dict(zip(TRIPLE, consolidate(triples, diffs), strict=True))
    return pa.concat_tables([_result_table(**summed), _note_table(notes)])


@dataclass(frozen=True)
class ReplaySummary:
    """A summary of the notes of the replayed epochs.

    methods: how often each was chosen; inserted, deleted: numbers of edges; looked_at: how often maintenance looked at
    the triangles of an edge; rounds: those of partitions, 0 if one task replays; seconds: the time of the kernels or
    the rounds.
    """

    methods: Mapping[str, int]
    inserted: int
    deleted: int
    looked_at: int
    rounds: int
    seconds: float


def summarize_notes(notes: Iterable[str]) -> ReplaySummary:
    """Summarize the notes that a replay returned, one for each epoch."""
    read = [json.loads(note) for note in notes]

    def sum_notes(name: str) -> int:
        return sum(note.get(name, 0) for note in read)

    return ReplaySummary(
        methods=Counter(note["method"] for note in read),
        inserted=sum_notes("inserted"),
        deleted=sum_notes("deleted"),
        looked_at=sum_notes("evaluations"),
        rounds=sum_notes("rounds"),
        seconds=round(float(sum_notes("seconds")), 4),
    )
