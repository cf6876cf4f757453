"""Runs as they are shown, and the runs that did not publish but still matter for an epoch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from .ledger import Ledger
from .records import COMPLETE_STATES, RunKind, RunRecord, RunState
from .schema import runs


@dataclass(frozen=True)
class Attempt:
    """A run as it is shown. A run that is recorded as `running` but sends no heartbeat is shown as failed."""

    run_id: str
    state: RunState
    error: str | None
    kind: RunKind
    parent: int
    started_at: str
    finished_at: str | None
    last_seen_at: str  # the time when it ended, or sent its last heartbeat
    epochs: int

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the beginning to the end of the run; None: it has not ended."""
        if self.finished_at is None:
            return None
        return (datetime.fromisoformat(self.finished_at) - datetime.fromisoformat(self.started_at)).total_seconds()


def describe_attempt(run: RunRecord, newest: int | None = None) -> Attempt:
    """Describe a run as it is shown. A held run whose parent is not the revision `newest` is shown as superseded."""
    state, error = run.state, run.error
    if state is RunState.HELD and newest not in (None, run.parent):
        state, error = RunState.SUPERSEDED, f"held, and superseded by revision {run.parent + 1}"
    if state is RunState.RUNNING and not run.is_alive:
        state = RunState.FAILED
        error = f"run {run.run_id} stopped without an error message (last heartbeat {run.last_signal})"
    return Attempt(
        run.run_id,
        state,
        error,
        run.kind,
        run.parent,
        run.started_at,
        run.finished_at,
        run.last_signal,
        len(run.epochs),
    )


def list_unpublished(ledger: Ledger) -> dict[int, list[Attempt]]:
    """List the runs that did not publish, oldest first: epoch → runs."""
    tried = sa.func.coalesce(runs.c.kind, RunKind.RUN) != RunKind.COMPACT
    out: dict[int, list[Attempt]] = defaultdict(list)
    rows, newest = (
        ledger.database.read_rows(sa.select(runs).where(runs.c.state.not_in(COMPLETE_STATES) & tried)),
        ledger.revisions.get().revision,
    )
    attempts = ((describe_attempt(run, newest), run.epochs) for run in map(RunRecord.from_row, rows))
    for attempt, epochs in sorted(attempts, key=lambda pair: pair[0].last_seen_at):
        for epoch in epochs:
            out[epoch].append(attempt)
    return out


def newest_unresolved(tried: list[Attempt], touched: int) -> Attempt | None:
    """Return the newest of an epoch's runs that did not publish, if it still matters.

    A run matters while it is not superseded, and no other run has published or taken back the batch of the epoch (at
    the revision `touched`) since it began.
    """
    unresolved = [run for run in tried if run.state is not RunState.SUPERSEDED and run.parent >= touched]
    return unresolved[-1] if unresolved else None
