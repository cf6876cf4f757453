"""The ledger and the other small state, in SQL: what is not in the ledger does not exist for a reader.

A run writes its rows under its `run_id`; the ledger row `(revision, parent, run_id, snapshots, ...)` comes last, in one
transaction, and makes them all visible at once. `revision` is the primary key and is always parent + 1, so the insert
is a compare-and-swap: of two writers on one parent, one gets `Conflict` and has changed nothing.

`totals` is a collection like every other: diff triples `((measure, k), (epoch, revision), diff)`. Measures: `edges`,
`vertices`, `triangles`, and `truss` (how many edges have trussness k). Through SQLAlchemy; SQLite by default,
PostgreSQL by URI.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from .errors import AltneuError, Conflict

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("parent", sa.BigInteger, nullable=False),  # the revision it builds on; 0 = the empty state
    sa.Column("epochs", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # running, failed, unchanged, published
    sa.Column("error", sa.Text),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("finished_at", sa.String(32)),
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False, unique=True),
    sa.Column("frontier", sa.BigInteger, nullable=False),
    sa.Column("snapshots", sa.JSON, nullable=False),  # table -> Iceberg snapshot id, as text (64 bits do not fit JSON)
    sa.Column("config_digest", sa.String(16), nullable=False),
    sa.Column("mark", sa.String(16)),  # 'warning' when a check warned
    sa.Column("published_at", sa.String(32), nullable=False),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),  # of the landed content
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("bad_rows", sa.BigInteger, nullable=False),
)

totals = sa.Table(
    "totals",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("measure", sa.String(16), primary_key=True),
    sa.Column("k", sa.BigInteger, primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("diff", sa.BigInteger, nullable=False),
)

stages = sa.Table(
    "stages",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("stage", sa.String(16), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),  # running, failed, done
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("seconds", sa.Float),
    sa.Column("facts", sa.JSON, nullable=False),  # rows, plans, snapshot ids: what the stage has to say
)

checks = sa.Table(
    "checks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.String(64), index=True),  # null: an audit outside a run
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, index=True),
    sa.Column("suite", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("severity", sa.String(16), nullable=False),  # critical, warning, info
    sa.Column("passed", sa.Boolean, nullable=False),
    sa.Column("meaning", sa.Text, nullable=False),
    sa.Column("remedy", sa.Text, nullable=False),
    sa.Column("observed", sa.Text, nullable=False),
    sa.Column("rows", sa.JSON, nullable=False),  # the first offending rows
    sa.Column("at", sa.String(32), nullable=False),
)

digests = sa.Table(  # of landed files, so that an unchanged file is read once
    "digests",
    metadata,
    sa.Column("path", sa.String(1024), primary_key=True),
    sa.Column("stamp", sa.String(128), nullable=False),  # size, mtime, inode
    sa.Column("digest", sa.String(64), nullable=False),
)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Revision:
    """One row of the ledger. Revision 0 is the empty state, before anything was published."""

    revision: int
    parent: int
    run_id: str
    frontier: int | None
    snapshots: dict[str, int]
    config_digest: str
    mark: str | None
    published_at: str


EMPTY = Revision(0, 0, "", None, {}, "", None, "")


@dataclass(frozen=True)
class Batch:
    """What is known of one epoch's batch as published."""

    epoch: int
    digest: str
    files: int
    rows: int
    bad_rows: int
    revision: int


class Ledger:
    """The SQL side of a home; `uri` is an SQLAlchemy database URI. Tables are made when they are not there."""

    def __init__(self, uri: str) -> None:
        connect: dict[str, Any] = {"timeout": 60} if uri.startswith("sqlite") else {"connect_timeout": 10}
        self.uri = uri
        self.engine = sa.create_engine(uri, connect_args=connect)
        try:
            metadata.create_all(self.engine)
        except sa.exc.OperationalError as error:
            shown = sa.make_url(uri).render_as_string(hide_password=True)
            raise AltneuError(f"the database {shown} does not answer: {error.orig}.", "altneu doctor") from None

    # -- readers ------------------------------------------------------------------------------------------------

    def _rows(self, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self.engine.connect() as connection:
            return connection.execute(statement).all()

    def revisions(self) -> list[Revision]:
        """All published revisions, oldest first."""
        return [_revision(row) for row in self._rows(sa.select(ledger).order_by(ledger.c.revision))]

    def at(self, revision: int | None = None) -> Revision:
        """The ledger row of a revision (default: the newest; `EMPTY` when nothing was published)."""
        if revision == 0:
            return EMPTY
        statement = sa.select(ledger).order_by(ledger.c.revision.desc()).limit(1)
        if revision is not None:
            statement = statement.where(ledger.c.revision == revision)
        rows = self._rows(statement)
        if rows:
            return _revision(rows[0])
        if revision:
            newest = self.at().revision
            raise AltneuError(f"revision {revision} was not published; the newest is {newest}.", "altneu status")
        return EMPTY

    def batches(self, revision: int | None = None) -> dict[int, Batch]:
        """Epoch → its batch as of a revision (default: the newest)."""
        statement = (
            sa.select(batches, ledger.c.revision)
            .join(ledger, ledger.c.run_id == batches.c.run_id)
            .order_by(ledger.c.revision)
        )
        if revision is not None:
            statement = statement.where(ledger.c.revision <= revision)
        return {
            row.epoch: Batch(row.epoch, row.digest, row.files, row.rows, row.bad_rows, row.revision)
            for row in self._rows(statement)
        }

    def run(self, run_id: str) -> sa.Row[Any]:
        rows = self._rows(sa.select(runs).where(runs.c.run_id == run_id))
        if not rows:
            raise AltneuError(f"there is no run {run_id!r}.", "altneu status")
        return rows[0]

    def runs(self) -> Sequence[sa.Row[Any]]:
        """All runs, oldest first."""
        return self._rows(sa.select(runs).order_by(runs.c.started_at))

    def stages(self, run_id: str) -> Sequence[sa.Row[Any]]:
        return self._rows(sa.select(stages).where(stages.c.run_id == run_id).order_by(stages.c.started_at))

    def facts(self, run_id: str, stage: str) -> dict[str, Any]:
        """What a finished stage recorded."""
        for row in self.stages(run_id):
            if row.stage == stage and row.state == "done":
                return dict(row.facts)
        raise AltneuError(f"run {run_id}: stage {stage} has not finished.", "altneu status")

    def checks(self, run_id: str | None = None, epoch: int | None = None) -> Sequence[sa.Row[Any]]:
        statement = sa.select(checks).order_by(checks.c.id)
        if run_id is not None:
            statement = statement.where(checks.c.run_id == run_id)
        if epoch is not None:
            statement = statement.where(checks.c.epoch == epoch)
        return self._rows(statement)

    def audited(self) -> dict[int, tuple[bool, int]]:
        """Epoch → (equal to the recomputation, at which revision), from its newest audit."""
        statement = sa.select(checks).where(checks.c.suite == "incremental_versus_full").order_by(checks.c.id)
        newest: dict[int, tuple[str, bool, int]] = {}
        for row in self._rows(statement):
            before = newest.get(row.epoch)
            passed = bool(row.passed) and (before[1] if before and before[0] == row.at else True)
            newest[row.epoch] = (row.at, passed, row.revision)
        return {epoch: (passed, revision) for epoch, (_, passed, revision) in newest.items()}

    def total_diffs(self, revision: int | None = None) -> list[tuple[str, int, int, int, int]]:
        """The totals as diff triples `(measure, k, epoch, revision, diff)` up to a revision."""
        statement = sa.select(totals, ledger.c.revision).join(ledger, ledger.c.run_id == totals.c.run_id)
        if revision is not None:
            statement = statement.where(ledger.c.revision <= revision)
        return [(row.measure, row.k, row.epoch, row.revision, row.diff) for row in self._rows(statement)]

    def staged_totals(self, run_id: str, revision: int) -> list[tuple[str, int, int, int, int]]:
        """The total diffs of a run that is not published yet, as if it were."""
        rows = self._rows(sa.select(totals).where(totals.c.run_id == run_id))
        return [(row.measure, row.k, row.epoch, revision, row.diff) for row in rows]

    def staged_batches(self, run_id: str) -> Sequence[sa.Row[Any]]:
        return self._rows(sa.select(batches).where(batches.c.run_id == run_id).order_by(batches.c.epoch))

    # -- writers ------------------------------------------------------------------------------------------------

    def begin(self, run_id: str, parent: int, epochs: list[int], config: dict[str, Any]) -> None:
        with self.engine.begin() as connection:
            connection.execute(
                runs.insert().values(
                    run_id=run_id, parent=parent, epochs=epochs, state="running", config=config, started_at=now()
                )
            )

    def finish(self, run_id: str, state: str, error: str | None = None) -> None:
        with self.engine.begin() as connection:
            connection.execute(
                runs.update().where(runs.c.run_id == run_id).values(state=state, error=error, finished_at=now())
            )

    def stage(self, run_id: str, stage: str, state: str, started: float, facts: dict[str, Any]) -> None:
        """Record that a stage started (`running`), or ended (`done`, `failed`) with its facts."""
        row = {
            "state": state,
            "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
            "seconds": None if state == "running" else time.time() - started,
            "facts": facts,
        }
        where = (stages.c.run_id == run_id) & (stages.c.stage == stage)
        with self.engine.begin() as connection:
            if not connection.execute(stages.update().where(where).values(**row)).rowcount:
                connection.execute(stages.insert().values(run_id=run_id, stage=stage, **row))

    def put_batches(self, run_id: str, rows: list[dict[str, Any]]) -> None:
        self._replace(batches, batches.c.run_id == run_id, [{"run_id": run_id, **row} for row in rows])

    def put_totals(self, run_id: str, measures: Iterable[str], rows: Iterable[tuple[str, int, int, int]]) -> None:
        """Replace the run's total diffs of these measures by `(measure, k, epoch, diff)` rows."""
        where = (totals.c.run_id == run_id) & totals.c.measure.in_(list(measures))
        listed = [
            {"run_id": run_id, "measure": measure, "k": k, "epoch": epoch, "diff": diff}
            for measure, k, epoch, diff in rows
            if diff
        ]
        self._replace(totals, where, listed)

    def put_checks(self, run_id: str | None, revision: int, rows: list[dict[str, Any]]) -> None:
        """Add check results; a retried stage of a run replaces its own."""
        at = now()
        where = checks.c.run_id == run_id if run_id is not None else sa.false()
        self._replace(checks, where, [{"run_id": run_id, "revision": revision, "at": at, **row} for row in rows])

    def _replace(self, table: sa.Table, where: sa.ColumnElement[bool], rows: list[dict[str, Any]]) -> None:
        with self.engine.begin() as connection:
            connection.execute(table.delete().where(where))
            if rows:
                connection.execute(table.insert(), rows)

    def publish(
        self, run_id: str, parent: int, frontier: int, snapshots: dict[str, int], digest: str, mark: str | None
    ) -> Revision:
        """Insert the ledger row: the one moment at which a run becomes visible. Raises `Conflict`."""
        row = {
            "revision": parent + 1,
            "parent": parent,
            "run_id": run_id,
            "frontier": frontier,
            "snapshots": {table: str(snapshot) for table, snapshot in snapshots.items()},
            "config_digest": digest,
            "mark": mark,
            "published_at": now(),
        }
        try:
            with self.engine.begin() as connection:
                connection.execute(ledger.insert().values(**row))
                connection.execute(
                    runs.update()
                    .where(runs.c.run_id == run_id)
                    .values(state="published", error=None, finished_at=now())
                )
        except sa.exc.IntegrityError:
            won = self.at(parent + 1)
            if won.run_id == run_id:  # our own insert, whose answer was lost
                return won
            raise Conflict(
                f"run {run_id} builds on revision {parent}, but run {won.run_id} has published revision "
                f"{won.revision} meanwhile. Nothing of this run was published.",
                "run the same command again",
            ) from None
        return self.at(parent + 1)

    def known_digests(self) -> dict[str, tuple[str, str]]:
        """Path → (stamp, digest) of every landed file read before."""
        return {row.path: (row.stamp, row.digest) for row in self._rows(sa.select(digests))}

    def put_digests(self, found: dict[str, tuple[str, str]]) -> None:
        if found:
            rows = [{"path": path, "stamp": stamp, "digest": digest} for path, (stamp, digest) in found.items()]
            self._replace(digests, digests.c.path.in_([row["path"] for row in rows]), rows)


def _revision(row: sa.Row[Any]) -> Revision:
    return Revision(
        row.revision,
        row.parent,
        row.run_id,
        row.frontier,
        {table: int(snapshot) for table, snapshot in row.snapshots.items()},
        row.config_digest,
        row.mark,
        row.published_at,
    )
