"""What the stores of the ledger share: the engine of a home's database, reading, and writing for a run.

Where another process has taken the lease of a run, a write for this run is refused, and changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import sqlalchemy as sa

from ..errors import LeaseLost
from . import clock, database, process_identity, versions
from .records import Json, Row, RunRecord, RunState
from .schema import runs


class DatabaseSession:
    """The database of a home, by its SQLAlchemy URI. A new database gets its tables.

    With `writes`, a database of an earlier version is brought up to date; without it, newer columns may be missing.
    """

    def __init__(self, uri: str, writes: bool = False) -> None:
        self.uri = uri
        self.owner = process_identity.process_token
        self.leases: set[str] = set()  # the runs that this process works on
        self.engine = database.acquire_engine(uri, self)
        with database.translate_errors(uri):
            versions.prepare_database(self.engine, writes=writes)

    def read_rows(self, statement: sa.Select[*tuple[Any, ...]]) -> Sequence[Row]:
        """Return the rows of a query. Raises `DatabaseOutdated` where an older database does not have what it needs."""
        try:
            with self.engine.connect() as connection:
                return connection.execute(statement).all()
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
            versions.raise_if_outdated(self.engine, error)
            raise

    @contextlib.contextmanager
    def write_transaction(self, run_id: str | None) -> Iterator[sa.Connection]:
        """Hold a transaction that writes for a run whose lease this process holds. Raises `LeaseLost`."""
        with self.engine.begin() as connection:
            if run_id in self.leases:
                mine = (runs.c.run_id == run_id) & (runs.c.owner == self.owner())
                if not connection.execute(runs.update().where(mine).values(beat_at=clock.timestamp())).rowcount:
                    self.raise_lease_lost(connection, str(run_id))
            yield connection

    def replace_rows(
        self, run_id: str | None, table: sa.Table, where: sa.ColumnElement[bool], rows: list[Json]
    ) -> None:
        """Replace the rows of a table that fulfil `where`, for a run as `write_transaction` does."""
        with self.write_transaction(run_id) as connection:
            connection.execute(table.delete().where(where))
            if rows:
                connection.execute(table.insert(), rows)

    def raise_lease_lost(self, connection: sa.Connection, run_id: str) -> NoReturn:
        """Raise the error that says why this process does not hold the lease of a run."""
        row = RunRecord.from_row(connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one())
        if row.state is RunState.REJECTED:
            what = f"run {run_id} is over: it was {row.error}"
        elif row.discarded or row.state is RunState.SUPERSEDED:
            what = f"run {run_id} was overtaken, or counted as dead, and was given up ({row.error})"
        elif row.owner is None:
            what = f"another process has worked on run {run_id} since (state {row.state}, last heartbeat {row.beat_at})"
        else:
            host = row.owner.split("/")[0].rpartition(".")[0] or row.owner.split("/")[0]
            pid = row.owner.rsplit("/", 2)[1]
            what = f"process {pid} on {host} works on run {run_id} (last heartbeat {row.beat_at})"
        raise LeaseLost(f"{what}. Nothing was changed here.", "altneu status; then run the same command again")
