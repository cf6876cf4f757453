"""The ledger and the other small state of a home, in SQL. What is not in the ledger does not exist for a reader.

A run writes its rows under its `run_id`. The ledger row `(revision, parent, run_id, snapshots, ...)` is written last,
in one transaction, and makes all these rows visible at once. `revision` is the primary key and always parent + 1, so
the insert is a compare-and-swap: of two writers on one parent, one gets `RevisionConflict` and has changed nothing.

`Ledger` is the one object for callers. It holds a store for each concept, and these share the session of the database.
`schema` declares the tables, `records` the types of their rows. SQLAlchemy reaches SQLite by default, and PostgreSQL by
a URI.
"""

from __future__ import annotations

import contextlib

import sqlalchemy as sa

from ..errors import RevisionConflict
from ..home.home import Home
from . import clock
from .approvals import ApprovalStore
from .checks import CheckStore
from .database_session import DatabaseSession
from .digests import DigestStore
from .records import Revision, RunState, Severity, decode_snapshots, encode_snapshots
from .revisions import RevisionStore
from .run_outputs import OutputStore
from .runs import RunStore
from .schema import NOTHING, ledger, runs
from .stage_log import StageLog


class Ledger:
    """The small state of a home, in its database: all of it but Iceberg's tables.

    A ledger knows the home that it belongs to, so what needs both takes the ledger alone.

    With `writes`, a database of an earlier version is brought up to date; without it, newer columns may be missing.
    """

    def __init__(self, home: Home, writes: bool = False) -> None:
        self.home = home
        self.database = DatabaseSession(home.database, writes)
        self.revisions = RevisionStore(self.database)
        self.runs = RunStore(self.database, self.revisions)
        self.stages = StageLog(self.database)
        self.approvals = ApprovalStore(self.database)
        self.outputs = OutputStore(self.database)
        self.checks = CheckStore(self.database)
        self.digests = DigestStore(self.database)

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
        """Insert the ledger row of a run. At this moment the run becomes visible.

        Args:
            run_id: The run.
            parent: The revision on which it builds. The new revision is parent + 1.
            frontier: The greatest published epoch from now on; None: the empty state.
            snapshots: The snapshot of each table, which the revision pins.
            digest: The digest of the semantic settings.
            mark: `warning` where a check warned.
            since: The first epoch for which the tables answer; None: all.
            again: The revision whose state a rollback publishes again.

        Raises:
            RevisionConflict: Another run has published on this parent, or the pins of `again` have changed meanwhile.
            LeaseLost: Another process holds the lease of the run.
        """
        on = self.revisions.get(parent) if again is None else again
        row = {
            "revision": parent + 1,
            "parent": parent,
            "run_id": run_id,
            "frontier": NOTHING if frontier is None else frontier,
            "snapshots": encode_snapshots(snapshots),
            "config_digest": digest,
            "mark": mark,
            "published_at": clock.timestamp(),
            "since": since,
            # both may read the same compacted snapshot, which contains the rows of the revisions in between, too
            "hidden": [*on.hidden] if again is None else [*on.hidden, (again.revision + 1, parent)],
        }
        # refused where another run has this revision by now, or where we have it, but the answer to our insert was lost
        with contextlib.suppress(sa.exc.IntegrityError), self.database.write_transaction(run_id) as connection:
            connection.execute(ledger.insert().values(**row))
            if again is not None and again.revision:
                pins = sa.select(ledger.c.snapshots).where(ledger.c.revision == again.revision).with_for_update()
                if decode_snapshots(connection.execute(pins).scalar_one()) != again.snapshots:
                    raise RevisionConflict(
                        f"revision {again.revision} shares its tables with another one since. Nothing was published.",
                        "run the same command again",
                    )
            connection.execute(
                runs.update()
                .where(runs.c.run_id == run_id)
                .values(state=RunState.PUBLISHED, error=None, finished_at=clock.timestamp())
            )
        published = self.revisions.get(parent + 1)
        if published.run_id != run_id:
            self.runs.require_newest_parent(run_id)
        return published
