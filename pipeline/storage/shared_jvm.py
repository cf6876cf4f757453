"""The JVM of a home's daemon, in which the commands and tasks of the home work one after the other.

`attach_session` connects this process to it: it asks the daemon, waits for its turn (a lock on a file, which the system
releases when a process ends, however it ends), removes what the one before may have left, and opens a session of its
own. Settings, views and catalogs belong to that session; of Python nothing is shared. `detach_session` ends it. After a
signal the connection is shut at once, as if the JVM had ended; the daemon then stops the work that is left in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass, JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from .. import interrupt
from . import daemon_client
from .daemon_client import Connection, NoDaemon, caller
from .py4j_shortcuts import shorten_calls

POLL = 0.1  # seconds between two attempts to get the turn
STOP_SECONDS = 20.0  # within which cancelled jobs have to end
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_CATALOG = "spark.sql.catalog."

_held_resources = contextlib.ExitStack()  # what this process holds while it works in the JVM of a daemon


def attach_session(home: Path, rows: float, variables: Mapping[str, str]) -> SparkSession:
    """Open a session in the JVM of the home's daemon.

    Args:
        home: The folder of the home.
        rows: About how many rows the command works on.
        variables: The variables of the environment that Spark reads in this process.

    Raises:
        NoDaemon: There is no daemon, it does not fit, or this process has waited for as long as it may.
    """
    global _held_resources
    request = {"do": "attach", "needs": daemon_client.read_needs(home), "rows": rows}
    request |= {"successor": daemon_client.daemon_command(home), "at": str(daemon_client.PACKAGE.parent)}
    connection, answer = daemon_client.ask(home, request)
    with contextlib.ExitStack() as held:
        held.callback(connection.close)
        held.enter_context(_take_turn(Path(answer["turn"])))
        held.callback(_forget_session)
        try:
            with interrupt.preserve_sigint_handler():
                os.environ.update(variables)
                spark = _open_session(answer["port"], answer["secret"])
        except (OSError, Py4JError, PySparkException, RuntimeError) as error:
            with contextlib.suppress(OSError):
                connection.send({"broken": f"{type(error).__name__}: {error}"[:300]})
            raise NoDaemon("the Spark of the daemon does not answer") from error
        held.callback(_say_done, connection)
        held.callback(_close_catalogs, spark)
        interrupt.break_off = _break_off
        _held_resources = held.pop_all()
    return spark


def detach_session() -> None:
    """End the session of this process in the JVM of a daemon, if it has one."""
    _held_resources.close()


def _say_done(connection: Connection) -> None:
    """Tell the daemon that nothing is left in the JVM, unless a signal has broken the work off."""
    if interrupt.interruption_of() is None:
        with contextlib.suppress(OSError):
            connection.send({"done": 1})


@contextlib.contextmanager
def _take_turn(file: Path) -> Iterator[None]:
    """Hold the lock of the JVM during the block, and say for whom this process waits.

    Raises `NoDaemon` when the time of `caller.wait` is over.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        began, has_said = time.monotonic(), False
        while not _try_lock(descriptor):
            if caller.wait is not None and time.monotonic() - began >= caller.wait:
                raise NoDaemon(f"the daemon is still busy after {caller.wait:g} s")
            if not has_said and (text := describe_turn(file)):
                caller.show_line(f"waiting for the daemon, which works for {text}")
                has_said = True
            time.sleep(POLL)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"name": caller.name, "since": time.monotonic()}).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def describe_turn(file: Path) -> str:
    """Describe whose turn it is and since when; an empty text: nobody's, as far as the file says."""
    with contextlib.suppress(OSError, ValueError):
        turn = json.loads(file.read_text())
        return f"{turn['name']} (for {daemon_client.format_age(turn['since'])})"
    return ""


def _open_session(port: int, secret: str) -> SparkSession:
    """Connect to the gateway, make the JVM as it was at first, and open a session."""
    python: Any = SparkContext
    os.environ.update({_PORT: str(port), _SECRET: secret})
    try:
        gateway = python._gateway = launch_gateway()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    jvm = python._jvm = gateway.jvm
    _release_objects(gateway)
    of_scala = JavaClass("org.apache.spark.SparkContext", gateway._gateway_client).getOrCreate()
    context = jvm.JavaSparkContext.fromSparkContext(of_scala)
    _stop_jobs(context)
    session = jvm.SparkSession.builder().getOrCreate().newSession()
    spark = SparkSession(SparkContext(jsc=context, gateway=gateway, conf=SparkConf(_jconf=of_scala.conf())), session)
    shorten_calls(spark)
    return spark


def _release_objects(gateway: Any) -> None:
    """Release the Java objects that processes which have ended did not release themselves."""
    client = gateway._gateway_client
    objects = JavaObject("GATEWAY_SERVER", client).getGateway().getBindings().keySet()
    objects.removeIf(JavaClass("java.util.regex.Pattern", client).compile(r"o\d+").asMatchPredicate())


def _stop_jobs(context: Any) -> None:
    """Stop the jobs and release the cached rows of processes that have ended. Raises `RuntimeError`."""
    context.sc().cancelAllJobs()
    deadline = time.monotonic() + STOP_SECONDS
    while len(context.statusTracker().getActiveJobIds()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"a job has not stopped within {STOP_SECONDS:.0f} s")
        time.sleep(POLL)
    for rows in context.getPersistentRDDs().values():
        rows.unpersist(False)


def _break_off() -> None:
    """Shut the connection to the JVM after a signal: no clean-up is to wait for the work that goes on there."""
    gateway: Any = SparkContext._gateway
    client = gateway._gateway_client
    client.java_parameters.port = 0  # no call makes a new connection
    connection = client.get_thread_connection()
    if connection is not None and connection.socket is not None:
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)


def _close_catalogs(spark: SparkSession) -> None:
    """Close the connections of the session's Iceberg catalogs to their databases, which the JVM would keep."""
    session: Any = spark
    with contextlib.suppress(Py4JError, OSError):
        manager = session._jsparkSession.sessionState().catalogManager()
        for name, kind in spark.conf.getAll.items():
            if name.startswith(_CATALOG) and "." not in name[len(_CATALOG) :] and "iceberg" in kind:
                manager.catalog(name[len(_CATALOG) :]).icebergCatalog().close()


def _forget_session() -> None:
    """Let this process have no Spark, as before; the JVM and its context stay."""
    interrupt.break_off = None
    context: Any = SparkContext
    session: Any = SparkSession
    if context._gateway is not None:
        with contextlib.suppress(Py4JError, OSError):
            context._gateway.close()
    context._active_spark_context = context._gateway = context._jvm = None
    session._instantiatedSession = session._activeSession = None
