"""Runs that wait for a person before they are published, and what was decided.

A run is `held` once all that can be computed and checked is: its branches stay, whatever others publish, until somebody
approves or rejects it, or it expires. An approval holds for what was computed: a stage that works again takes it back.
"""

from __future__ import annotations

import sqlalchemy as sa

from . import lease
from .database_session import Store
from .records import Approval, RunRecord, RunState, Verdict
from .schema import approvals, runs
from .versions import DatabaseOutdated


class Approvals(Store):
    """The rows of `approvals`, and the two states of runs that stand for them."""

    def get_approval(self, run_id: str) -> Approval | None:
        """What was said of a run; None: nothing was asked. A database of before runs were held knows of none."""
        return self.list_approvals(approvals.c.run_id == run_id).get(run_id)

    def list_approvals(self, where: sa.ColumnElement[bool] | None = None) -> dict[str, Approval]:
        """Run → what was said of it."""
        every = sa.select(approvals)
        try:
            return {
                row.run_id: Approval.from_row(row)
                for row in self.read_rows(every if where is None else every.where(where))
            }
        except DatabaseOutdated:
            return {}

    def list_held(self) -> list[RunRecord]:
        """The runs that wait for a decision, oldest first; also those whose parent is not the newest revision any
        more, which can only be rejected."""
        found = sa.select(runs).where(runs.c.state == RunState.HELD).order_by(runs.c.started_at, runs.c.run_id)
        return [RunRecord.from_row(row) for row in self.read_rows(found)]

    def hold_run(self, run_id: str) -> None:
        """From now on the run waits. By the process that holds its lease."""
        with self._write_transaction(run_id) as connection:
            mine = (runs.c.run_id == run_id) & (runs.c.state == RunState.RUNNING)
            connection.execute(runs.update().where(mine).values(state=RunState.HELD, finished_at=lease.timestamp()))

    def approve_run(self, run_id: str, person: str | None, because: str | None) -> None:
        """Record that a run may be published. By the process that holds its lease."""
        with self._write_transaction(run_id) as connection:
            record_verdict(connection, run_id, Verdict.APPROVED, person, because)

    def reject_run(self, run_id: str, person: str | None, because: str | None) -> None:
        """Record that a held run is not to be published. By the process that holds its lease."""
        with self._write_transaction(run_id) as connection:
            said = record_verdict(connection, run_id, Verdict.REJECTED, person, because)
            mine = (runs.c.run_id == run_id) & (runs.c.state == RunState.HELD)
            connection.execute(
                runs.update().where(mine).values(state=RunState.REJECTED, error=said.describe(), finished_at=said.at)
            )


def record_verdict(
    connection: sa.Connection, run_id: str, verdict: Verdict, person: str | None = None, because: str | None = None
) -> Approval:
    """Replace what was said of a run."""
    said = Approval(run_id, verdict, person, because, lease.timestamp())
    connection.execute(approvals.delete().where(approvals.c.run_id == run_id))
    row = {"run_id": run_id, "verdict": verdict, "person": person, "because": because, "at": said.at}
    connection.execute(approvals.insert().values(**row))
    return said
