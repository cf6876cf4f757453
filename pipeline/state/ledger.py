"""The ledger and the other small state, in SQL: what is not in the ledger does not exist for a reader.

A run writes its rows under its `run_id`; the ledger row `(revision, parent, run_id, snapshots, ...)` comes last, in one
transaction, and makes them all visible at once. `revision` is the primary key and is always parent + 1, so the insert
is a compare-and-swap: of two writers on one parent, one gets `Conflict` and has changed nothing.

`totals` is a collection like every other: diff triples `((measure, k), (epoch, revision), diff)`. Measures: `edges`,
`vertices`, `triangles`, `wedges`, `truss` (how many edges have trussness k) and `motif` (how often the k-th occurs).
Through SQLAlchemy; SQLite by default, PostgreSQL by URI.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..errors import AltneuError, Conflict, LeaseLost
from . import database, lease

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("parent", sa.BigInteger, nullable=False),  # the revision it builds on; 0 = the empty state
    sa.Column("epochs", sa.JSON, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # running, published, done (compact), and:
    # failed; interrupted (a signal, a timeout); superseded (another run has published on its parent)
    sa.Column("error", sa.Text),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("started_at", sa.String(32), nullable=False),
    sa.Column("finished_at", sa.String(32)),
    sa.Column("kind", sa.String(16)),  # run (null: of before there were kinds), rebuild, reload, rollback, compact
    sa.Column("beat_at", sa.String(32)),  # the last heartbeat of the process that works on it
    # what its parent's ledger row said when it began, {"since", "snapshots"}: a compaction meanwhile changes that row
    sa.Column("base", sa.JSON),
    sa.Column("owner", sa.String(128)),  # the process that holds the lease, see `lease`; null: none
    sa.Column("discarded", sa.Boolean),  # it has no branches any more: it is published, or cannot be taken up again
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("parent", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), nullable=False, unique=True),
    sa.Column("frontier", sa.BigInteger, nullable=False),
    # table -> Iceberg snapshot id, as text (64 bits do not fit JSON); empty: a compaction has expired the revision
    sa.Column("snapshots", sa.JSON, nullable=False),
    sa.Column("config_digest", sa.String(16), nullable=False),
    sa.Column("mark", sa.String(16)),  # 'warning' when a check warned
    sa.Column("published_at", sa.String(32), nullable=False),
    sa.Column("hidden", sa.JSON),  # ranges of revisions, taken back by rollbacks, whose rows its snapshots may hold
    sa.Column("since", sa.BigInteger),  # the tables answer from this epoch on; null: from the first one
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),  # of the landed content; "": a rollback took the batch back
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


NOTHING = -(2**63)  # the frontier of a revision that is the empty state again
WRITTEN = "snapshots"  # the fact of a stage that holds, by table, the snapshots that it has written or, audit, seen
OPEN = ("running", "failed", "interrupted")  # not over: a retry goes on, as long as the parent is the newest revision


def new_run_id() -> str:
    """Sorts by the second in which the run began."""
    return f"{lease.clock():%Y%m%dT%H%M%S}_{uuid.uuid4().hex[:8]}"


def now() -> str:
    return lease.clock().isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Revision:
    """One row of the ledger. Revision 0 is the empty state, before anything was published."""

    revision: int
    parent: int
    run_id: str
    frontier: int | None  # None: the empty state, that of revision 0 or one rolled back to it
    snapshots: dict[str, int]
    config_digest: str
    mark: str | None
    published_at: str
    since: int | None = None
    hidden: tuple[tuple[int, int], ...] = ()  # (first, last) of the revisions that a rollback took back

    def answers(self, epoch: int) -> bool:
        """Do the tables still know this epoch, or has a compaction folded it?"""
        return self.since is None or epoch >= self.since


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
        self.uri = uri
        self.owner = lease.process
        self._leases: set[str] = set()  # the runs that this process works on
        self.engine = database.engine(uri, self)
        with database.answering(uri):
            database.made(self._make)

    def _make(self) -> None:
        metadata.create_all(self.engine)
        self._add_columns()

    def _add_columns(self) -> None:
        """Columns that came after a home was made (they all may be null)."""
        inspector = sa.inspect(self.engine)
        for table in (runs, ledger):
            there = {column["name"] for column in inspector.get_columns(table.name)}
            for column in table.columns:
                if column.name not in there:
                    kind = column.type.compile(self.engine.dialect)
                    with self.engine.begin() as connection:
                        connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}"))

    # -- readers ------------------------------------------------------------------------------------------------

    def _rows(self, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self.engine.connect() as connection:
            return connection.execute(statement).all()

    def read(self, statement: sa.Select[*tuple[Any, ...]]) -> Sequence[sa.Row[Any]]:
        """The rows of a query that another module has made."""
        return self._rows(statement)

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

    def published(self, revision: int | None = None) -> Revision:
        """The same. Raises `AltneuError` where there is nothing to see: before a first one, after a rollback to 0."""
        row = self.at(revision)
        if row.frontier is None:
            what = "nothing is published yet."
            if row.revision:
                what = f"nothing is published: revision {row.revision} is empty, as a rollback to 0 has made it."
            raise AltneuError(what, "altneu backfill --all")
        return row

    def batches(self, revision: int | None = None) -> dict[int, Batch]:
        """Epoch → its batch as of a revision (default: the newest)."""
        statement = (
            sa.select(batches, ledger.c.revision)
            .join(ledger, ledger.c.run_id == batches.c.run_id)
            .order_by(ledger.c.revision)
        )
        if revision is not None:
            statement = statement.where(ledger.c.revision <= revision)
        newest = {
            row.epoch: Batch(row.epoch, row.digest, row.files, row.rows, row.bad_rows, row.revision)
            for row in self._rows(statement)
        }
        return {epoch: batch for epoch, batch in sorted(newest.items()) if batch.digest}

    def run(self, run_id: str) -> sa.Row[Any]:
        rows = self._rows(sa.select(runs).where(runs.c.run_id == run_id))
        if not rows:
            raise AltneuError(f"there is no run {run_id!r}.", "altneu status")
        return rows[0]

    def motifs(self, revision: Revision) -> list[str]:
        """The motifs that a revision was published with, in their order."""
        return list((self.run(revision.run_id).config or {}).get("motifs", {})) if revision.revision else []

    def runs(self) -> Sequence[sa.Row[Any]]:
        """All runs, oldest first."""
        return self._rows(sa.select(runs).order_by(runs.c.started_at))

    def leftovers(self) -> list[str]:
        """Runs that nobody works on any more and whose branches may go: those that can never be published, because
        their parent is not the newest revision, and published ones that were killed before they had dropped theirs."""
        return [row.run_id for row in self._leftovers()]

    def _leftovers(self) -> list[sa.Row[Any]]:
        newest = self.at().revision
        lost = (runs.c.parent != newest) | (runs.c.kind == "compact")
        over = (runs.c.state == "published") | (runs.c.state.in_([*OPEN, "superseded"]) & lost)
        rows = self._rows(sa.select(runs).where(over & sa.not_(sa.func.coalesce(runs.c.discarded, sa.false()))))
        return [row for row in rows if row.state not in ("running", "published") or not lease.beats(row)]

    def written(self, run_id: str) -> dict[str, int]:
        """Table → the snapshot of it that the finished stages of a run have recorded."""
        done = [row.facts for row in self.stages(run_id) if row.state == "done"]
        return {table: snapshot for facts in done for table, snapshot in _numbers(facts.get(WRITTEN, {})).items()}

    def parent(self, run: sa.Row[Any]) -> Revision:
        """The revision that a run builds on, as it was when the run began."""
        row = self.at(run.parent)
        if run.base is None:
            return row
        return replace(row, since=run.base["since"], snapshots=_numbers(run.base["snapshots"]))

    def pinned(self, without: str | None = None) -> dict[str, set[int]]:
        """Table → the snapshots that readers of some revision, or runs that may go on (but for one), still need."""
        pins: dict[str, set[int]] = {}
        newest = self.at().revision
        others = runs.c.state.in_(OPEN) & (runs.c.run_id != (without or ""))
        going = sa.select(runs).where(others & (runs.c.parent == newest))
        bases = [_numbers(row.base["snapshots"]) for row in self._rows(going) if row.base]
        for snapshots in (*(row.snapshots for row in self.revisions()), *bases):
            for table, snapshot in snapshots.items():
                pins.setdefault(table, set()).add(snapshot)
        return pins

    def stages(self, run_id: str) -> Sequence[sa.Row[Any]]:
        return self._rows(sa.select(stages).where(stages.c.run_id == run_id).order_by(stages.c.started_at))

    def history(self, newest: int) -> list[tuple[str, str, float | None, dict[str, Any]]]:
        """The finished stages of the newest published runs: (run_id, stage, seconds, facts)."""
        last = sa.select(ledger.c.run_id).order_by(ledger.c.revision.desc()).limit(newest).subquery()
        statement = sa.select(stages).join(last, last.c.run_id == stages.c.run_id).where(stages.c.state == "done")
        return [(row.run_id, row.stage, row.seconds, row.facts) for row in self._rows(statement)]

    def sizes(self) -> dict[str, dict[str, int]]:
        """Table → files, bytes, rows for a reader of the newest revision, by the last publish or compaction."""
        last = stages.c.stage.in_(["publish", "compact"]) & (stages.c.state == "done")
        rows = self._rows(sa.select(stages).where(last).order_by(stages.c.started_at.desc()).limit(1))
        return dict(rows[0].facts.get("tables", {})) if rows else {}

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

    def begin(self, run_id: str, parent: int, epochs: list[int], config: dict[str, Any], kind: str = "run") -> None:
        row = {"run_id": run_id, "parent": parent, "epochs": epochs, "config": config, "kind": kind}
        with self.engine.begin() as connection:
            connection.execute(runs.insert().values(**row, state="running", started_at=now(), beat_at=now()))
            # in the transaction that makes the run, so that no compaction comes between the look and the pin
            found = connection.execute(sa.select(ledger).where(ledger.c.revision == parent).with_for_update()).first()
            base = {"since": found.since, "snapshots": found.snapshots} if found else {"since": None, "snapshots": {}}
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(base=base))

    def take(self, run_id: str) -> None:
        """Take the lease on a run; one that failed and is tried again is running then. Raises `LeaseLost`."""
        row = self.run(run_id)
        free = (row.owner is None or row.owner == self.owner() or not lease.beats(row)) and not (
            row.discarded and row.state != "published"
        )
        seen = (runs.c.owner == row.owner) & (runs.c.beat_at == row.beat_at) if row.owner else runs.c.owner.is_(None)
        taken: dict[str, str | None] = {"owner": self.owner(), "beat_at": now()}
        taken |= {"state": "running", "error": None, "finished_at": None} if row.state in OPEN else {}
        with self.engine.begin() as connection:
            mine = (runs.c.run_id == run_id) & (runs.c.state == row.state) & seen
            if not free or not connection.execute(runs.update().where(mine).values(**taken)).rowcount:
                raise self._lost(connection, run_id)
        self._leases.add(run_id)

    def give_back(self, run_id: str) -> None:
        """End the lease: another process may take it."""
        self._leases.discard(run_id)
        with self.engine.begin() as connection:
            mine = (runs.c.run_id == run_id) & (runs.c.owner == self.owner())
            connection.execute(runs.update().where(mine).values(owner=None, beat_at=now()))

    def beat(self, run_id: str) -> None:
        """A heartbeat of the process that holds the lease. Raises `LeaseLost` when it has lost it."""
        with self._writing(run_id):
            pass

    @contextlib.contextmanager
    def _writing(self, run_id: str | None) -> Iterator[sa.Connection]:
        """A transaction that writes for a run, by the process that holds its lease. Raises `LeaseLost`."""
        with self.engine.begin() as connection:
            if run_id in self._leases:
                mine = (runs.c.run_id == run_id) & (runs.c.owner == self.owner())
                if not connection.execute(runs.update().where(mine).values(beat_at=now())).rowcount:
                    raise self._lost(connection, str(run_id))
            yield connection

    def _lost(self, connection: sa.Connection, run_id: str) -> LeaseLost:
        row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one()
        if row.discarded or row.state == "superseded":
            what = f"run {run_id} was taken for dead and given up ({row.error})"
        elif row.owner is None:
            what = f"another process has worked on run {run_id} since (state {row.state}, last heartbeat {row.beat_at})"
        else:
            host = row.owner.split("/")[0].rpartition(".")[0] or row.owner.split("/")[0]
            pid = row.owner.rsplit("/", 2)[1]
            what = f"process {pid} on {host} works on run {run_id} (last heartbeat {row.beat_at})"
        return LeaseLost(f"{what}. Nothing was changed here.", "altneu status; then run the same command again")

    def finish(self, run_id: str, state: str, error: str | None = None) -> None:
        """The end of a run. What is published or superseded stays so, whatever happens after."""
        where = (runs.c.run_id == run_id) & runs.c.state.not_in(["published", "superseded"])
        with self._writing(run_id) as connection:
            connection.execute(runs.update().where(where).values(state=state, error=error, finished_at=now()))

    def overtaken(self, run_id: str) -> Conflict | None:
        """Has another run published on this one's parent? Then it is recorded as superseded; the error to raise."""
        run = self.run(run_id)
        newest = self.at().revision
        if run.kind == "compact" or run.state in ("published", "done") or newest == run.parent:
            return None
        won = self.at(run.parent + 1)
        if run.state != "superseded":
            over = {"state": "superseded", "error": f"superseded by revision {won.revision}", "finished_at": now()}
            with self._writing(run_id) as connection:
                connection.execute(
                    runs.update().where((runs.c.run_id == run_id) & runs.c.state.in_(OPEN)).values(**over)
                )
        return Conflict(
            f"run {run_id} builds on revision {run.parent}, but run {won.run_id} has published revision "
            f"{won.revision} meanwhile. Nothing of this run was published.",
            "run the same command again",
        )

    def give_up(self) -> list[str]:
        """End the leases of `leftovers`, so that their branches can go; one that was killed is told as such. Which."""
        gone = []
        killed = {"state": "failed", "error": "it stopped without a word (killed, or the machine went down)"}
        for row in self._leftovers():
            with self.engine.begin() as connection:
                same = (runs.c.run_id == row.run_id) & (runs.c.state == row.state) & (runs.c.beat_at == row.beat_at)
                end = {"finished_at": last_word(row), **killed} if row.state == "running" else {}
                if connection.execute(runs.update().where(same).values(owner=None, **end)).rowcount:
                    gone.append(row.run_id)
        return gone

    def undone(self) -> set[str]:
        """Runs that may have branches; whatever a process that was taken for dead makes for another one is garbage."""
        return {row.run_id for row in self._rows(sa.select(runs.c.run_id).where(runs.c.discarded.is_not(True)))}

    def discard(self, run_ids: list[str]) -> None:
        """Note that these runs have no branches any more."""
        with self.engine.begin() as connection:
            connection.execute(runs.update().where(runs.c.run_id.in_(run_ids)).values(discarded=True))

    def stage(self, run_id: str, stage: str, state: str, started: float, facts: dict[str, Any]) -> None:
        """Record that a stage started (`running`), or ended (`done`, `failed`) with its facts."""
        row = {
            "state": state,
            "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
            "seconds": None if state == "running" else time.time() - started,
            "facts": facts,
        }
        where = (stages.c.run_id == run_id) & (stages.c.stage == stage)
        with self._writing(run_id) as connection:
            if not connection.execute(stages.update().where(where).values(**row)).rowcount:
                connection.execute(stages.insert().values(run_id=run_id, stage=stage, **row))

    def put_batches(self, run_id: str, rows: list[dict[str, Any]]) -> None:
        self._replace(run_id, batches, batches.c.run_id == run_id, [{"run_id": run_id, **row} for row in rows])

    def put_totals(self, run_id: str, measures: Iterable[str], rows: Iterable[tuple[str, int, int, int]]) -> None:
        """Replace the run's total diffs of these measures by `(measure, k, epoch, diff)` rows."""
        where = (totals.c.run_id == run_id) & totals.c.measure.in_(list(measures))
        listed = [
            {"run_id": run_id, "measure": measure, "k": k, "epoch": epoch, "diff": diff}
            for measure, k, epoch, diff in rows
            if diff
        ]
        self._replace(run_id, totals, where, listed)

    def put_checks(self, run_id: str | None, revision: int, rows: list[dict[str, Any]]) -> None:
        """Add check results; a retried stage of a run replaces its own."""
        at = now()
        where = checks.c.run_id == run_id if run_id is not None else sa.false()
        listed = [{"run_id": run_id, "revision": revision, "at": at, **row} for row in rows]
        self._replace(run_id, checks, where, listed)

    def _replace(
        self, run_id: str | None, table: sa.Table, where: sa.ColumnElement[bool], rows: list[dict[str, Any]]
    ) -> None:
        with self._writing(run_id) as connection:
            connection.execute(table.delete().where(where))
            if rows:
                connection.execute(table.insert(), rows)

    def publish(
        self,
        run_id: str,
        parent: int,
        frontier: int | None,
        snapshots: dict[str, int],
        digest: str,
        mark: str | None,
        since: int | None = None,
        again: Revision | None = None,
    ) -> Revision:
        """Insert the ledger row: the one moment at which a run becomes visible. Raises `Conflict`, `LeaseLost`.

        `again`: the revision whose state it publishes again; refused when a compaction has changed its pins meanwhile.
        """
        on = self.at(parent) if again is None else again
        row = {
            "revision": parent + 1,
            "parent": parent,
            "run_id": run_id,
            "frontier": NOTHING if frontier is None else frontier,
            "snapshots": texts(snapshots),
            "config_digest": digest,
            "mark": mark,
            "published_at": now(),
            "since": since,
            # a compacted snapshot that both read holds the rows of the revisions in between, too
            "hidden": [*on.hidden] if again is None else [*on.hidden, (again.revision + 1, parent)],
        }
        try:
            with self._writing(run_id) as connection:
                connection.execute(ledger.insert().values(**row))
                if again is not None and again.revision:
                    pins = sa.select(ledger.c.snapshots).where(ledger.c.revision == again.revision).with_for_update()
                    if _numbers(connection.execute(pins).scalar_one()) != again.snapshots:
                        raise Conflict(
                            f"a compaction has changed revision {again.revision} meanwhile. Nothing was published.",
                            "run the same command again",
                        )
                connection.execute(
                    runs.update()
                    .where(runs.c.run_id == run_id)
                    .values(state="published", error=None, finished_at=now())
                )
        except sa.exc.IntegrityError:
            won = self.at(parent + 1)
            if won.run_id == run_id:  # our own insert, whose answer was lost
                return won
            conflict = self.overtaken(run_id)
            assert conflict is not None
            raise conflict from None
        return self.at(parent + 1)

    def pin(
        self, run_id: str, snapshots: dict[str, int], revisions: list[int], since: int | None, dropped: list[int]
    ) -> None:
        """After a compaction: `revisions` are read from these snapshots now, and `dropped` ones not any more. Raises
        `LeaseLost`."""
        with self._writing(run_id) as connection:
            mine = ledger.c.revision.in_(revisions)
            connection.execute(ledger.update().where(mine).values(snapshots=texts(snapshots), since=since))
            connection.execute(ledger.update().where(ledger.c.revision.in_(dropped)).values(snapshots={}))

    def known_digests(self) -> dict[str, tuple[str, str]]:
        """Path → (stamp, digest) of every landed file read before."""
        return {row.path: (row.stamp, row.digest) for row in self._rows(sa.select(digests))}

    def put_digests(self, found: dict[str, tuple[str, str]]) -> None:
        """Remember them, where the database can be written; others may be about to remember the same ones."""
        if not found:
            return
        # in one order for all writers, so that none waits for one that waits for it
        rows = [{"path": path, "stamp": stamp, "digest": digest} for path, (stamp, digest) in sorted(found.items())]
        dialect = postgresql if self.engine.dialect.name == "postgresql" else sqlite
        add = dialect.insert(digests)
        renew = {name: add.excluded[name] for name in ("stamp", "digest")}
        try:
            with self.engine.begin() as connection:
                connection.execute(add.on_conflict_do_update(index_elements=["path"], set_=renew), rows)
        except sa.exc.OperationalError as error:
            if "readonly" not in str(error.orig):
                raise


def texts(snapshots: dict[str, int]) -> dict[str, str]:
    return {table: str(snapshot) for table, snapshot in snapshots.items()}


def _numbers(snapshots: dict[str, str]) -> dict[str, int]:
    return {table: int(snapshot) for table, snapshot in snapshots.items()}


def last_word(run: sa.Row[Any]) -> str:
    """When a run ended, or last sent a heartbeat."""
    return str(run.finished_at or run.beat_at or run.started_at)


def alive(run: sa.Row[Any]) -> bool:
    """Does a process work on the run, or did one until a minute ago?"""
    return run.state == "running" and lease.beats(run)


def _revision(row: sa.Row[Any]) -> Revision:
    return Revision(
        row.revision,
        row.parent,
        row.run_id,
        None if row.frontier == NOTHING else row.frontier,
        _numbers(row.snapshots),
        row.config_digest,
        row.mark,
        row.published_at,
        row.since,
        tuple((first, last) for first, last in row.hidden or ()),
    )
