"""Held runs and their approvals: a run may wait for a decision before it is published.

A run is `held` when everything is computed and checked. Its branches stay, whatever other runs publish, until a person
approves or rejects it, or it expires. An approval holds for the computed results: a stage that computes again revokes
it.
"""

from __future__ import annotations

import sqlalchemy as sa

from . import clock
from .database_session import Store
from .records import Approval, RunRecord, RunState, Verdict
from .schema import approvals, runs
from .versions import DatabaseOutdated


class Approvals(Store):
    """The rows of the table `approvals`, and the run states `held` and `rejected`."""

    def get_approval(self, run_id: str) -> Approval | None:
        """Return the approval of a run; None: it needs none, or the database is from before there were approvals."""
        return self.list_approvals(approvals.c.run_id == run_id).get(run_id)

    def list_approvals(self, where: sa.ColumnElement[bool] | None = None) -> dict[str, Approval]:
        """List approvals: run → approval. `where` is a condition on the table `approvals`."""
        every = sa.select(approvals)
        try:
            return {
                row.run_id: Approval.from_row(row)
                for row in self.read_rows(every if where is None else every.where(where))
            }
        except DatabaseOutdated:
            return {}

    def list_held(self) -> list[RunRecord]:
        """List the runs that wait for a decision, oldest first.

        A held run whose parent is not the newest revision any more is among them; it can only be rejected.
        """
        statement = sa.select(runs).where(runs.c.state == RunState.HELD).order_by(runs.c.started_at, runs.c.run_id)
        return [RunRecord.from_row(row) for row in self.read_rows(statement)]

    def hold_run(self, run_id: str) -> None:
        """Record that a run waits for a decision. The calling process holds its lease."""
        with self._write_transaction(run_id) as connection:
            mine = (runs.c.run_id == run_id) & (runs.c.state == RunState.RUNNING)
            connection.execute(runs.update().where(mine).values(state=RunState.HELD, finished_at=clock.timestamp()))

    def approve_run(self, run_id: str, person: str | None, because: str | None) -> None:
        """Record that a run may be published. The calling process holds its lease."""
        with self._write_transaction(run_id) as connection:
            record_verdict(connection, run_id, Verdict.APPROVED, person, because)

    def reject_run(self, run_id: str, person: str | None, because: str | None) -> None:
        """Record that a held run will not be published. The calling process holds its lease."""
        with self._write_transaction(run_id) as connection:
            decision = record_verdict(connection, run_id, Verdict.REJECTED, person, because)
            mine = (runs.c.run_id == run_id) & (runs.c.state == RunState.HELD)
            connection.execute(
                runs.update()
                .where(mine)
                .values(state=RunState.REJECTED, error=decision.describe(), finished_at=decision.at)
            )


def record_verdict(
    connection: sa.Connection, run_id: str, verdict: Verdict, person: str | None = None, because: str | None = None
) -> Approval:
    """Replace the approval of a run by a verdict with the name of the person and the reason."""
    approval = Approval(run_id, verdict, person, because, clock.timestamp())
    connection.execute(approvals.delete().where(approvals.c.run_id == run_id))
    row = {"run_id": run_id, "verdict": verdict, "person": person, "because": because, "at": approval.at}
    connection.execute(approvals.insert().values(**row))
    return approval
