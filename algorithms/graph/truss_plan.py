"""What a plan for the trussness is asked to do, and what it returns, as typed values."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from altneu.algorithms.graph.graph_cache_task import CachedGraph
from altneu.algorithms.graph.proof_records import ProofScope
from altneu.algorithms.graph.tagged_rows import RowKind, rows_of_kind

TRIPLE = ["a", "b", "k", "epoch", "diff"]


class PlanUnfit(Exception):
    """Raised where a plan has no result.

    The message says why, for a person. It is empty where nothing is wrong, but another plan is meant for the graph.
    """


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The request for the trussness at the epochs `first_epoch`..`last_epoch`.

    scope: what the task has to prove besides the changes of every epoch; None: it proves nothing. cache: where the task
    leaves the graph for the next run, if it sees the folder. checkpoint_edges: otherwise it leaves the certificate of
    every edge of a graph with at least so many edges; None: of no graph. threads: how many the task may use, if it has
    as many cores.
    """

    first_epoch: int
    last_epoch: int
    scope: ProofScope | None = None
    cache: CachedGraph | None = None
    checkpoint_edges: int | None = None
    threads: int = 1


@dataclass(frozen=True)
class TrussCheckpoint:
    """A checkpoint of a graph.

    rows: a, b, level (kappa), label, own, backing, diff, which are summed; epoch: theirs; ends: the labels at which
    the next edges are put at the front and at the back.
    """

    rows: DataFrame
    epoch: int
    ends: tuple[int, int]


@dataclass(frozen=True)
class CheckpointChange:
    """How a plan changes the checkpoint: rows and ends are as in `TrussCheckpoint`; `anew`: the rows are all."""

    rows: DataFrame
    ends: tuple[int, int]
    anew: bool


@dataclass(frozen=True)
class ReplaySummary:
    """A summary of the notes of the replayed epochs.

    epochs: how many were replayed; methods: how often each was chosen; inserted, deleted: numbers of edges; looked_at:
    how often maintenance looked at the triangles of an edge; rounds: those of partitions, or the hops of a region;
    seconds: the time of the kernels or the rounds.
    """

    epochs: int
    methods: Mapping[str, int]
    inserted: int
    deleted: int
    looked_at: int
    rounds: int | None
    seconds: float


@dataclass(frozen=True)
class TrussResult:
    """The result of a plan.

    changes: the difference from the stored triples, a, b, k, epoch, diff; totals: its sums (k, epoch, diff); proof: as
    JSON, if one was made; checkpoint: its change, if one was left; region_edges: how many edges the task knew, where it
    did not know all.
    """

    changes: DataFrame
    totals: list[tuple[int, int, int]]
    summary: ReplaySummary
    proof: str | None
    checkpoint: CheckpointChange | None
    region_edges: int | None = None


def read_result(rows: DataFrame) -> TrussResult:
    """Return the result that the rows of a plan (`tagged_rows.RESULT`) are; EXECUTES. The rows should be persisted.

    Raises:
        PlanUnfit: the plan has no result.
    """
    rows_by_kind: dict[RowKind, list[Row]] = defaultdict(list)
    small = rows.where(f"kind <> {int(RowKind.CERTIFICATE)}").groupBy("kind", "k", "epoch", "note")
    for row in small.agg(F.expr("sum(diff) AS diff")).collect():
        rows_by_kind[RowKind(row.kind)].append(row)
    for row in rows_by_kind[RowKind.UNFIT]:
        raise PlanUnfit(row.note)
    checkpoint = None
    for row in rows_by_kind[RowKind.CHECKPOINT]:
        front, back, anew = json.loads(row.note)
        checkpoint = CheckpointChange(certificate_rows(rows), (front, back), anew)
    return TrussResult(
        rows_of_kind(rows, RowKind.CHANGE).select(*TRIPLE),
        [(row.k, row.epoch, row.diff) for row in rows_by_kind[RowKind.CHANGE]],
        summarize_notes(row.note for row in sorted(rows_by_kind[RowKind.NOTE], key=lambda row: int(row.epoch))),
        next((row.note for row in rows_by_kind[RowKind.PROOF]), None),
        checkpoint,
    )


def certificate_rows(rows: DataFrame) -> DataFrame:
    """Return the certificates in the rows of a plan, as rows of a checkpoint."""
    certificates = rows_of_kind(rows, RowKind.CERTIFICATE)
    return certificates.selectExpr("a", "b", "k - 2 AS level", "label", "own", "backing", "diff")


def summarize_notes(notes: Iterable[str]) -> ReplaySummary:
    """Summarize the notes that a replay returned, one for each epoch."""
    read = [json.loads(note) for note in notes]

    def sum_notes(name: str) -> int:
        return sum(note.get(name, 0) for note in read)

    return ReplaySummary(
        epochs=len(read),
        methods=Counter(note["method"] for note in read),
        inserted=sum_notes("inserted"),
        deleted=sum_notes("deleted"),
        looked_at=sum_notes("evaluations"),
        rounds=sum_notes("rounds") or None,
        seconds=round(float(sum_notes("seconds")), 4),
    )
