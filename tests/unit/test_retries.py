"""What is tried again by itself, and what is not: each retry names its reason."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import DefaultPolicy, Retrying

from altneu.pipeline.errors import Unavailable
from altneu.pipeline.state import database
from altneu.pipeline.storage import iceberg, spark_connect_client
from altneu.pipeline.storage.branches import COMMITS, Branches
from altneu.pipeline.storage.warehouse import _is_creation_race


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those of retries alone: other threads poll with `time.sleep`, and would spin."""
    found: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=found.append))
    assert time.sleep != found.append
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
    change = Changes(3, iceberg.CommitConflict())
    branches().commit_change("edges", change)
    assert change.tries == 4 and len(sleeps) == 3


def test_after_many_tries_it_says_so(sleeps: list[float]) -> None:
    change = Changes(1_000, iceberg.CommitConflict())
    with pytest.raises(Unavailable, match=f"table edges: other writers committed first, {COMMITS} times in a row"):
        branches().commit_change("edges", change)
    assert change.tries == COMMITS


def test_another_failure_of_a_commit_is_raised_at_once(sleeps: list[float]) -> None:
    change = Changes(1_000, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        branches().commit_change("edges", change)
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
    assert _is_creation_race(PySparkException(says)) is again
    assert not _is_creation_race(ValueError(says))


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
    with pytest.raises(database.DatabaseLocked, match="is locked by another writer"):
        connection.cursor().execute("CREATE TABLE t (x)")
    assert sleeps
    assert [record.getMessage() for record in caplog.records] == [f"waiting for another writer of {tmp_path / 'a.db'}"]
    connection.close()
    other.close()


class Refused(grpc.RpcError):
    """As gRPC says that a call has failed."""

    def __init__(self, status: grpc.StatusCode, says: str = "") -> None:
        super().__init__(says)
        self.code = lambda: status


class Server:
    """One that says nothing until `back`, by a clock of its own; a call takes no time."""

    def __init__(self, back: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.back, self.calls = 0.0, back, 0
        self.error = Refused(grpc.StatusCode.UNAVAILABLE)
        self.policies = [spark_connect_client._RetryPolicy("sc://far:1"), DefaultPolicy()]
        monkeypatch.setattr(spark_connect_client, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def call(self) -> float:
        """When it has answered."""
        for attempt in Retrying(self.policies, self._pass):
            with attempt:
                self.calls += 1
                if self.now < self.back:
                    raise self.error
                return self.now
        raise AssertionError


def test_a_server_that_is_silent_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(20, monkeypatch)
    assert server.call() == 20
    server.back = 40  # another call has as long
    assert server.call() == 40


def test_a_server_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(1_000, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PySpark's own words
        with pytest.raises(Unavailable, match="the Spark Connect server at sc://far:1 does not answer any more"):
            server.call()
    given_up, calls = server.now, server.calls
    assert given_up == spark_connect_client.PATIENCE
    with pytest.raises(Unavailable):
        server.call()
    assert (server.now, server.calls) == (given_up, calls + 1), "what cleans up does not wait"


def test_a_session_that_the_server_has_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(1_000, monkeypatch)
    server.error = Refused(grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid.")
    with pytest.raises(Unavailable, match="the Spark Connect server at sc://far:1 has lost the session"):
        server.call()
    assert (server.now, server.calls) == (0, 1)


def test_a_server_whose_machine_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is closed: it just says nothing any more."""
    monkeypatch.setattr(spark_connect_client, "ALIVE_MS", 1000)
    begun, over = threading.Event(), threading.Event()

    class Works(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
                begun.set()
                over.wait(60)
                yield b""

            return grpc.unary_stream_rpc_method_handler(answer)

    rarely = [("grpc.http2.min_ping_interval_without_data_ms", 100)]
    server = grpc.server(ThreadPoolExecutor(1), [Works()], options=rarely)
    relay = Relay(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    try:
        soon = [*spark_connect_client._channel_options(), ("grpc.http2.ping_timeout_ms", 1000)]
        channel = spark_connect_client._SparkChannel(f"sc://127.0.0.1:{relay.port}", soon).toChannel()
        call = channel.unary_stream("/spark/works")(b"", timeout=30)
        assert begun.wait(30)
        relay.silent.set()
        with pytest.raises(grpc.RpcError) as raised:
            next(call)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert spark_connect_client._RetryPolicy("sc://far:1").can_retry(raised.value)
    finally:
        over.set()
        relay.close()
        server.stop(0).wait()


class Relay:
    """In front of a port: passes on what comes, until it is `silent`: then nothing, and closes nothing."""

    def __init__(self, target: int) -> None:
        self.silent = threading.Event()
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = self._sockets[0].getsockname()[1]
        threading.Thread(target=self._accept, args=(target,), daemon=True).start()

    def _accept(self, target: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                here = self._sockets[0].accept()[0]
                there = socket.create_connection(("127.0.0.1", target))
                self._sockets += [here, there]
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.silent.is_set():
                    to.sendall(data)

    def close(self) -> None:
        for each in self._sockets:
            each.close()
