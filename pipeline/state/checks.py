"""The results of checks in the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from altneu.expectations.model import Check

from . import clock
from .database_session import DatabaseSession
from .records import CheckRecord
from .schema import checks


@dataclass(eq=False)
class CheckStore:
    """The rows of the table `checks`."""

    database: DatabaseSession

    def select(self, run_id: str | None = None, epoch: int | None = None) -> list[CheckRecord]:
        """List check results, oldest first: all, or those of a run, or those at an epoch."""
        statement = sa.select(checks).order_by(checks.c.id)
        if run_id is not None:
            statement = statement.where(checks.c.run_id == run_id)
        if epoch is not None:
            statement = statement.where(checks.c.epoch == epoch)
        return [CheckRecord.from_row(row) for row in self.database.read_rows(statement)]

    def newest_id(self) -> int:
        """Return the id of the newest result, of any run; 0: there is none."""
        (row,) = self.database.read_rows(sa.select(sa.func.max(checks.c.id).label("id")))
        return row.id or 0

    def put(self, run_id: str | None, revision: int, results: Iterable[Check]) -> None:
        """Add check results. A stage that is tried again replaces those of its run."""
        at = clock.timestamp()
        where = checks.c.run_id == run_id if run_id is not None else sa.false()
        listed = [{"run_id": run_id, "revision": revision, "at": at, **check} for check in results]
        self.database.replace_rows(run_id, checks, where, listed)
