"""The status of every epoch: what is published of it, and whether its checks still hold for that. It needs SQL only.

This is the one place that decides the status, for `altneu status`, the report pages, their JSON and the page in
Airflow:

- A check of the graph, such as an audit, is *fresh* at an epoch until a revision is published that may have changed the
  graph there: with a batch or a total of this or an earlier epoch, or because it computed everything again.
- A check of a batch (its number of rows) is fresh as long as the batch is the same.
- A result that is not fresh is shown as stale. A failure counts until its check passes or, for a check of the graph,
  until everything is computed again (by a rebuild). A stale success does not count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import add
from typing import Any, NamedTuple

import sqlalchemy as sa

from altneu.expectations.volumes import EXPECTATIONS as VOLUMES

from .failed_runs import Attempt, list_unpublished, newest_unresolved
from .ledger import Ledger
from .records import Batch, CheckRecord, Revision, RunKind, RunState, Severity
from .schema import batches, checks, runs, totals
from .schema import ledger as ledger_table

FULL, PROOF = "incremental_versus_full", "proof"
OF_BATCH = {(check.suite, check.name) for check in VOLUMES if check.per_epoch}
SUMS = ("vertices", "edges", "triangles")
FOREVER = (1 << 63) - 1
MAX_DENSE_EPOCHS = 400  # up to so many epochs are shown one by one, even if most of them are empty


class EpochState(StrEnum):
    """The states of an epoch."""

    FAILED = "failed"  # its newest run failed
    WRONG = "wrong"  # a critical check failed, or the audit found a difference
    WARNING = "warning"
    UNAUDITED = "unaudited"
    RUNNING = "running"
    EMPTY = "empty"
    GOOD = "good"


class AuditVerdict(StrEnum):
    """The verdicts of an audit about the published state of an epoch."""

    EQUAL = "equal"
    PROVED = "proved"  # the run that computed it proved it; it was not recomputed since
    DIFFERS = "differs"  # also when the epoch has changed since: nothing shows that the difference is gone
    STALE = "stale"  # no audit holds for the published state


RIGHT_VERDICTS = (AuditVerdict.EQUAL, AuditVerdict.PROVED)


class InvalidationMarks:
    """The newest revision that contributes to the state at each epoch, and the newest that computed everything
    again."""

    def __init__(self, pairs: Iterable[tuple[int, int]], recomputed: int, everywhere: int) -> None:
        self.recomputed, self.everywhere = recomputed, everywhere
        self._epochs: list[int] = []
        self._newest: list[int] = []
        for epoch, revision in sorted(pairs):
            self._epochs.append(epoch)
            self._newest.append(max(revision, self._newest[-1] if self._newest else 0))

    def contributing_revision(self, epoch: int) -> int:
        """Return the newest revision that contributes to the state at an epoch; 0: none."""
        place = bisect_right(self._epochs, epoch)
        return self._newest[place - 1] if place else 0

    def is_current(self, epoch: int, revision: int) -> bool:
        """Tell whether a result about the graph at a revision still holds for what is published now."""
        return revision >= max(self.contributing_revision(epoch), self.everywhere)

    def find_audit(self, epoch: int, revision: int, passed: object, at: str, *, proof: bool = False) -> AuditStatus:
        """Return the status of an audit, or of a proof, of an epoch at a revision.

        Args:
            epoch: The epoch.
            revision: The revision that was audited.
            passed: Whether the audit passed, as the database stores it.
            at: The time of the audit.
            proof: Whether this is a proof.
        """
        return AuditStatus(
            bool(passed), revision, at, self.is_current(epoch, revision), revision < self.recomputed, proof
        )


class AuditStatus(NamedTuple):
    """The newest comparison of an epoch with a full recomputation, or the newest proof of it."""

    passed: bool
    revision: int
    at: str
    is_current: bool
    recomputed: bool  # everything was computed again since the audit
    proof: bool = False

    @property
    def verdict(self) -> AuditVerdict:
        """Return the verdict about what is published now."""
        if not self.passed:
            return AuditVerdict.STALE if self.recomputed else AuditVerdict.DIFFERS
        if not self.is_current:
            return AuditVerdict.STALE
        return AuditVerdict.PROVED if self.proof else AuditVerdict.EQUAL

    def describe(self) -> str:
        """Describe the audit in few words, for `altneu status` and the page in Airflow."""
        if self.is_current:
            return self.verdict
        verdict = "differed" if not self.passed else "proved" if self.proof else "equal"
        return f"{verdict} at revision {self.revision}, may have changed since"


def choose_audit(full: AuditStatus | None, proof: AuditStatus | None) -> AuditStatus | None:
    """Choose the audit that decides: the full comparison or the proof.

    The full comparison decides while it holds for what is published, and while it shows a difference: a proof builds on
    the state before it, and cannot refute the difference. Otherwise a fresh proof decides.
    """
    if full is not None and full.verdict is not AuditVerdict.STALE:
        return full
    return proof if proof is not None and (proof.is_current or full is None) else full


class EpochStatus(NamedTuple):
    """The status of one epoch: its batch, its totals, the newest revision that contributes to it, its newest audit."""

    epoch: int
    batch: Batch | None
    sums: dict[str, int]
    revision: int
    touched: int  # the newest revision that published or took back its batch; 0: none
    audit: AuditStatus | None
    changes_totals: bool = False  # a total changes at this epoch


@dataclass(frozen=True)
class EpochStatuses:
    """The statuses of all epochs that the database knows."""

    newest: Revision
    marks: InvalidationMarks
    rows: dict[int, EpochStatus]
    unpublished_attempts: dict[int, list[Attempt]]  # epoch → its runs that did not publish
    put_back: int | None = None  # the frontier, if a rollback has moved it back behind an earlier one

    def status_of(self, epoch: int) -> EpochStatus:
        """Return the status of an epoch, even of one that the database does not know."""
        if epoch in self.rows:
            return self.rows[epoch]
        place = bisect_right(self._known_epochs, epoch)
        sums = self.rows[self._known_epochs[place - 1]].sums if place else dict.fromkeys(SUMS, 0)
        return EpochStatus(epoch, None, sums, self.marks.contributing_revision(epoch), 0, None)

    @cached_property
    def _known_epochs(self) -> list[int]:
        return list(self.rows)

    def newest_unresolved(self, epoch: int) -> Attempt | None:
        return newest_unresolved(self.unpublished_attempts.get(epoch, []), self.status_of(epoch).touched)

    @cached_property
    def shown_epochs(self) -> list[int]:
        """Return the epochs to show, in order: all from the first to the last, if those are not too many."""
        frontier = self.newest.frontier
        published = [epoch for epoch, row in self.rows.items() if row.batch]
        known = {*published, *self.unpublished_attempts} | ({frontier} if frontier is not None else set())
        if not known:
            return []
        first, last = min(known), max(known)
        if shows_every_epoch(first, last, len(published)):
            return list(range(first, last + 1))
        moved = {epoch for epoch, row in self.rows.items() if row.changes_totals and epoch >= first}
        return sorted(known | moved)


def shows_every_epoch(first: int, last: int, published: int) -> bool:
    """Tell whether all epochs from the first to the last are shown, including those without a batch."""
    return last - first < max(4 * published, MAX_DENSE_EPOCHS)


def list_epoch_statuses(ledger: Ledger, newest: Revision) -> EpochStatuses:
    """Load the status of every epoch, and the runs that did not publish."""
    landings, moved = select_landings(newest.revision), select_total_diffs(newest).subquery()
    pivot = (sa.func.sum(sa.case((moved.c.measure == name, moved.c["diff"]), else_=0)) for name in SUMS)
    sums = sa.select(moved.c.epoch, sa.func.max(moved.c.revision), *pivot).group_by(moved.c.epoch)
    newest_rows = {row[1]: row for row in ledger.database.read_rows(landings.order_by(ledger_table.c.revision))}
    landed = {epoch: Batch(*row[1:7]) for epoch, row in newest_rows.items()}
    changes = {epoch: (revision, tuple(map(int, row))) for epoch, revision, *row in ledger.database.read_rows(sums)}
    pairs = [(epoch, batch.revision) for epoch, batch in landed.items()]
    pairs += [(epoch, revision) for epoch, (revision, _) in changes.items()]
    marks = InvalidationMarks(pairs, *_revisions_everywhere(ledger, newest))
    full, proofs = (_list_audits(ledger, newest, marks, suite) for suite in (FULL, PROOF))
    rows: dict[int, EpochStatus] = {}
    now = (0,) * len(SUMS)
    for epoch in sorted({*landed, *changes, *full, *proofs}):
        moves, batch = epoch in changes, landed.get(epoch)
        if moves:
            now = tuple(map(add, now, changes[epoch][1]))
        rows[epoch] = EpochStatus(
            epoch,
            batch if batch and batch.digest else None,
            dict(zip(SUMS, now, strict=True)),
            marks.contributing_revision(epoch),
            batch.revision if batch else 0,
            choose_audit(full.get(epoch), proofs.get(epoch)),
            moves,
        )
    (highest,) = ledger.database.read_rows(sa.select(sa.func.max(ledger_table.c.frontier).label("frontier")))
    behind = newest.frontier is not None and newest.frontier < highest.frontier
    return EpochStatuses(newest, marks, rows, list_unpublished(ledger), newest.frontier if behind else None)


def _list_audits(ledger: Ledger, newest: Revision, marks: InvalidationMarks, suite: str) -> dict[int, AuditStatus]:
    """List the newest audit, or proof, of every epoch that has one."""
    rows = ledger.database.read_rows(select_audits(newest.revision, suite))
    newest_rows = {row[0]: row for row in map(tuple, rows)}
    proof = suite == PROOF
    return {
        epoch: marks.find_audit(epoch, revision, passed, at, proof=proof)
        for epoch, passed, revision, at in newest_rows.values()
    }


def load_marks(ledger: Ledger, newest: Revision, low: int, high: int) -> InvalidationMarks:
    """Load the marks that decide whether results are fresh at the epochs `low` to `high`."""
    every, moved = select_landings(newest.revision).subquery(), select_total_diffs(newest).subquery()
    both = sa.union_all(
        *(sa.select(fold_epochs(s.c.epoch, low), s.c.revision).where(s.c.epoch <= high) for s in (every, moved))
    ).subquery()
    pairs = ledger.database.read_rows(sa.select(both.c.epoch, sa.func.max(both.c.revision)).group_by(both.c.epoch))
    return InvalidationMarks(
        [(epoch, revision) for epoch, revision in map(tuple, pairs)], *_revisions_everywhere(ledger, newest)
    )


def fold_epochs(epoch: sa.ColumnElement[int], low: int) -> sa.Label[int]:
    """Return an expression that replaces each epoch before `low` by `low`."""
    return sa.case((epoch < low, low), else_=epoch).label("epoch")


def select_landings(newest: int) -> sa.Select[Any]:
    """Select every published batch, including those that were replaced since.

    A row has the columns of `batches`, the revision, and when it was published.
    """
    joined = batches.join(ledger_table, ledger_table.c.run_id == batches.c.run_id)
    columns = (*batches.c, ledger_table.c.revision, ledger_table.c.published_at)
    return sa.select(*columns).select_from(joined).where(ledger_table.c.revision <= newest)


def select_newest_landings(newest: int, *of_epochs: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the newest published batch of each epoch, also where a rollback has taken it back.

    Conditions on the column `batches.c.epoch` restrict the epochs.
    """
    order = ledger_table.c.revision.desc()
    place = sa.func.row_number().over(partition_by=batches.c.epoch, order_by=order).label("place")
    every = select_landings(newest).add_columns(place).where(*of_epochs).subquery()
    return sa.select(every).where(every.c.place == 1)


def select_current_batches(newest: int) -> sa.Select[Any]:
    """Select the published batch of every epoch that has one."""
    last = select_newest_landings(newest).subquery()
    return sa.select(last).where(last.c.digest != "")


def select_total_diffs(newest: Revision) -> sa.Select[Any]:
    """Select the visible total diffs: those up to the frontier."""
    joined = totals.join(ledger_table, ledger_table.c.run_id == totals.c.run_id)
    seen = (ledger_table.c.revision <= newest.revision) & (
        totals.c.epoch <= (FOREVER if newest.frontier is None else newest.frontier)
    )
    return sa.select(*totals.c, ledger_table.c.revision).select_from(joined).where(seen)


def select_visible_checks(newest: int, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the check results that hold for published states: those of audits and of published runs."""
    joined = checks.outerjoin(ledger_table, ledger_table.c.run_id == checks.c.run_id)
    audited = checks.c.run_id.is_(None) & (checks.c.revision <= newest)
    published = audited | (ledger_table.c.revision <= newest)
    return sa.select(*checks.c).select_from(joined).where(published, *conditions)


def newest_checks_since(ledger: Ledger, newest: Revision, revision: int, check: int) -> dict[int, int]:
    """Return the id of the newest visible check result of each epoch that has one since a revision and a result.

    Results since are those with a greater id, and those of runs that were published after the revision.
    """
    later = select_visible_checks(newest.revision, checks.c.id > check).subquery()
    joined = checks.join(ledger_table, ledger_table.c.run_id == checks.c.run_id)
    of_runs = sa.select(checks.c.epoch, checks.c.id).select_from(joined)
    of_runs = of_runs.where(ledger_table.c.revision > revision, ledger_table.c.revision <= newest.revision)
    both = sa.union_all(sa.select(later.c.epoch, later.c.id), of_runs).subquery()
    rows = ledger.database.read_rows(sa.select(both.c.epoch, sa.func.max(both.c.id)).group_by(both.c.epoch))
    return {epoch: ident for epoch, ident in map(tuple, rows)}


def select_newest_checks(newest: int, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the newest result of each check at each epoch; of audits and proofs, the results of the newest one
    alone."""
    visible = select_visible_checks(newest, *conditions).subquery()
    place = sa.func.row_number().over(
        partition_by=(visible.c.epoch, visible.c.suite, visible.c.name), order_by=visible.c.id.desc()
    )
    last = sa.func.max(visible.c.at).over(partition_by=(visible.c.epoch, visible.c.suite))
    ranked = sa.select(visible, place.label("place"), last.label("last")).subquery()
    kept = (ranked.c.place == 1) & (ranked.c.suite.not_in((FULL, PROOF)) | (ranked.c.at == ranked.c.last))
    return sa.select(*(ranked.c[column.name] for column in checks.c)).where(kept).order_by(ranked.c.id)


def list_failures(ledger: Ledger, newest: int) -> dict[int, list[CheckRecord]]:
    """List the check results of each epoch that are its newest and failed, without audits and those that only
    inform."""
    loud = checks.c.severity != Severity.INFO
    failed = select_visible_checks(newest, sa.not_(checks.c.passed), loud, checks.c.suite != FULL).subquery()
    later = select_visible_checks(newest).subquery("later")
    same = [later.c[name] == failed.c[name] for name in ("epoch", "suite", "name")]
    again = sa.exists().where(*same, later.c.id > failed.c.id)
    out: dict[int, list[CheckRecord]] = defaultdict(list)
    for row in ledger.database.read_rows(sa.select(failed).where(~again).order_by(failed.c.id)):
        out[row.epoch].append(CheckRecord.from_row(row))
    return out


def select_audits(newest: int, suite: str) -> sa.Select[Any]:
    """Select epoch, passed, revision and time of each audit (or proof: by the suite), the newest of an epoch last."""
    rows = select_visible_checks(newest, checks.c.suite == suite).subquery()
    passed = sa.func.min(sa.case((rows.c.passed, 1), else_=0)).label("passed")
    columns = (rows.c.epoch, passed, sa.func.max(rows.c.revision).label("revision"), rows.c.at)
    return sa.select(*columns).group_by(rows.c.epoch, rows.c.at).order_by(rows.c.epoch, rows.c.at)


def _revisions_everywhere(ledger: Ledger, newest: Revision) -> tuple[int, int]:
    """Return the newest revision that computed everything again, and the newest that may have changed every epoch.

    The latter is a later rollback to before the former, or the same revision; 0: none.
    """
    is_everywhere = runs.c.kind.in_([RunKind.REBUILD, RunKind.RELOAD, RunKind.ROLLBACK]) & (
        ledger_table.c.revision <= newest.revision
    )
    joined = ledger_table.join(runs, runs.c.run_id == ledger_table.c.run_id)
    spans = sa.select(runs.c.kind, sa.func.min(ledger_table.c.revision), sa.func.max(ledger_table.c.revision))
    rows = ledger.database.read_rows(spans.select_from(joined).where(is_everywhere).group_by(runs.c.kind))
    by_kind = {kind: (low, high) for kind, low, high in map(tuple, rows)}
    back = by_kind.pop(RunKind.ROLLBACK, (0, 0))[1]
    if not by_kind:
        return 0, 0
    first, recomputed = min(low for low, _ in by_kind.values()), max(high for _, high in by_kind.values())
    return recomputed, max(recomputed, back if back > first else 0)


def is_relevant(check: CheckRecord, batch: Batch | None, marks: InvalidationMarks) -> bool:
    """Tell whether a failed check still counts, by the rules at the top of this module."""
    if (check.suite, check.name) in OF_BATCH:
        return batch is not None and batch.revision <= check.revision
    return check.revision >= marks.recomputed


def is_fresh(check: CheckRecord, batch: Batch | None, marks: InvalidationMarks) -> bool:
    """Tell whether a check holds for what is published now."""
    if (check.suite, check.name) in OF_BATCH:
        return batch is not None and batch.revision <= check.revision
    return marks.is_current(check.epoch, check.revision)


def judge_epoch(
    batch: Batch | None, tried: Attempt | None, audit: AuditStatus | None, failed: Iterable[Severity]
) -> EpochState:
    """Judge the state of an epoch.

    Args:
        batch: Its published batch.
        tried: Its newest run that did not publish and still counts.
        audit: The audit that decides.
        failed: The severities of its failed checks that count, without the audit.
    """
    severities = set(failed)
    if tried is not None and tried.state is RunState.FAILED:
        return EpochState.FAILED
    if batch is None:
        open_ = tried is not None and tried.state is not RunState.REJECTED
        return EpochState.RUNNING if open_ else EpochState.EMPTY
    says = audit.verdict if audit else AuditVerdict.STALE
    if Severity.CRITICAL in severities or says is AuditVerdict.DIFFERS:
        return EpochState.WRONG
    if Severity.WARNING in severities:
        return EpochState.WARNING
    return EpochState.GOOD if says in RIGHT_VERDICTS else EpochState.UNAUDITED
