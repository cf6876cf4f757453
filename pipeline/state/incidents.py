"""Incidents: each one lasts from the first failure of a check until all its failures have ended. They need SQL only.

Incidents are derived from the stored check results, so every home has them, whichever version has written it. Only the
notes of people (an acknowledgement, a mute) are stored. A check, or a stage, has at most one open incident:

- A failure opens an incident: of a critical or a warning check in a published run or in an audit, of a critical check
  that has stopped a run, or of a stage.
- While the incident is open, each later failure of the same check joins it, at any epoch.
- A failure ends when the check passes at its epoch. For a failure that has stopped a run this may be in a run that
  publishes nothing. A failure about a batch, or one that has stopped a run, also ends when another batch of its epoch
  is published. A failure about the graph also ends when everything is computed again (see `epoch_status`). The incident
  closes when all its failures have ended.

A stage that is tried again replaces its results, so a failure that its own run has resolved leaves no trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

import sqlalchemy as sa

from ..errors import UsageError
from . import clock
from .epoch_status import FULL, OF_BATCH, PROOF
from .failed_runs import describe_attempt
from .ledger import Ledger
from .records import Row, RunKind, RunRecord, RunState, Severity
from .schema import batches, checks, notes, runs, stages
from .schema import ledger as ledger_table
from .versions import DatabaseOutdated

STAGES = "stages"  # the suite of incidents that a stage has opened, not a check
RECOMPUTES = (RunKind.REBUILD, RunKind.RELOAD)


@dataclass(frozen=True)
class Failure:
    """The failure of a check at an epoch, or of a stage of a run. `ended` None: it has not ended."""

    ident: str
    suite: str
    name: str
    severity: Severity
    epoch: int | None  # None: the failure of a run over all epochs
    revision: int
    run_id: str | None
    published: bool  # False: it has stopped the run
    at: str
    observed: str
    meaning: str
    remedy: str
    epochs: tuple[int, ...] = ()  # the epochs of the run that it has stopped
    kind: RunKind = RunKind.RUN
    ended: str | None = None
    why: str = ""  # what ended it


@dataclass(frozen=True)
class Note:
    """The note of a person about an incident: an acknowledgement, or the day until which it is muted."""

    suite: str
    name: str
    opened: str
    by: str | None
    because: str | None
    until: str | None  # None: an acknowledgement
    at: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row.suite, row.name, row.opened, row.by, row.because, row.until, row.at)


@dataclass(frozen=True)
class Incident:
    """The overlapping failures of one check, oldest first."""

    failures: tuple[Failure, ...]
    notes: tuple[Note, ...] = ()

    @property
    def first(self) -> Failure:
        return self.failures[0]

    @property
    def identifier(self) -> str:
        """Return the name of the incident for people, which is that of its first failure."""
        return self.first.ident

    @property
    def opened(self) -> str:
        """Return the run that opened the incident, or the time of the audit that did. A retried stage does not change
        it."""
        return self.first.run_id or self.first.at

    @property
    def severity(self) -> Severity:
        return min((each.severity for each in self.open_failures or self.failures), key=tuple(Severity).index)

    @property
    def open_failures(self) -> tuple[Failure, ...]:
        """Return the failures that have not ended."""
        return tuple(each for each in self.failures if each.ended is None)

    @property
    def is_open(self) -> bool:
        return bool(self.open_failures)

    @property
    def last(self) -> Failure:
        """Return the failure of a closed incident that ended last."""
        return max(self.failures, key=lambda each: each.ended or "")

    @property
    def epochs(self) -> list[int]:
        """Return the epochs of the open failures; of a closed incident, the epochs of all."""
        return sorted({each.epoch for each in self.open_failures or self.failures if each.epoch is not None})

    @property
    def acknowledgement(self) -> Note | None:
        return next((note for note in reversed(self.notes) if note.until is None), None)

    def mute_at(self, now: str) -> Note | None:
        """Return the mute that is in force at the time `now`, or None."""
        newest = next((note for note in reversed(self.notes) if note.until is not None), None)
        return newest if newest is not None and newest.until is not None and newest.until > now else None


def list_incidents(ledger: Ledger) -> list[Incident]:
    """List all incidents: open ones first, and newer ones before older ones."""
    known = [*_resolve_failures(ledger, _list_failed_checks(ledger)), *_list_failed_stages(ledger)]
    by_check: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    for failure in sorted(known, key=lambda each: each.at):
        by_check[failure.suite, failure.name].append(failure)
    bare = [incident for group in by_check.values() for incident in _join_failures(group)]
    by_key = _list_notes(ledger) if bare else {}
    incidents = [
        replace(one, notes=tuple(by_key.get((one.first.suite, one.first.name, one.opened), ()))) for one in bare
    ]
    newest_first = sorted(incidents, key=lambda incident: incident.first.at, reverse=True)
    return sorted(newest_first, key=lambda incident: not incident.is_open)


def find_incident(ledger: Ledger, ident: str) -> Incident:
    """Return the open incident of this name. Raises `UsageError` where there is none."""
    every = list_incidents(ledger)
    mine = next((one for one in every if one.identifier == ident), None)
    if mine is None:
        known = ", ".join(one.identifier for one in every if one.is_open) or "none"
        raise UsageError(f"there is no incident {ident}. Open: {known}.", "altneu incidents")
    if not mine.is_open:
        raise UsageError(f"incident {ident} has been closed since {mine.last.ended}.", "altneu incidents --all")
    return mine


def record_note(ledger: Ledger, one: Incident, by: str | None, because: str | None, until: str | None = None) -> None:
    """Store the note of a person about an incident. `until` None: an acknowledgement; otherwise a mute."""
    row = {"suite": one.first.suite, "name": one.first.name, "opened": one.opened}
    with ledger.database.engine.begin() as connection:
        connection.execute(notes.insert().values(**row, by=by, because=because, until=until, at=clock.timestamp()))


def acknowledge_incident(ledger: Ledger, ident: str, by: str, because: str) -> Incident:
    """Record who works on an open incident, and a sentence about it. Raises `UsageError`."""
    if not by.strip() or not because.strip():
        raise UsageError("the name and the reason must not be empty.", "altneu incidents ack --help")
    one = find_incident(ledger, ident)
    record_note(ledger, one, _require_person(by), because.strip())
    return one


def mute_incident(ledger: Ledger, ident: str, until: str, by: str | None, because: str | None) -> Incident:
    """Mute an open incident until a day, such as 2026-06-01. Raises `UsageError`."""
    try:
        day = datetime.strptime(until, "%Y-%m-%d").replace(tzinfo=UTC).isoformat(timespec="milliseconds")
    except ValueError:
        raise UsageError(f"until {until}: expected a day, such as 2026-06-01.") from None
    if day <= clock.timestamp():
        raise UsageError(f"until {until}: this day is not in the future.", "name a later day")
    one = find_incident(ledger, ident)
    record_note(ledger, one, by and _require_person(by), because, day)
    return one


def _require_person(by: str) -> str:
    if len(by.strip()) > 128:
        raise UsageError("the name is longer than 128 characters.")
    return by.strip()


def _join_failures(failures: Sequence[Failure]) -> list[Incident]:
    """Join the failures of one check, oldest first, to incidents. A new one begins when all earlier failures have
    ended."""
    groups: list[list[Failure]] = []
    end: str | None = ""
    for failure in failures:
        if not groups or (end is not None and failure.at > end):
            groups.append([])
            end = ""
        groups[-1].append(failure)
        end = None if end is None or failure.ended is None else max(end, failure.ended)
    return [Incident(tuple(group)) for group in groups]


def _list_notes(ledger: Ledger) -> dict[tuple[str, str, str], list[Note]]:
    """List the notes, oldest first: (suite, name, opened) → notes. A database from before there were notes has none."""
    by_key: dict[tuple[str, str, str], list[Note]] = defaultdict(list)
    try:
        rows = ledger.database.read_rows(sa.select(notes).order_by(notes.c.id))
    except DatabaseOutdated:
        return {}
    for note in map(Note.from_row, rows):
        by_key[note.suite, note.name, note.opened].append(note)
    return by_key


# -- Failures, and the events that ended them ----------------------------------------------------------------------


def _select_failing() -> sa.Select[tuple[object, ...]]:
    """Select the failed check results that open incidents."""
    joined = checks.outerjoin(ledger_table, ledger_table.c.run_id == checks.c.run_id)
    joined = joined.outerjoin(runs, runs.c.run_id == checks.c.run_id)
    columns = [column for column in checks.c if column is not checks.c.rows]
    of_run = (ledger_table.c.revision.label("published"), runs.c.epochs, runs.c.kind)
    opens = checks.c.run_id.is_(None) | ledger_table.c.revision.is_not(None) | (checks.c.severity == Severity.CRITICAL)
    failed = sa.not_(checks.c.passed) & (checks.c.severity != Severity.INFO) & opens
    return sa.select(*columns, *of_run).select_from(joined).where(failed)


def _list_failed_checks(ledger: Ledger) -> list[Failure]:
    return [
        Failure(
            str(row.id),
            row.suite,
            row.name,
            Severity(row.severity),
            row.epoch,
            row.revision,
            row.run_id,
            row.run_id is None or row.published is not None,
            row.at,
            row.observed,
            row.meaning,
            row.remedy,
            tuple(row.epochs or ()),
            RunKind(row.kind or RunKind.RUN),
        )
        for row in ledger.database.read_rows(_select_failing().order_by(checks.c.id))
    ]


def _resolve_failures(ledger: Ledger, failures: list[Failure]) -> list[Failure]:
    """Return the failures, each with the first event that ended it."""
    if not failures:
        return []
    results, newer = _list_results(ledger), _list_newer_audits(ledger)
    touched, again = _list_publications(ledger, failures)
    resolved = []
    for failure in failures:
        key, number = (failure.suite, failure.name, failure.epoch), int(failure.ident)
        ends = [
            (ended_at, "it passes" if passed else "it was found again")
            for ident, ended_at, passed, visible in results.get(key, ())
            if ident > number and (visible or not failure.published)
        ]
        audited = (ended_at for ended_at in newer.get((failure.suite, failure.epoch), ()) if ended_at > failure.at)
        ends += [(ended_at, "a newer audit does not find it") for ended_at in audited]
        of_batch = (failure.suite, failure.name) in OF_BATCH
        stopped = not failure.published
        if of_batch or stopped:
            whose = failure.epochs if stopped and failure.epoch not in failure.epochs else (failure.epoch,)
            firsts = [
                _first_publication_after(touched.get(epoch, ()), failure, stopped=stopped)
                for epoch in whose
                if epoch is not None
            ]
            if firsts and all(firsts):
                ends.append(max(each for each in firsts if each))
        if not of_batch or (stopped and not failure.epochs):
            ends += [each for each in (_first_publication_after(again, failure, stopped=stopped),) if each]
        ended_at, why = min(ends, default=(None, ""))
        resolved.append(replace(failure, ended=ended_at, why=why))
    return resolved


def _first_publication_after(
    published: Iterable[tuple[int, str, str]], failure: Failure, *, stopped: bool
) -> tuple[str, str] | None:
    """Return the first publication (of some, oldest first) after a failure: its time, and what it did."""
    later = (one for one in published if one[0] > failure.revision or (stopped and one[0] == failure.revision))
    return next(((at, f"revision {revision} {what}") for revision, at, what in later), None)


def _list_results(ledger: Ledger) -> dict[tuple[str, str, int | None], list[tuple[int, str, bool, bool]]]:
    """List the results after a failure: (suite, name, epoch) → id, time, whether it passed, whether it is published."""
    failed = _select_failing().subquery("failed")
    later = checks.alias("later")
    same = [later.c[name] == failed.c[name] for name in ("suite", "name", "epoch")]
    published = later.c.run_id.is_(None) | ledger_table.c.revision.is_not(None)
    columns = [later.c[name] for name in ("id", "suite", "name", "epoch", "at", "passed")]
    statement = sa.select(*columns, published.label("visible")).select_from(
        later.outerjoin(ledger_table, ledger_table.c.run_id == later.c.run_id)
    )
    out: dict[tuple[str, str, int | None], list[tuple[int, str, bool, bool]]] = defaultdict(list)
    wanted = sa.exists().where(*same, later.c.id > failed.c.id)
    for row in ledger.database.read_rows(statement.where(wanted).order_by(later.c.id)):
        out[row.suite, row.name, row.epoch].append((row.id, row.at, bool(row.passed), bool(row.visible)))
    return out


def _list_newer_audits(ledger: Ledger) -> dict[tuple[str, int | None], list[str]]:
    """List the times of other audits or proofs where one has failed: (suite, epoch) → times. Each covers the whole
    graph."""
    failed = _select_failing().where(checks.c.suite.in_((FULL, PROOF))).subquery("failed")
    later = checks.alias("later")
    same = [later.c[name] == failed.c[name] for name in ("suite", "epoch")]
    joined = later.outerjoin(ledger_table, ledger_table.c.run_id == later.c.run_id)
    visible = later.c.run_id.is_(None) | ledger_table.c.revision.is_not(None)
    whole = sa.select(later.c.suite, later.c.epoch, later.c.at).distinct().select_from(joined)
    out: dict[tuple[str, int | None], list[str]] = defaultdict(list)
    for row in ledger.database.read_rows(whole.where(visible, sa.exists().where(*same)).order_by(later.c.at)):
        out[row.suite, row.epoch].append(row.at)
    return out


PublicationEvent = tuple[int, str, str]  # revision, time, what it did


def _list_publications(
    ledger: Ledger, failures: list[Failure]
) -> tuple[dict[int, list[PublicationEvent]], list[PublicationEvent]]:
    """List publications that may have ended failures, oldest first.

    Returns:
        For each epoch of a failure, the revisions that published or took back a batch of it; and the revisions that
        computed everything again.
    """
    epochs = {epoch for each in failures for epoch in (each.epoch, *each.epochs) if epoch is not None}
    when = (ledger_table.c.revision, ledger_table.c.published_at, runs.c.kind)
    both = ledger_table.join(runs, runs.c.run_id == ledger_table.c.run_id)
    by_batch = sa.select(*when, batches.c.epoch).select_from(both.join(batches, batches.c.run_id == runs.c.run_id))
    touched: dict[int, list[PublicationEvent]] = defaultdict(list)
    for row in ledger.database.read_rows(
        by_batch.where(batches.c.epoch.in_(sorted(epochs))).order_by(ledger_table.c.revision)
    ):
        what = "took the batch back" if row.kind == RunKind.ROLLBACK else "published the epoch"
        touched[row.epoch].append((row.revision, row.published_at, what))
    every = sa.select(*when).select_from(both).where(runs.c.kind.in_(RECOMPUTES)).order_by(ledger_table.c.revision)
    again = [(row.revision, row.published_at, "computed everything again") for row in ledger.database.read_rows(every)]
    return touched, again


def _list_failed_stages(ledger: Ledger) -> list[Failure]:
    """List the runs that have failed in a stage, without those that a failed critical check has stopped."""
    state = runs.c.state.in_((RunState.FAILED, RunState.RUNNING))
    broken = sa.exists().where(
        checks.c.run_id == runs.c.run_id, sa.not_(checks.c.passed), checks.c.severity == Severity.CRITICAL
    )
    rows = ledger.database.read_rows(sa.select(runs).where(state, ~broken).order_by(runs.c.started_at))
    tried = [(record, describe_attempt(record)) for record in map(RunRecord.from_row, rows)]
    failed = [(record, shown) for record, shown in tried if shown.state is RunState.FAILED]
    if not failed:
        return []
    failed_stages = sa.select(stages.c.run_id, stages.c.stage).where(
        stages.c.state == "failed", stages.c.run_id.in_([record.run_id for record, _ in failed])
    )
    where = {row.run_id: row.stage for row in ledger.database.read_rows(failed_stages)}
    failures = [
        Failure(
            record.run_id.rpartition("_")[2],
            STAGES,
            f"the stage {where[record.run_id]} ends well" if record.run_id in where else f"a {record.kind} ends well",
            Severity.CRITICAL,
            min(record.epochs, default=None),
            record.parent + 1,
            record.run_id,
            False,
            shown.last_seen_at,
            shown.error or "it stopped without an error message",
            "A run goes through all its stages. Nothing of this one was published.",
            "correct the cause that its error names, then run the same command again",
            record.epochs,
            record.kind,
        )
        for record, shown in failed
    ]
    touched, again = _list_publications(ledger, failures)
    done = _list_compactions(ledger)
    return [_resolve_failed_run(failure, touched, again, done) for failure in failures]


def _resolve_failed_run(
    failure: Failure, touched: dict[int, list[PublicationEvent]], again: list[PublicationEvent], done: list[str]
) -> Failure:
    """Return the failure of a run with its end: another run has published its epochs, or has computed everything
    again."""
    if failure.kind is RunKind.COMPACT:
        after = next((done_at for done_at in done if done_at > failure.at), None)
        return replace(failure, ended=after, why="another compaction was done" if after else "")
    if not failure.epochs:
        end = _first_publication_after(again, failure, stopped=True)
    else:
        firsts = [_first_publication_after(touched.get(epoch, ()), failure, stopped=True) for epoch in failure.epochs]
        end = max(each for each in firsts if each) if all(firsts) else None
    return replace(failure, ended=end[0], why=end[1]) if end else failure


def _list_compactions(ledger: Ledger) -> list[str]:
    """List the times at which compactions were done, oldest first."""
    mine = (runs.c.kind == RunKind.COMPACT) & (runs.c.state == RunState.DONE)
    rows = ledger.database.read_rows(sa.select(runs.c.finished_at).where(mine).order_by(runs.c.finished_at))
    return [row.finished_at for row in rows if row.finished_at]
