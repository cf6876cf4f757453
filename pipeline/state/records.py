"""The rows of the database as typed records, and the words that stand in them: the one place that reads a row's fields.

A record says what its row says, with what an earlier version left out filled in.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Self, TypeAlias, get_args

import sqlalchemy as sa

from expectations.model import Check

from ..home.setting_types import PlainTable
from . import lease
from .schema import NOTHING
from .stage_results import Facts, from_json

LANDED = ("upserts", "quarantine", "names")  # tables of rows as they came; all others are computed from them
PLAIN = get_args(PlainTable)  # no collections: rows as other programs want them, made of the collections

Json: TypeAlias = dict[str, Any]  # a JSON object whose fields are others' business: a stage's facts, a run's settings
Row: TypeAlias = sa.Row[*tuple[Any, ...]]


class RunKind(StrEnum):
    """What a run does."""

    RUN = "run"  # adds batches
    REBUILD = "rebuild"  # computes everything again from the stored rows
    RELOAD = "reload"  # computes everything again from the landing
    ROLLBACK = "rollback"  # publishes an old revision again
    COMPACT = "compact"  # publishes nothing


class RunState(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    PUBLISHED = "published"
    DONE = "done"  # a compaction
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # by a signal, a timeout
    SUPERSEDED = "superseded"  # another run has published on its parent
    HELD = "held"  # computed and checked, not published: a person decides
    REJECTED = "rejected"  # it was held, and is not to be published
    UNCHANGED = "unchanged"  # of an earlier version: there was nothing to publish
    DISCARDED = "discarded"  # of an earlier version: `superseded`


OPEN = (RunState.RUNNING, RunState.FAILED, RunState.INTERRUPTED)  # may go on while the parent is the newest revision
OVER = (RunState.PUBLISHED, RunState.DONE, RunState.UNCHANGED)  # nothing is left to say of its epochs


class Verdict(StrEnum):
    """What was said of a run that waits for a person."""

    WANTED = "wanted"  # it was begun to be held: nothing yet
    APPROVED = "approved"
    REJECTED = "rejected"


class StageState(StrEnum):
    """How a stage of a run stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUPERSEDED = "superseded"


class Severity(StrEnum):
    """What a failed check means: the run must not publish; it is published with its mark; it is only said."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Base:
    """What the ledger row of a run's parent said when the run began: a compaction meanwhile changes that row."""

    since: int | None
    snapshots: dict[str, int]

    def to_json(self) -> Json:
        return {"since": self.since, "snapshots": encode_snapshots(self.snapshots)}


@dataclass(frozen=True)
class RunRecord:
    """One row of `runs`."""

    run_id: str
    parent: int
    epochs: tuple[int, ...]
    state: RunState
    error: str | None
    config: Json
    started_at: str
    finished_at: str | None
    kind: RunKind
    beat_at: str | None
    base: Base | None
    owner: str | None
    discarded: bool

    @classmethod
    def from_row(cls, row: Row) -> Self:
        base = None if row.base is None else Base(row.base["since"], decode_snapshots(row.base["snapshots"]))
        return cls(
            row.run_id,
            row.parent,
            tuple(row.epochs),
            RunState(row.state),
            row.error,
            dict(row.config or {}),
            row.started_at,
            row.finished_at,
            RunKind(row.kind or RunKind.RUN),  # null: of before there were kinds
            row.beat_at,
            base,
            row.owner,
            bool(row.discarded),
        )

    @property
    def last_signal(self) -> str:
        """When it ended, or last sent a heartbeat."""
        return self.finished_at or self.beat_at or self.started_at

    @property
    def is_alive(self) -> bool:
        """Does a process work on it, or did one until a minute ago?"""
        return self.state is RunState.RUNNING and lease.has_heartbeat(self)


@dataclass(frozen=True)
class Approval:
    """One row of `approvals`."""

    run_id: str
    verdict: Verdict
    person: str | None  # None: nobody said; of a rejection: the time has run out
    because: str | None
    at: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.run_id, Verdict(row.verdict), row.person, row.because, row.at)

    def describe(self) -> str:
        """`approved by ada: expected after the import`."""
        return (
            self.verdict + (f" by {self.person}" if self.person else "") + (f": {self.because}" if self.because else "")
        )


@dataclass(frozen=True)
class StageRecord:
    """One row of `stages`."""

    run_id: str
    stage: str
    state: StageState
    started_at: str
    seconds: float | None  # None: it has not ended
    stored: Json

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.run_id, row.stage, StageState(row.state), row.started_at, row.seconds, dict(row.facts))

    @cached_property
    def facts(self) -> Facts:
        """What it said."""
        return from_json(self.stage, self.stored)


@dataclass(frozen=True)
class Revision:
    """One row of the ledger. Revision 0 is the empty state, before anything was published."""

    revision: int
    parent: int
    run_id: str
    frontier: int | None  # None: the empty state, that of revision 0 or one rolled back to it
    snapshots: dict[str, int]
    config_digest: str
    mark: Severity | None  # warning, when a check warned
    published_at: str
    since: int | None = None
    hidden: tuple[tuple[int, int], ...] = ()  # (first, last) of the revisions that a rollback took back

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            row.revision,
            row.parent,
            row.run_id,
            None if row.frontier == NOTHING else row.frontier,
            decode_snapshots(row.snapshots),
            row.config_digest,
            Severity(row.mark) if row.mark else None,
            row.published_at,
            row.since,
            tuple((first, last) for first, last in row.hidden or ()),
        )

    @property
    def collections(self) -> dict[str, int]:
        """The snapshots of the tables of diff triples: all but the plain ones."""
        return {table: snapshot for table, snapshot in self.snapshots.items() if table not in PLAIN}

    def knows_epoch(self, epoch: int) -> bool:
        """Do the tables still know this epoch, or has a compaction folded it?"""
        return self.since is None or epoch >= self.since


EMPTY = Revision(0, 0, "", None, {}, "", None, "")


@dataclass(frozen=True)
class StagedBatch:
    """One epoch's batch as a run has read it."""

    epoch: int
    digest: str
    files: int
    rows: int
    bad_rows: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.epoch, row.digest, row.files, row.rows, row.bad_rows)

    @classmethod
    def for_removed_epoch(cls, epoch: int) -> Self:
        """A rollback has taken the epoch's batch back."""
        return cls(epoch, "", 0, 0, 0)


@dataclass(frozen=True)
class Batch(StagedBatch):
    """What is known of one epoch's batch as published."""

    revision: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.epoch, row.digest, row.files, row.rows, row.bad_rows, row.revision)

    def to_staged(self) -> StagedBatch:
        """Return this batch as a staged one, to be published by another revision."""
        return StagedBatch(self.epoch, self.digest, self.files, self.rows, self.bad_rows)


@dataclass(frozen=True)
class LandedBatch(Batch):
    """A published batch, also one that was replaced since, with the run that published it."""

    run_id: str
    published_at: str
    kind: RunKind
    started_at: str
    finished_at: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        batch = (row.epoch, row.digest, row.files, row.rows, row.bad_rows, row.revision)
        kind = RunKind(row.kind or RunKind.RUN)
        return cls(*batch, row.run_id, row.published_at, kind, row.started_at, row.finished_at)


@dataclass(frozen=True)
class CheckRecord:
    """One row of `checks`: what a check found at an epoch."""

    id: int
    run_id: str | None  # None: an audit outside a run
    revision: int
    epoch: int
    suite: str
    name: str
    severity: Severity
    passed: bool
    meaning: str
    remedy: str
    observed: str
    rows: list[Json]  # the first offending rows
    at: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            row.id,
            row.run_id,
            row.revision,
            row.epoch,
            row.suite,
            row.name,
            Severity(row.severity),
            bool(row.passed),
            row.meaning,
            row.remedy,
            row.observed,
            list(row.rows),
            row.at,
        )

    def to_check(self) -> Check:
        """Return the check that this record was made from."""
        return {
            "epoch": self.epoch,
            "suite": self.suite,
            "name": self.name,
            "severity": self.severity.value,
            "passed": self.passed,
            "meaning": self.meaning,
            "remedy": self.remedy,
            "observed": self.observed,
            "rows": self.rows,
        }


def new_run_id() -> str:
    """Sorts by the second in which the run began."""
    return f"{lease.read_clock():%Y%m%dT%H%M%S}_{uuid.uuid4().hex[:8]}"


def encode_snapshots(snapshots: dict[str, int]) -> dict[str, str]:
    """Snapshot ids as they are stored: 64 bits do not fit JSON."""
    return {table: str(snapshot) for table, snapshot in snapshots.items()}


def decode_snapshots(snapshots: dict[str, str]) -> dict[str, int]:
    return {table: int(snapshot) for table, snapshot in snapshots.items()}
