"""The trussness of every edge, maintained per epoch: the Spark side of `kernels/`.

Law      At every epoch of the replay, the stored trussness equals a full peel of that epoch's graph (law 4). Trussness
         is not linear, so the epochs are replayed in order, from the earliest changed one to the frontier, starting
         from the state that the diffs give just before it.
Shapes   Edges: a, b, epoch, until, diff: signed validity intervals. Trussness: diff triples a, b, k, epoch, diff.
         Result: the same triples, as the difference to those stored, and one row per replayed epoch with diff 0 and
         a JSON `note` (what the epoch's maintenance did).
Cost     One task while no more than `limit_edges` intervals are alive in the replayed range: they and the stored
         trussness are brought together there, about 200 bytes an edge at the peak besides Spark's copies of input and
         output (150 more). Time is that of the kernels. Beyond the limit: rounds of joins (`truss_rounds`).
Source   reference/truss of the design; Cohen 2008; Wang, Cheng 2012; Huang et al. 2014; Zhang, Yu 2019.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from algorithms import truss_rounds
from algorithms.kernels.intervals import Longs, consolidate, disjoint, longs
from algorithms.kernels.replay import replay
from algorithms.times import FOREVER

SCHEMA = "a bigint, b bigint, k bigint, epoch bigint, diff bigint, note string"


def trussness_changes(
    edges: DataFrame,
    trussness: DataFrame,
    first: int,
    last: int,
    limit_edges: int | None = None,
    say: truss_rounds.Say = lambda epoch, text: None,
) -> DataFrame:
    """Difference between the trussness replayed over epochs `first`..`last` and the stored one there.

    `edges`: all signed intervals as they are now; `trussness`: the stored triples. See the head of this file.
    `limit_edges`: the most intervals that one task replays; None: no limit. EXECUTES with a limit: their count, and
    beyond it all rounds, of which `say` hears. ValueError, in the task or here, when the edges, or the edges and the
    stored trussness, contradict each other.
    """
    # Clipped to the window: outside of it the signed intervals left out would be missed.
    alive = edges.where((F.col("until") >= first) & (F.col("epoch") <= last))
    start = F.greatest("epoch", F.lit(first - 1)).alias("epoch")
    until = F.when(F.col("until") > last, FOREVER).otherwise(F.col("until")).alias("until")
    alive = alive.select("a", "b", start, until, "diff")
    stored = trussness.where(F.col("epoch") <= last).select("a", "b", "k", "epoch", "diff")
    if limit_edges is not None and alive.count() > limit_edges:
        return truss_rounds.trussness_changes(alive, stored, first, last, say)
    zero = F.lit(0).cast("bigint")  # no edge has trussness 0: this tells the intervals from the stored triples
    both = alive.withColumn("k", zero).unionByName(stored.withColumn("until", zero))
    return both.coalesce(1).mapInArrow(_replay(first, last), SCHEMA)


def _replay(first: int, last: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = list(batches)
        if parts:
            yield from changes(pa.Table.from_batches(parts)).to_batches(max_chunksize=1 << 20)

    def changes(rows: pa.Table) -> pa.Table:
        interval = pc.equal(rows["k"], 0)
        a, b, start, until = disjoint(*longs(rows.filter(interval), ["a", "b", "epoch", "until", "diff"]))
        sa, sb, sk, se, sd = longs(rows.filter(pc.invert(interval)), ["a", "b", "k", "epoch", "diff"])
        del rows
        earlier = se < first
        ea, eb, ek, present = consolidate([sa[earlier], sb[earlier], sk[earlier]], sd[earlier])
        assert (present == 1).all(), "the stored trussness holds an edge twice"
        result = replay(a, b, start, until, ea, eb, ek.astype(np.int32), first, last)
        change = result.changes
        gone, come = change.before > 0, change.after > 0
        later = ~earlier
        triples: list[Longs] = [
            np.concatenate(parts).astype(np.int64)
            for parts in (
                (change.a[gone], change.a[come], sa[later]),
                (change.b[gone], change.b[come], sb[later]),
                (change.before[gone], change.after[come], sk[later]),
                (change.epoch[gone], change.epoch[come], se[later]),
            )
        ]
        diffs = np.concatenate([-np.ones(gone.sum(), np.int64), np.ones(come.sum(), np.int64), -sd[later]])
        oa, ob, ok, oe, od = consolidate(triples, diffs)
        notes = [(step.epoch, json.dumps(step._asdict())) for step in result.steps]
        pad = np.zeros(len(notes), np.int64)
        return pa.table(
            {
                "a": np.concatenate([oa, pad]),
                "b": np.concatenate([ob, pad]),
                "k": np.concatenate([ok, pad]),
                "epoch": np.concatenate([oe, np.array([epoch for epoch, _ in notes], np.int64)]),
                "diff": np.concatenate([od, pad]),
                "note": pa.array([None] * len(oa) + [note for _, note in notes], pa.string()),
            }
        )

    return task


@dataclass(frozen=True)
class Summary:
    """What the replayed epochs' notes say together.

    `methods`: how often each was chosen; `inserted`, `deleted`: edges; `looked_at`: how often an edge's triangles were,
    by maintenance; `rounds`: of joins, 0 where one task replays; `seconds`: of the kernels or the rounds.
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
