"""The rows of the database as typed records, and the values in them: the one place that reads a row's fields.

A record has the values of its row, with defaults for columns that an earlier version did not write.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Self, TypeAlias, get_args

import sqlalchemy as sa

from altneu.expectations.model import Check

from ..home.queries import is_relation_rows
from ..home.setting_types import ServingTable
from . import clock
from .process_identity import counts_as_dead
from .schema import NOTHING
from .stage_results import Facts, from_json

LANDED_TABLES = ("upserts", "quarantine", "names")  # tables of landed rows; all others are computed from them
SERVING_TABLES = get_args(ServingTable)  # rows for other programs, made from the collections

Json: TypeAlias = dict[
    str, Any
]  # a JSON object whose fields other modules define: the facts of a stage, the settings of a run
Row: TypeAlias = sa.Row[*tuple[Any, ...]]


def is_landed(table: str) -> bool:
    """Tell whether a table has landed rows: all others are computed from them."""
    return table in LANDED_TABLES or is_relation_rows(table)


class RunKind(StrEnum):
    """The kinds of runs."""

    RUN = "run"  # adds batches
    REBUILD = "rebuild"  # computes everything again from the stored rows
    RELOAD = "reload"  # computes everything again from the landing
    ROLLBACK = "rollback"  # publishes an old revision again
    COMPACT = "compact"  # publishes nothing


class RunState(StrEnum):
    """The states of a run."""

    RUNNING = "running"
    PUBLISHED = "published"
    DONE = "done"  # a compaction
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # by a signal, a timeout
    SUPERSEDED = "superseded"  # another run has published on its parent
    HELD = "held"  # computed and checked, not published: it waits for an approval
    REJECTED = "rejected"  # it was held, and will not be published
    UNCHANGED = "unchanged"  # written by earlier versions: there was nothing to publish
    DISCARDED = "discarded"  # written by earlier versions for `superseded`


OPEN_STATES = (
    RunState.RUNNING,
    RunState.FAILED,
    RunState.INTERRUPTED,
)  # such a run may be continued while its parent is the newest revision
COMPLETE_STATES = (RunState.PUBLISHED, RunState.DONE, RunState.UNCHANGED)  # such a run is complete


class Verdict(StrEnum):
    """The verdicts on a run that needs an approval."""

    WANTED = "wanted"  # the run will be held; nobody has decided yet
    APPROVED = "approved"
    REJECTED = "rejected"


class StageState(StrEnum):
    """The states of a stage of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUPERSEDED = "superseded"


class Severity(StrEnum):
    """The severities of a check: its failure stops the run, marks the revision, or is only shown."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Base:
    """The values in the ledger row of a run's parent when the run began. A later compaction changes that row."""

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
            RunKind(row.kind or RunKind.RUN),  # null: from a version without kinds
            row.beat_at,
            base,
            row.owner,
            bool(row.discarded),
        )

    @property
    def last_signal(self) -> str:
        """Return the time when the run ended, or sent its last heartbeat."""
        return self.finished_at or self.beat_at or self.started_at

    @property
    def has_heartbeat(self) -> bool:
        """Tell whether the process that works on the run does not count as dead."""
        return not counts_as_dead(self.owner, self.beat_at or self.started_at)

    @property
    def is_alive(self) -> bool:
        """Tell whether a process works on the run, or did so less than a minute ago."""
        return self.state is RunState.RUNNING and self.has_heartbeat


@dataclass(frozen=True)
class Approval:
    """One row of `approvals`."""

    run_id: str
    verdict: Verdict
    person: str | None  # None: the name was not given, or a held run expired
    because: str | None
    at: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.run_id, Verdict(row.verdict), row.person, row.because, row.at)

    def describe(self) -> str:
        """Describe the decision, such as `approved by ada: expected after the import`."""
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
    stored_facts: Json

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.run_id, row.stage, StageState(row.state), row.started_at, row.seconds, dict(row.facts))

    @cached_property
    def facts(self) -> Facts:
        """Return the facts that the stage recorded."""
        return from_json(self.stage, self.stored_facts)


@dataclass(frozen=True)
class Revision:
    """One row of the ledger. Revision 0 is the empty state before anything was published."""

    revision: int
    parent: int
    run_id: str
    frontier: int | None  # None: the empty state, of revision 0 or of a rollback to it
    snapshots: dict[str, int]
    config_digest: str
    mark: Severity | None  # warning: a check warned
    published_at: str
    since: int | None = None
    hidden: tuple[tuple[int, int], ...] = ()  # (first, last) of the revisions that rollbacks took back

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
        """Return the snapshots of the tables of diff triples: all tables but the serving tables."""
        return {table: snapshot for table, snapshot in self.snapshots.items() if table not in SERVING_TABLES}

    def knows_epoch(self, epoch: int) -> bool:
        """Tell whether the tables still answer for this epoch: no compaction has folded it."""
        return self.since is None or epoch >= self.since


EMPTY = Revision(0, 0, "", None, {}, "", None, "")


@dataclass(frozen=True)
class StagedBatch:
    """The batch of one epoch as a run has read it."""

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
        """Return the entry of an epoch whose batch a rollback has taken back."""
        return cls(epoch, "", 0, 0, 0)


@dataclass(frozen=True)
class Batch(StagedBatch):
    """The published batch of one epoch."""

    revision: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.epoch, row.digest, row.files, row.rows, row.bad_rows, row.revision)

    def to_staged(self) -> StagedBatch:
        """Return this batch as a staged one, to be published by another revision."""
        return StagedBatch(self.epoch, self.digest, self.files, self.rows, self.bad_rows)


@dataclass(frozen=True)
class LandedBatch(Batch):
    """A published batch with the run that published it. It may have been replaced since."""

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
    """One row of `checks`: the result of a check at an epoch."""

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
    """Make a new run id. Run ids sort by the second in which they were made."""
    return f"{clock.read_clock():%Y%m%dT%H%M%S}_{uuid.uuid4().hex[:8]}"


def encode_snapshots(snapshots: dict[str, int]) -> dict[str, str]:
    """Encode snapshot ids as text, because JSON numbers have less than 64 bits."""
    return {table: str(snapshot) for table, snapshot in snapshots.items()}


def decode_snapshots(snapshots: dict[str, str]) -> dict[str, int]:
    return {table: int(snapshot) for table, snapshot in snapshots.items()}
