"""The published revisions, for readers: what is not here does not exist for them."""

from __future__ import annotations

import sqlalchemy as sa

from ..errors import AltneuError
from .records import EMPTY, Revision
from .schema import ledger
from .store import Store


class Revisions(Store):
    """The rows of the ledger."""

    def revisions(self) -> list[Revision]:
        """All published revisions, oldest first."""
        return [Revision.of(row) for row in self.read(sa.select(ledger).order_by(ledger.c.revision))]

    def at(self, revision: int | None = None) -> Revision:
        """The ledger row of a revision (default: the newest; `EMPTY` when nothing was published)."""
        if revision == 0:
            return EMPTY
        statement = sa.select(ledger).order_by(ledger.c.revision.desc()).limit(1)
        if revision is not None:
            statement = statement.where(ledger.c.revision == revision)
        rows = self.read(statement)
        if rows:
            return Revision.of(rows[0])
        if revision:
            newest = self.at().revision
            raise AltneuError(f"revision {revision} was not published; the newest is {newest}.", "altneu status")
        return EMPTY

    def published(self, revision: int | None = None) -> Revision:
        """The same. Raises `AltneuError` where there is nothing to see: before a first one, after a rollback to 0."""
        row = self.at(revision)
        if row.frontier is None:
            what = "nothing is published yet."
            if row.revision:
                what = f"nothing is published: revision {row.revision} is empty, as a rollback to 0 has made it."
            raise AltneuError(what, "altneu backfill --all")
        return row
