"""One engine a database and process, gone with its users; waiting for another writer is reported, and ends."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from altneu.pipeline import cli
from altneu.pipeline.interrupt import Interrupted
from altneu.pipeline.state import database
from altneu.pipeline.tasks import dag_epochs
from tests import home_helpers


def descriptors(file: Path) -> int:
    """How many of this process's descriptors are this file's."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(descriptor) == str(file)
        except OSError:
            continue
    return found


class User:
    pass


def test_users_of_one_database_share_an_engine_until_the_last_one_is_gone(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'a.db'}"
    first, second = User(), User()
    engine = database.acquire_engine(uri, first)
    assert database.acquire_engine(uri, second) is engine
    assert database.acquire_engine(f"sqlite:///{tmp_path / 'b.db'}", second) is not engine
    disposed = []
    sa.event.listen(engine, "engine_disposed", disposed.append)
    del first
    assert not disposed and uri in database._engines
    del second
    assert disposed == [engine] and uri not in database._engines


def test_ledgers_leave_no_descriptors(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    ledgers = [home_helpers.open_database(f"sqlite:///{file}") for _ in range(20)]
    assert all(ledger.revisions.get().revision == 0 for ledger in ledgers)
    assert descriptors(file) == 0
    assert len({id(ledger.database.engine) for ledger in ledgers}) == 1


def test_the_sensor_leaves_no_descriptors(tmp_path: Path) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[epochs]\nevery = "1d"\n')
    uri = home.database
    del ledger
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        landing = dag_epochs.check_landing(str(home.path), 19_000, patience=timedelta(1), manual=False)
        assert landing.state == "waiting"
    assert len(os.listdir("/proc/self/fd")) <= before and uri not in database._engines


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    """A pooled connection is not taken along: the child's pool has nothing to hand out."""
    user = User()
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'a.db'}", poolclass=sa.QueuePool)
    database._engines["pooled"] = database._SharedEngine(engine, 1)
    engine.connect().close()
    try:
        assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]
        child = os.fork()
        if child == 0:
            os._exit(engine.pool.checkedin())  # type: ignore[attr-defined]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    finally:
        del database._engines["pooled"], user
        engine.dispose()


def locked(home: Path) -> sqlite3.Connection:
    other = sqlite3.connect(home / "altneu.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    return other


def test_a_locked_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    home, ledger = home_helpers.make(tmp_path / "home")
    home_helpers.put(home, 1, [("1", "2", None, "upsert", 0)])
    del ledger
    monkeypatch.setattr(database, "SECONDS_UNTIL_MESSAGE", 0.01)
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    other = locked(home.path)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(home.path), "status"])
    finally:
        other.close()
    shown = capsys.readouterr().err
    assert ended.value.code == 1
    assert f"the database {home.path / 'altneu.db'} is locked by another writer (waited" in shown
    assert "next: " in shown and "fuser" in shown and "Traceback" not in shown


def test_a_writer_waits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other ends when the waiting has been told: the write goes through, once."""
    home, ledger = home_helpers.make(tmp_path / "home")
    monkeypatch.setattr(database, "SECONDS_UNTIL_MESSAGE", 0.01)
    other = locked(home.path)
    told = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    def let_go() -> None:
        assert told.wait(30)
        other.rollback()

    handler = Heard()
    logging.getLogger("altneu").addHandler(handler)
    helper = threading.Thread(target=let_go)
    helper.start()
    try:
        rows = [("edges", 0, epoch, 1) for epoch in range(1000)]
        ledger.outputs.put_totals("r", ["edges"], rows)
    finally:
        helper.join()
        logging.getLogger("altneu").removeHandler(handler)
        other.close()
    assert len(ledger.outputs.staged_totals("r", 1)) == 1000
    text = f"waiting for another writer of {home.path / 'altneu.db'}"
    assert [record.getMessage() for record in caplog.records] == [text]


@pytest.mark.parametrize("way", ["connection", "transaction"])
def test_a_read_that_a_signal_breaks_off_locks_nothing(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interruption keeps the cursor of the read, by its traceback, while the failure of the run is recorded."""
    table = sa.Table("t", sa.MetaData(), sa.Column("x", sa.Integer))
    retry = database._retry_while_locked

    def attempt_and_break_off(file: str, attempt: Callable[..., object], *arguments: object) -> None:
        retry(file, attempt, *arguments)
        raise Interrupted

    with database.shared_engine(f"sqlite:///{tmp_path / 'a.db'}") as engine:
        table.create(engine)
        with engine.begin() as connection:
            connection.execute(table.insert(), [{"x": 1}, {"x": 2}])
        monkeypatch.setattr(database, "_retry_while_locked", attempt_and_break_off)
        try:
            with engine.connect() if way == "connection" else engine.begin() as connection:
                connection.execute(sa.select(table))
        except Interrupted as error:
            monkeypatch.setattr(database, "_retry_while_locked", retry)
            monkeypatch.setattr(database, "PATIENCE", 1.0)
            with engine.begin() as connection:
                connection.execute(table.insert(), [{"x": 3}])
            assert error.__traceback__ is not None
        with engine.connect() as connection:
            assert connection.execute(sa.select(table)).scalars().all() == [1, 2, 3]


def test_a_lost_database_file_is_no_lock(tmp_path: Path) -> None:
    """Other errors of the database are raised at once, as they are."""
    home, ledger = home_helpers.make(tmp_path / "home")
    shutil.rmtree(home.path)
    with pytest.raises(sa.exc.OperationalError, match="unable to open database file"):
        ledger.revisions.get()


def test_a_restart_of_the_server_between_two_questions_is_not_noticed(postgres: str) -> None:
    """A process that lives long, such as that of Airflow's page, has kept a connection that is gone since."""
    ledger = home_helpers.open_database(postgres)
    assert ledger.revisions.get().revision == 0
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    others += "AND pid <> pg_backend_pid()"
    with sa.create_engine(postgres, poolclass=sa.NullPool).connect() as another:
        assert another.execute(sa.text(others)).all(), "it had kept one"
    assert ledger.revisions.get().revision == 0
