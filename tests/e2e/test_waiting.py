"""PostgreSQL: who waits for another writer's row says so; who waits too long is told by whom and what to do."""

from __future__ import annotations

import logging
import threading

import pytest
import sqlalchemy as sa

from altneu.pipeline.errors import describe_error
from altneu.pipeline.state import database
from altneu.pipeline.state.schema import digests
from tests import home_helpers

ROW = {"path": "a.csv", "stamp": "1", "digest": "d"}


def test_waiting_for_a_row_is_told(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS_UNTIL_MESSAGE", 0.05)
    ledger = home_helpers.open_database(postgres)
    other = sa.create_engine(postgres, poolclass=sa.NullPool)
    told: list[str] = []
    heard = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            heard.set()

    handler = Heard()
    logging.getLogger("altneu").addHandler(handler)
    try:
        with other.connect() as connection:
            connection.execute(digests.insert().values(ROW))
            waiting = threading.Thread(target=ledger.digests.put, args=({"a.csv": ("2", "e")},))
            waiting.start()
            assert heard.wait(30)
            connection.commit()
            waiting.join()
    finally:
        logging.getLogger("altneu").removeHandler(handler)
    assert ledger.digests.read() == {"a.csv": ("2", "e")}
    assert told == [f"waiting for another writer of {postgres}"]


def test_waiting_for_a_row_ends(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    ledger = home_helpers.open_database(postgres)
    other = sa.create_engine(postgres, poolclass=sa.NullPool)
    with other.connect() as connection:
        connection.execute(digests.insert().values(ROW))
        with pytest.raises(sa.exc.OperationalError) as error:
            ledger.digests.put({"a.csv": ("2", "e")})
    what, then = describe_error(error.value)
    assert what.startswith(f"the database {postgres} is locked by another writer (waited")
    assert then is not None and "same command again" in then
    assert ledger.digests.read() == {}


def test_connections_end_with_their_ledgers(postgres: str) -> None:
    name = sa.make_url(postgres).database
    query = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()")
    ledgers = [home_helpers.open_database(postgres) for _ in range(20)]
    assert all(ledger.revisions.get().revision == 0 for ledger in ledgers)
    watcher = sa.create_engine(postgres, poolclass=sa.NullPool)

    def connections() -> int:
        with watcher.connect() as connection:
            return connection.execute(query, {"name": name}).scalar_one()

    assert connections() == 1
    ledgers.clear()
    for _ in range(200):  # a server's process takes a moment to end
        if not connections():
            break
        threading.Event().wait(0.05)
    assert connections() == 0
