"""The trussness of every edge, maintained per epoch: the Spark side of `kernels/`.

Law      At every epoch of the replay, the stored trussness equals a full peel of that epoch's graph (law 4). Trussness
         is not linear, so the epochs are replayed in order, from the earliest changed one to the frontier, starting
         from the state just before it: the one that the diffs give, or one that an earlier run has kept in files.
Shapes   Edges: a, b, epoch, until, diff: signed validity intervals. Trussness: diff triples a, b, k, epoch, diff.
         Result: the same triples, as the difference to those stored, and one row per replayed epoch with diff 0 and
         a JSON `note` (what the epoch's maintenance did). Where a proof was asked for, and one task did the work, a
         row of k = `PROOF` has it as its note (`algorithms.proof`). What a task leaves that cannot keep the graph in
         files are rows with a `CERTIFICATE`, one for each edge, and one of k = `LEFT` (`left`).
Plans    resume   From the graph that the parent's run has kept (`kernels/warm`): the task gets what changed, and time
                  follows the change but for opening and saving the files. Without such a graph, or if it does not fit:
         replay   One task while no more than `limit_edges` intervals are alive in the replayed range: they and the
                  stored trussness are brought together there, some 195 bytes an edge at the peak. Time is that of
                  the kernels.
         parts    Beyond the limit: parts that settle for themselves and tell each other (`truss_parts`). Where a run
                  before has left each edge's certificate, a small change needs none of them, nor a peel
                  (`truss_region`).
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
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms import truss_parts
from algorithms.kept import CHUNK, INTERVAL, Files, Kept, Task, apart, in_task, moved, resuming, taken
from algorithms.kernels.intervals import Longs, consolidate, disjoint, longs
from algorithms.kernels.levels import BACK, FRONT
from algorithms.kernels.replay import Changes, Result, prepared, replayed, resume
from algorithms.kernels.warm import Warm
from algorithms.parts import Rounds
from algorithms.proof import Ask
from algorithms.times import FOREVER

PROOF, LEFT = 1, -1  # no edge has this trussness
TRIPLE, CERTIFICATE = ["a", "b", "k", "epoch", "diff"], ["label", "own", "backing"]
SCHEMA = ", ".join([*(f"{name} bigint" for name in (*TRIPLE, *CERTIFICATE)), "note string"])


def trussness_changes(
    edges: DataFrame,
    trussness: DataFrame,
    first: int,
    last: int,
    limit_edges: int | None = None,
    say: truss_parts.Say = lambda epoch, text: None,
    keep: tuple[Files, str] | None = None,
    ask: Ask | None = None,
    rounds: Rounds | None = None,
    part_edges: int | None = None,
    leave: int | None = None,
) -> DataFrame:
    """Difference between the trussness replayed over epochs `first`..`last` and the stored one there.

    `edges`: all signed intervals as they are now; `trussness`: the stored triples. See the head of this file.
    `limit_edges`: the most intervals that one task replays; None: no limit. EXECUTES with a limit: their count, and
    beyond it all rounds, of which `say` hears and whose results lie in `rounds`; `part_edges`: the most that each of
    many tasks holds, if not the same. `keep`: where the task keeps the graph as it is after `last`, and under what key.
    `leave`: where it does not see that place, it leaves every edge's certificate instead (`left`) of a graph with so
    many edges, or more. `ask`: prove every epoch. ValueError, in the task or here, when the
    edges, or the edges and the stored trussness, contradict each other.
    """
    # Clipped to the window: outside of it the signed intervals left out would be missed.
    alive = edges.where((F.col("until") >= first) & (F.col("epoch") <= last))
    start = F.greatest("epoch", F.lit(first - 1)).alias("epoch")
    until = F.when(F.col("until") > last, FOREVER).otherwise(F.col("until")).alias("until")
    alive = alive.select("a", "b", start, until, "diff")
    stored = trussness.where(F.col("epoch") <= last).select("a", "b", "k", "epoch", "diff")
    if limit_edges is not None and alive.count() > limit_edges:
        return truss_parts.trussness_changes(alive, stored, first, last, part_edges or limit_edges, say, rounds)
    zero = F.lit(0).cast("bigint")  # no edge has trussness 0: this tells the intervals from the stored triples
    both = alive.withColumn("k", zero).unionByName(stored.withColumn("until", zero))
    return both.coalesce(1).mapInArrow(_replay(first, last, keep, ask, leave), SCHEMA)


@dataclass(frozen=True)
class Left:
    """What a task has left of the graph after the last epoch, as `truss_region.State` has it, with a diff of 1."""

    rows: DataFrame
    ends: tuple[int, int]


def triples(changes: DataFrame) -> DataFrame:
    """A result's triples and notes, without what is left besides."""
    if "label" not in changes.columns:  # of parts, or of a region
        return changes
    return changes.where("label IS NULL").drop(*CERTIFICATE)


def left(changes: DataFrame, note: str) -> Left:
    """What is left besides, by the note of the row whose k is `LEFT`."""
    rows = changes.where("label IS NOT NULL").select("a", "b", (F.col("k") - 2).alias("level"), *CERTIFICATE, "diff")
    front, back = json.loads(note)
    return Left(rows, (front, back))


def resumed_changes(
    edges: DataFrame, trussness: DataFrame, kept: Kept, first: int, last: int, keep: str, ask: Ask | None = None
) -> DataFrame:
    """The same from a graph that is kept, to be kept under `keep`.

    `edges`: the intervals that begin or end within `first`..max(`kept.at`, `last`), others do no harm, and `fresh`:
    those that the kept graph has not seen; `trussness`: the stored triples from `first` on. The result is one row with
    an epoch of null, and the reason as its note, when the graph is not there any more or does not fit (`kept.absent`).
    """
    zero = F.lit(0).cast("bigint")
    stored = trussness.where(F.col("epoch").between(first, last)).select("a", "b", "k", "epoch", "diff")
    both = edges.select("a", "b", "epoch", "until", "diff", "fresh", zero.alias("k"))
    both = both.unionByName(stored.select("*", zero.alias("until"), F.lit(False).alias("fresh")))
    return both.coalesce(1).mapInArrow(_resume(kept, first, last, keep, ask), SCHEMA)


def _replay(
    first: int, last: int, keep: tuple[Files, str] | None = None, ask: Ask | None = None, leave: int | None = None
) -> Task:
    def changes(parts: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        kept = keep is not None and keep[0].there()
        # Statement by statement the graph takes the place of the rows: at no time is all of both there.
        a, b, epoch, until, diff, k = taken(parts, [*INTERVAL, "k"])
        edge = k == 0
        intervals, stored = [x[edge] for x in (a, b, epoch, until, diff)], [x[~edge] for x in (a, b, k, epoch, diff)]
        del a, b, k, epoch, until, diff, edge
        before, later = _before(stored, first)
        del stored
        alive = disjoint(*intervals)
        del intervals
        start = prepared(*alive, *before, first, last, kept)
        del alive, before
        result = replayed(start, ask=ask)
        del start
        if kept and keep is not None:
            _save(result, *keep, last)
        elif leave is not None:
            yield from _left(result, leave)
        change, notes = result.changes, _notes(result)
        del result
        yield _triples(change, notes, later)

    return in_task(changes)


def _before(stored: list[Longs], first: int) -> tuple[tuple[Longs, Longs, Longs], list[Longs]]:
    """The edges and their trussness just before an epoch; the triples from it on."""
    *triples, epoch, diff = stored
    earlier = epoch < first
    a, b, k, present = consolidate([column[earlier] for column in triples], diff[earlier])
    assert (present == 1).all(), "the stored trussness holds an edge twice"
    return (a, b, k), [column[~earlier] for column in stored]


def _resume(kept: Kept, first: int, last: int, keep: str, ask: Ask | None) -> Task:
    def changes(graph: Warm, rows: pa.Table) -> pa.Table:
        edges, stored = apart(rows, "k")
        result = resume(graph, kept.at, *moved(edges), first, last, ask)
        _save(result, kept.files, keep, last)
        return _triples(result.changes, _notes(result), longs(stored, TRIPLE))

    return resuming(kept, [*TRIPLE, *CERTIFICATE], changes)


def _save(result: Result, files: Files, key: str, at: int) -> None:
    """Keep the graph, unless it was proved wrong; without a place for it (a full disk) the next run begins from the
    tables."""
    if result.proof is not None and result.proof.wrong:
        return
    with contextlib.suppress(OSError):
        result.graph.save(files.folder, key, at=at)


def _left(result: Result, least: int) -> Iterator[pa.Table]:
    """Every edge with its certificate, as `left` takes it, if they are so many; nothing where the graph was proved
    wrong, or nobody has counted what a certificate says."""
    graph = result.graph
    levels, counted = graph.levels, graph.counted
    edges = np.flatnonzero(levels.level >= 0).astype(np.int32)
    if counted is None or edges.size < least or result.proof is None or result.proof.wrong:
        return
    certificate = levels.label, counted.own, counted.backing
    for some in (edges[at : at + CHUNK] for at in range(0, edges.size, CHUNK)):
        a, b = graph.ends(some)
        values: list[NDArray[np.integer]] = [levels.level[some] + 2, *(column[some] for column in certificate)]
        named = {name: x.astype(np.int64) for name, x in zip(("k", *CERTIFICATE), values, strict=True)}
        yield _table(a=a, b=b, diff=np.ones(some.size, np.int64), **named)
    yield _noted([(LEFT, 0, json.dumps([int(levels.clock[FRONT]), int(levels.clock[BACK])]))])


def _noted(notes: list[tuple[int, int, str]]) -> pa.Table:
    """k, epoch, note."""
    zero = np.zeros(len(notes), np.int64)
    numbers = (np.array([note[place] for note in notes], np.int64) for place in (0, 1))
    named = dict(zip(("k", "epoch"), numbers, strict=True))
    return _table(a=zero, b=zero, diff=zero, **named, note=[note for *_, note in notes])


def _table(**columns: Longs | list[str]) -> pa.Table:
    """Rows of `SCHEMA`; the columns that are not named are null."""
    size = len(next(iter(columns.values())))
    nulls = {name: pa.nulls(size, pa.int64()) for name in (*TRIPLE, *CERTIFICATE)} | {
        "note": pa.nulls(size, pa.string())
    }
    return pa.table({name: columns.get(name, null) for name, null in nulls.items()})


def _notes(result: Result) -> list[tuple[int, int, str]]:
    """k, epoch, note."""
    notes = [(0, step.epoch, json.dumps(step._asdict())) for step in result.steps]
    return notes if result.proof is None else [*notes, (PROOF, 0, result.proof.to_json())]


def _triples(change: Changes, notes: list[tuple[int, int, str]], stored: list[Longs]) -> pa.Table:
    """The changes as triples less the stored ones of the same epochs, and the notes."""
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
    found = dict(zip(TRIPLE, consolidate(triples, diffs), strict=True))
    return pa.concat_tables([_table(**found), _noted(notes)])


@dataclass(frozen=True)
class Summary:
    """What the replayed epochs' notes say together.

    `methods`: how often each was chosen; `inserted`, `deleted`: edges; `looked_at`: how often an edge's triangles were,
    by maintenance; `rounds`: of parts, 0 where one task replays; `seconds`: of the kernels or the rounds.
    """

    methods: Mapping[str, int]
    inserted: int
    deleted: int
    looked_at: int
    rounds: int
    seconds: float


def summary(notes: Iterable[str]) -> Summary:
    """Of the notes that a replay returned, one of each epoch."""
    read = [json.loads(note) for note in notes]

    def total(name: str) -> int:
        return sum(note.get(name, 0) for note in read)

    return Summary(
        methods=Counter(note["method"] for note in read),
        inserted=total("inserted"),
        deleted=total("deleted"),
        looked_at=total("evaluations"),
        rounds=total("rounds"),
        seconds=round(float(total("seconds")), 4),
    )
