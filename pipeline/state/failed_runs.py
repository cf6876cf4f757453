"""Runs as they are shown, and those that did not publish: which of them still say something of an epoch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from .ledger import Ledger
from .records import OVER, RunKind, RunRecord, RunState
from .schema import runs


@dataclass(frozen=True)
class Attempt:
    """A run of some epochs, as it is shown: one that says `running` without a heartbeat has failed."""

    run_id: str
    state: RunState
    error: str | None
    kind: RunKind
    parent: int
    started_at: str
    finished_at: str | None
    last: str  # when it ended, or sent its last heartbeat
    epochs: int

    @property
    def seconds(self) -> float | None:
        """From its beginning to its end."""
        if self.finished_at is None:
            return None
        return (datetime.fromisoformat(self.finished_at) - datetime.fromisoformat(self.started_at)).total_seconds()


def describe_attempt(run: RunRecord, newest: int | None = None) -> Attempt:
    """A run, as it is shown. `newest`: the newest revision; a held run with another parent is superseded then."""
    state, error = run.state, run.error
    if state is RunState.HELD and newest not in (None, run.parent):
        state, error = RunState.SUPERSEDED, f"held, and overtaken by revision {run.parent + 1}"
    if state is RunState.RUNNING and not run.is_alive:
        state, error = RunState.FAILED, f"run {run.run_id} stopped without a word (last heartbeat {run.last_signal})"
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


def list_unpublished(found: Ledger) -> dict[int, list[Attempt]]:
    """Epoch → its runs that did not publish, oldest first."""
    tried = sa.func.coalesce(runs.c.kind, RunKind.RUN) != RunKind.COMPACT
    out: dict[int, list[Attempt]] = defaultdict(list)
    rows, newest = (
        found.read_rows(sa.select(runs).where(runs.c.state.not_in(OVER) & tried)),
        found.get_revision().revision,
    )
    said = ((describe_attempt(run, newest), run.epochs) for run in map(RunRecord.from_row, rows))
    for shown, epochs in sorted(said, key=lambda pair: pair[0].last):
        for epoch in epochs:
            out[epoch].append(shown)
    return out


def newest_unresolved(tried: list[Attempt], touched: int) -> Attempt | None:
    """The newest of an epoch's runs that did not publish, when it still says something: it is neither superseded, nor
    was the epoch's batch published or taken back (at revision `touched`) by another run after this one began."""
    said = [one for one in tried if one.state is not RunState.SUPERSEDED and one.parent >= touched]
    return said[-1] if said else None
