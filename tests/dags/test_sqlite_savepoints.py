"""A savepoint in a SQLite database of Airflow waits for another writer, where SQLite alone would refuse at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from altneu.pipeline.scheduling import sqlite_savepoints


@pytest.fixture
def locks() -> Iterator[None]:
    sqlite_savepoints.lock_at_savepoints()
    sqlite_savepoints.lock_at_savepoints()  # twice is once
    yield
    event.remove(sa.Engine, "savepoint", sqlite_savepoints._take_write_lock)


def write_beside_another(file: Path) -> str:
    """What another writer meets that comes between a read and a write in a savepoint."""
    with sqlite3.connect(file) as first:
        first.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER)")
    first.close()
    engine = sa.create_engine(f"sqlite:///{file}?timeout=1")
    met = "nothing"
    with engine.connect() as connection, connection.begin(), connection.begin_nested():
        assert connection.execute(sa.text("SELECT count(*) FROM t")).scalar() == 0
        other = sqlite3.connect(file, timeout=0)
        try:
            other.execute("INSERT INTO t VALUES (1)")
            other.commit()
        except sqlite3.OperationalError as error:
            met = str(error)
        other.close()
        connection.execute(sa.text("INSERT INTO t VALUES (2)"))
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT n FROM t")).scalars().all() == [2]
    engine.dispose()
    return met


def test_sqlite_alone_refuses_the_savepoint(tmp_path: Path) -> None:
    with pytest.raises(sa.exc.OperationalError, match="database is locked"):
        write_beside_another(tmp_path / "airflow.db")


def test_the_other_writer_waits_for_the_savepoint(tmp_path: Path, locks: None) -> None:
    assert write_beside_another(tmp_path / "airflow.db") == "database is locked"


def test_a_savepoint_after_a_write_begins_no_other_transaction(tmp_path: Path, locks: None) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'airflow.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (n INTEGER)"))
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        with connection.begin_nested() as inner:
            connection.execute(sa.text("INSERT INTO t VALUES (2)"))
            inner.rollback()
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT n FROM t")).scalars().all() == [1]
    engine.dispose()
