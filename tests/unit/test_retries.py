"""What is tried again by itself, and what is not: each retry names its reason."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from pipeline.errors import Unavailable
from pipeline.state import database
from pipeline.storage import iceberg
from pipeline.storage.branches import COMMITS, Branches
from pipeline.storage.warehouse import _raced


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", found.append)
    return found


class Changes:
    """A change that fails so many times before it works."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.tries = failures, error, 0

    def __call__(self, table: object) -> None:
        self.tries += 1
        if self.tries <= self.failures:
            raise self.error


def branches() -> Branches:
    return Branches(["edges"], lambda table: object())  # type: ignore[arg-type,return-value]


def test_a_commit_that_others_overtake_is_tried_again(sleeps: list[float]) -> None:
    change = Changes(3, iceberg.Overtaken())
    branches().change("edges", change)
    assert change.tries == 4 and len(sleeps) == 3


def test_after_many_tries_it_says_so(sleeps: list[float]) -> None:
    change = Changes(1_000, iceberg.Overtaken())
    with pytest.raises(Unavailable, match=f"table edges: other writers committed first, {COMMITS} times in a row"):
        branches().change("edges", change)
    assert change.tries == COMMITS


def test_another_failure_of_a_commit_is_raised_at_once(sleeps: list[float]) -> None:
    change = Changes(1_000, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        branches().change("edges", change)
    assert (change.tries, sleeps) == (1, [])


@pytest.mark.parametrize(
    ("says", "again"),
    [
        ("[SCHEMA_ALREADY_EXISTS] Cannot create schema", True),
        ("Failed to execute: insert: UNIQUE constraint failed", True),
        ("java.io.IOException: No space left on device", False),
        ("[SQLITE_FULL] database or disk is full", False),
    ],
)
def test_tables_are_made_again_when_another_process_was_making_them(says: str, again: bool) -> None:
    assert _raced(PySparkException(says)) is again
    assert not _raced(ValueError(says))


def test_a_full_disk_is_not_waited_for(tmp_path: Path, sleeps: list[float]) -> None:
    connection = sqlite3.connect(tmp_path / "a.db", factory=database._Connection)
    connection.cursor().execute("CREATE TABLE t (x)")
    connection.cursor().execute("PRAGMA max_page_count = 3")
    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
        connection.cursor().execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()
    assert sleeps == []


def test_a_lock_is_waited_for_until_patience_ends(
    tmp_path: Path, sleeps: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    connection = sqlite3.connect(tmp_path / "a.db", factory=database._Connection, timeout=0.001)
    with pytest.raises(database.Locked, match="is locked by another writer"):
        connection.cursor().execute("CREATE TABLE t (x)")
    assert sleeps
    assert [record.getMessage() for record in caplog.records] == [f"waiting for another writer of {tmp_path / 'a.db'}"]
    connection.close()
    other.close()
