"""Savepoints in a SQLite database of Airflow: a transaction that begins with one takes the write lock at once.

SQLite lets a transaction read at first and ask for the write lock later, and refuses that at once ("database is
locked", whatever the timeout) if another process has written meanwhile. `airflow backfill create` does so beside a
scheduler that writes all the time. Where the lock is asked for at the beginning, the transaction waits for it.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import event


def lock_at_savepoints() -> None:
    """Let each transaction of this process in SQLite that begins with a savepoint take the write lock."""
    if not event.contains(sa.Engine, "savepoint", _take_write_lock):
        event.listen(sa.Engine, "savepoint", _take_write_lock)


def _take_write_lock(connection: sa.Connection, name: str | None) -> None:
    if connection.dialect.driver == "pysqlite" and not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
        connection.exec_driver_sql("BEGIN IMMEDIATE")
