"""The SQL databases of homes: one shared engine for each database in a process, and waiting for other writers.

An engine is disposed of when its last user is gone. A forked child process opens connections of its own, and never uses
its parent's. A process that waits for another writer says so after `SECONDS_UNTIL_MESSAGE` seconds, and gives up after
`PATIENCE`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ..errors import Unavailable, describe_error
from ..optional_dependencies import require_extras

SECONDS_UNTIL_MESSAGE = 2.0  # seconds of waiting for another writer until a message says so
PATIENCE = 60.0  # seconds of waiting until it is an error
LOCKED = "is locked by another writer"
CONNECT = 10  # seconds to wait for a connection to a server

log = logging.getLogger("altneu")
T = TypeVar("T")


@dataclass
class _SharedEngine:
    engine: sa.Engine | None = None
    users: int = 0


_engines: dict[str, _SharedEngine] = {}
_lock = threading.RLock()  # reentrant: the garbage collector may end a user while this thread holds the lock


def acquire_engine(uri: str, user: object) -> sa.Engine:
    """Return the engine of a database, by its SQLAlchemy URI. It is shared, and lives at least as long as `user`."""
    with _lock:
        shared = _engines.setdefault(uri, _SharedEngine())
        shared.users += 1
        weakref.finalize(user, _release_engine, uri, shared)
        if shared.engine is None:
            shared.engine = _create_engine(uri)
        return shared.engine


@contextlib.contextmanager
def shared_engine(uri: str) -> Iterator[sa.Engine]:
    """Hold the engine of a database: code in the block that needs the database gets the same engine."""
    user = _EngineUser()
    yield acquire_engine(uri, user)


@contextlib.contextmanager
def open_connection(uri: str) -> Iterator[sa.Connection]:
    """Hold a connection to a database. Raises `Unavailable` where the database does not answer."""
    with translate_errors(uri), shared_engine(uri) as engine, engine.connect() as connection:
        yield connection


class _EngineUser:
    """The user of an engine for the duration of a block."""


def redact_uri(uri: str) -> str:
    """Return the name of a database for messages: its file, or its URI without the password."""
    url = sa.make_url(uri)
    return str(url.database) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


@contextlib.contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Run the block, and raise `Unavailable`, with the database's name, where it does not answer or stays locked."""
    try:
        yield
    except sa.exc.OperationalError as error:
        if LOCKED in str(error):
            raise Unavailable(*describe_error(error)) from None
        whole = sa.make_url(uri).render_as_string(hide_password=True)
        raise Unavailable(f"the database {whole} does not answer: {error.orig}.", "altneu doctor") from None


def _release_engine(uri: str, shared: _SharedEngine) -> None:
    with _lock:
        shared.users -= 1
        if shared.users or shared.engine is None:
            return
        if _engines.get(uri) is shared:
            del _engines[uri]
    shared.engine.dispose()


def _forget_parent_connections() -> None:
    """Leave the parent's connections alone, without closing them. A child process calls this."""
    global _lock
    _lock = threading.RLock()
    for shared in _engines.values():
        if shared.engine is not None:
            shared.engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_parent_connections)


def _create_engine(uri: str) -> sa.Engine:
    if sa.make_url(uri).get_backend_name() == "sqlite":
        # opening a file takes no time, and an unused connection would keep a file descriptor
        arguments: dict[str, Any] = {"timeout": min(SECONDS_UNTIL_MESSAGE, PATIENCE), "factory": _Connection}
        return sa.create_engine(uri, poolclass=sa.NullPool, connect_args=arguments)
    if sa.make_url(uri).get_driver_name() == "psycopg":
        require_extras("a database in PostgreSQL", "postgres")
    # hence pool_pre_ping: a connection in the pool may be from before a restart of the server
    engine = sa.create_engine(uri, connect_args={"connect_timeout": CONNECT}, pool_pre_ping=True)
    if engine.dialect.name == "postgresql":
        sa.event.listen(engine, "connect", _limit_locks)
        sa.event.listen(engine, "before_cursor_execute", _start_wait_timer)
        sa.event.listen(engine, "after_cursor_execute", _stop_wait_timer)
        sa.event.listen(engine, "handle_error", _translate_failure, retval=True)
    return engine


# -- SQLite ------------------------------------------------------------------------------------------------------


class DatabaseLocked(sqlite3.OperationalError):
    """Another writer has kept the database locked for too long."""


class _Connection(sqlite3.Connection):
    """A connection that waits for other writers, and that holds no lock once it is closed.

    SQLite keeps the lock of a closed connection while a query of it is not over. That is so where a signal has broken
    it off and the traceback still refers to the cursor; then this process would wait for itself.
    """

    def __init__(self, database: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(database, *arguments, **options)
        self.file = str(database)
        self._cursors = weakref.WeakSet[sqlite3.Cursor]()

    def cursor(self, factory: Any = None) -> Any:
        cursor = super().cursor(factory or _Cursor)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        for cursor in [*self._cursors]:
            cursor.close()
        super().close()

    def commit(self) -> None:
        _retry_while_locked(self.file, super().commit)


class _Cursor(sqlite3.Cursor):
    """A cursor that tries a statement again while another writer holds the lock.

    A refused statement has changed nothing, and `executemany` takes its lock before the first row. So both can be
    repeated unchanged.
    """

    connection: _Connection

    def execute(self, *arguments: Any) -> Any:
        return _retry_while_locked(self.connection.file, super().execute, *arguments)

    def executemany(self, *arguments: Any) -> Any:
        return _retry_while_locked(self.connection.file, super().executemany, *arguments)


def _retry_while_locked(file: str, attempt: Callable[..., T], *arguments: Any) -> T:
    """Call `attempt`, again while another writer locks the file, but after no other error."""
    try:
        return attempt(*arguments)
    except sqlite3.OperationalError as error:
        if not _is_locked(error):
            raise

    def announce_wait(state: RetryCallState) -> None:
        if state.attempt_number == 1:
            _announce_waiting(file)

    def raise_locked(state: RetryCallState) -> NoReturn:
        cause = state.outcome.exception() if state.outcome else None
        raise DatabaseLocked(f"the database {file} {LOCKED} (waited {state.seconds_since_start or 0:.0f} s)") from cause

    retry = Retrying(
        retry=retry_if_exception(_is_locked),
        wait=wait_fixed(0.02),  # SQLite itself does not wait where this could be a deadlock
        stop=stop_after_delay(PATIENCE),
        before_sleep=announce_wait,
        retry_error_callback=raise_locked,
    )
    return retry(attempt, *arguments)


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _announce_waiting(database: str) -> None:
    log.warning("waiting for another writer of %s", database)


# -- PostgreSQL --------------------------------------------------------------------------------------------------

LOCK_NOT_AVAILABLE = "55P03"


def _limit_locks(connection: Any, record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {int(PATIENCE * 1000)}")
    connection.commit()


def _start_wait_timer(
    connection: sa.Connection, cursor: Any, statement: str, arguments: Any, context: Any, many: bool
) -> None:
    process = cursor.connection.info.backend_pid
    context.altneu_watch = threading.Timer(SECONDS_UNTIL_MESSAGE, _announce_if_blocked, (connection.engine, process))
    context.altneu_watch.daemon = True
    context.altneu_watch.start()


def _stop_wait_timer(
    connection: sa.Connection, cursor: Any, statement: str, arguments: Any, context: Any, many: bool
) -> None:
    _cancel_timer(context)


def _translate_failure(context: sa.engine.ExceptionContext) -> BaseException | None:
    """Return the error to raise instead of one of the database, if any."""
    _cancel_timer(context.execution_context)
    error = context.original_exception
    if getattr(error, "sqlstate", None) != LOCK_NOT_AVAILABLE or context.engine is None:
        return None
    locked = DatabaseLocked(f"the database {redact_uri(str(context.engine.url))} {LOCKED} (waited {PATIENCE:.0f} s)")
    return sa.exc.OperationalError(context.statement, context.parameters, locked)


def _cancel_timer(context: Any) -> None:
    watch = getattr(context, "altneu_watch", None)
    if watch is not None:
        watch.cancel()


def _announce_if_blocked(engine: sa.Engine, process: int) -> None:
    try:
        with engine.connect() as connection:
            blocking = connection.execute(sa.select(sa.func.cardinality(sa.func.pg_blocking_pids(process)))).scalar()
    except sa.exc.SQLAlchemyError:  # the statement itself will report the error
        return
    if blocking:
        _announce_waiting(redact_uri(str(engine.url)))
