"""The published revisions: what the ledger does not contain does not exist for readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from ..errors import AltneuError
from .database_session import DatabaseSession
from .records import EMPTY, Revision, RunKind, encode_snapshots
from .schema import NOTHING, ledger, runs

_QUERIES = "queries"  # the part of a run's recorded settings that has its queries


@dataclass(eq=False)
class RevisionStore:
    """The rows of the table `ledger`."""

    database: DatabaseSession

    def list_all(self) -> list[Revision]:
        """List all published revisions, oldest first."""
        return [
            Revision.from_row(row) for row in self.database.read_rows(sa.select(ledger).order_by(ledger.c.revision))
        ]

    def list_readable(self) -> list[int]:
        """List the revisions that pin tables: those that no compaction has dropped, oldest first."""
        pins = sa.cast(ledger.c.snapshots, sa.Text) != "{}"
        rows = self.database.read_rows(sa.select(ledger.c.revision).where(pins).order_by(ledger.c.revision))
        return [row.revision for row in rows]

    def published_by(self, run_id: str) -> Revision | None:
        """Return the revision that a run has published, or None."""
        rows = self.database.read_rows(sa.select(ledger).where(ledger.c.run_id == run_id))
        return Revision.from_row(rows[0]) if rows else None

    def get(self, revision: int | None = None) -> Revision:
        """Return the ledger row of a revision (default: the newest), or `EMPTY` where nothing was published.

        Raises `AltneuError` where the revision was not published.
        """
        if revision == 0:
            return EMPTY
        statement = sa.select(ledger).order_by(ledger.c.revision.desc()).limit(1)
        if revision is not None:
            statement = statement.where(ledger.c.revision == revision)
        rows = self.database.read_rows(statement)
        if rows:
            return Revision.from_row(rows[0])
        if revision:
            newest = self.get().revision
            raise AltneuError(f"revision {revision} was not published; the newest is {newest}.", "altneu status")
        return EMPTY

    def published_before(self, moment: datetime) -> Revision | None:
        """Return the last revision, in their order, that was published at a moment or before, or None."""
        until = moment.astimezone(UTC).isoformat(timespec="milliseconds")  # as `clock.timestamp` writes it
        statement = sa.select(ledger).where(ledger.c.published_at <= until)
        rows = self.database.read_rows(statement.order_by(ledger.c.revision.desc()).limit(1))
        return Revision.from_row(rows[0]) if rows else None

    def require_published(self, revision: int | None = None) -> Revision:
        """Return a published revision. Raises `AltneuError` where nothing is published: at first, and after a rollback
        to 0."""
        row = self.get(revision)
        if row.frontier is None:
            what = "nothing is published yet."
            if row.revision:
                what = (
                    f"nothing is published: revision {row.revision} is empty, because it is a rollback to revision 0."
                )
            raise AltneuError(what, "altneu backfill --all")
        return row

    def repin(
        self, run_id: str, snapshots: dict[str, int], revisions: list[int], since: int | None, dropped: list[int]
    ) -> None:
        """Let revisions pin new snapshots after a compaction.

        Args:
            run_id: The compaction.
            snapshots: The new snapshot of each table.
            revisions: The revisions that are read from these snapshots from now on.
            since: The first epoch for which the tables answer; None: all.
            dropped: The revisions that cannot be read any more.

        Raises:
            LeaseLost: Another process holds the lease of the compaction.
        """
        with self.database.write_transaction(run_id) as connection:
            is_repinned = ledger.c.revision.in_(revisions)
            connection.execute(
                ledger.update().where(is_repinned).values(snapshots=encode_snapshots(snapshots), since=since)
            )
            connection.execute(ledger.update().where(ledger.c.revision.in_(dropped)).values(snapshots={}))

    def last_change_of_queries(self, row: Revision) -> int:
        """Return the last revision up to `row` that has other queries than the one before, or 0.

        Its run has written tables of queries again, so that their new snapshots lack the rows of older revisions.
        """
        joined = sa.select(ledger.c.revision, runs.c.config).join_from(ledger, runs)
        up_to = joined.where(ledger.c.revision <= row.revision).order_by(ledger.c.revision.desc())
        with_queries = sa.cast(runs.c.config, sa.Text).contains(f'"{_QUERIES}":')
        if not self.database.read_rows(up_to.where(with_queries).limit(1)):
            return 0
        rows = self.database.read_rows(up_to)
        for newer, older in zip(rows, [*rows[1:], None], strict=True):
            before = None if older is None else (older.config or {}).get(_QUERIES)
            if (newer.config or {}).get(_QUERIES) != before:
                return int(newer.revision)
        return 0

    def share_snapshots(self, row: Revision, own: int) -> None:
        """Let revisions before the newest `own` ones read the snapshots of the revision `row`.

        These contain their rows, too. `row` has just been published, by a run whose lease this process holds. A
        revision from before a rollback, a rebuild or a change of the queries keeps its snapshots. One that a compaction
        has dropped has none.
        """
        anew = (runs.c.kind != RunKind.RUN) & (ledger.c.revision <= row.revision)  # null: a run of an early version
        last_anew = sa.select(sa.func.max(ledger.c.revision)).join_from(ledger, runs).where(anew)
        alike = ledger.c.since.is_not_distinct_from(row.since) & (ledger.c.frontier != NOTHING)
        readable = sa.cast(ledger.c.snapshots, sa.Text) != "{}"
        last_queries = self.last_change_of_queries(row)
        with self.database.write_transaction(row.run_id) as connection:
            first = max(connection.execute(last_anew).scalar_one() or 0, last_queries)
            old = ledger.c.revision.between(first, row.revision - own)
            shared = ledger.update().where(old, alike, readable)
            connection.execute(shared.values(snapshots=encode_snapshots(row.snapshots)))


def exact_revisions(rows: Sequence[Revision]) -> set[int]:
    """Return the revisions whose snapshots contain exactly the rows that they show.

    Readers who do not know the ledger may read these snapshots. `rows` are all revisions, oldest first.

    After a compaction the revisions that it keeps share snapshots, which contain the rows of the newest of them. A
    rollback by an earlier version of altneu to another of these revisions uses the same snapshots; so do the revisions
    that were built on it.
    """
    by_number = {row.revision: row for row in rows}
    again = {row.revision: republished_revision(row) for row in rows}
    last: dict[tuple[tuple[str, int], ...], int] = {}  # snapshots → the newest revision with rows of its own
    shared: dict[int, int] = {}  # rollbacks → the revision whose snapshots they read
    for row in rows:
        target, key = again[row.revision], _snapshots_key(row)
        if target and by_number[target].snapshots == row.snapshots:
            shared[row.revision] = target
        elif target and key in last:  # a compaction has dropped the revision that it publishes again
            shared[row.revision] = last[key]
        else:
            last[key] = row.revision
    exact: set[int] = set()
    others: set[int] = set()  # rollbacks whose snapshots contain rows of revisions that they take back
    for row in rows:
        if not row.snapshots and row.frontier is not None:
            continue  # a compaction has dropped it
        if row.revision in shared:
            source, target = shared[row.revision], again[row.revision]
            fine = source in exact and target in (source, again[source])
            others |= set() if fine else {row.revision}
        else:
            fine = row.frontier is None or last[_snapshots_key(row)] == row.revision
        builds_on_others = any(not any(a <= other <= b for a, b in row.hidden) for other in others)
        if fine and (row.frontier is None or not builds_on_others):
            exact.add(row.revision)
    return exact


def _snapshots_key(row: Revision) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(row.snapshots.items()))


def republished_revision(row: Revision) -> int | None:
    """Return the revision that a rollback publishes again, or None."""
    return row.hidden[-1][0] - 1 if row.hidden and row.hidden[-1][1] == row.parent else None
