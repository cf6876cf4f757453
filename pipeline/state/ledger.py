"""The ledger and the other small state, in SQL: what is not in the ledger does not exist for a reader.

A run writes its rows under its `run_id`; the ledger row `(revision, parent, run_id, snapshots, ...)` comes last, in one
transaction, and makes them all visible at once. `revision` is the primary key and is always parent + 1, so the insert
is a compare-and-swap: of two writers on one parent, one gets `RevisionConflict` and has changed nothing.

`Ledger` is the one door; a part of it for each concept: `revisions`, `runs`, `progress` (of their stages), `contents`
(batches and totals), `checks`, `digests`, `approvals`. The tables are in `schema`, what a row says in `records`.
Through SQLAlchemy; SQLite by default, PostgreSQL by URI.
"""

from __future__ import annotations

import sqlalchemy as sa

from ..errors import RevisionConflict
from . import lease
from .approvals import Approvals
from .checks import Checks
from .digests import Digests
from .records import Revision, RunState, Severity, decode_snapshots, encode_snapshots
from .run_outputs import Contents
from .runs import Runs
from .schema import NOTHING, ledger, runs
from .stage_log import Progress


class Ledger(Runs, Approvals, Progress, Contents, Checks, Digests):
    """All small state of a home."""

    def publish_revision(
        self,
        run_id: str,
        parent: int,
        *,
        frontier: int | None,
        snapshots: dict[str, int],
        digest: str,
        mark: Severity | None,
        since: int | None = None,
        again: Revision | None = None,
    ) -> Revision:
        """Insert the ledger row: the one moment at which a run becomes visible. Raises `RevisionConflict`, `LeaseLost`.

        `again`: the revision whose state it publishes again; refused when a compaction has changed its pins meanwhile.
        """
        on = self.get_revision(parent) if again is None else again
        row = {
            "revision": parent + 1,
            "parent": parent,
            "run_id": run_id,
            "frontier": NOTHING if frontier is None else frontier,
            "snapshots": encode_snapshots(snapshots),
            "config_digest": digest,
            "mark": mark,
            "published_at": lease.timestamp(),
            "since": since,
            # a compacted snapshot that both read holds the rows of the revisions in between, too
            "hidden": [*on.hidden] if again is None else [*on.hidden, (again.revision + 1, parent)],
        }
        try:
            with self._write_transaction(run_id) as connection:
                connection.execute(ledger.insert().values(**row))
                if again is not None and again.revision:
                    pins = sa.select(ledger.c.snapshots).where(ledger.c.revision == again.revision).with_for_update()
                    if decode_snapshots(connection.execute(pins).scalar_one()) != again.snapshots:
                        raise RevisionConflict(
                            f"a compaction has changed revision {again.revision} meanwhile. Nothing was published.",
                            "run the same command again",
                        )
                connection.execute(
                    runs.update()
                    .where(runs.c.run_id == run_id)
                    .values(state=RunState.PUBLISHED, error=None, finished_at=lease.timestamp())
                )
        except sa.exc.IntegrityError:
            won = self.get_revision(parent + 1)
            if won.run_id == run_id:  # our own insert, whose answer was lost
                return won
            conflict = self.supersede_if_behind(run_id)
            assert conflict is not None
            raise conflict from None
        return self.get_revision(parent + 1)

    def repin_revisions(
        self, run_id: str, snapshots: dict[str, int], revisions: list[int], since: int | None, dropped: list[int]
    ) -> None:
        """After a compaction: `revisions` are read from these snapshots now, and `dropped` ones not any more. Raises
        `LeaseLost`."""
        with self._write_transaction(run_id) as connection:
            mine = ledger.c.revision.in_(revisions)
            connection.execute(ledger.update().where(mine).values(snapshots=encode_snapshots(snapshots), since=since))
            connection.execute(ledger.update().where(ledger.c.revision.in_(dropped)).values(snapshots={}))
