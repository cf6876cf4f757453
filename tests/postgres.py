"""A PostgreSQL server for tests: `postgres` is the URI of a database of the test's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from tests import tools

# of tests that take either database
DATABASE_KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.backend("postgresql"))]


class Server(NamedTuple):
    """`uri`: without a database; `restart`: ends all connections."""

    uri: str
    restart: Callable[[], None]


@contextmanager
def running(password: str | None = None) -> Iterator[Server]:
    """A PostgreSQL cluster of its own, on a free port of the loopback interface; it asks for the password, if any.

    Skips the test where no server is installed.
    """
    programs = Path(tools.require("postgresql"))
    # PostgreSQL refuses to run as root
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="altneu-pg-"))
    if as_user:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"

    def call(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=folder)

    asks = ["--auth=trust"]
    if password:
        file = folder / "password"
        file.write_text(password)
        asks = ["--auth=scram-sha-256", f"--pwfile={file}"]
    call(str(programs / "initdb"), "-D", str(data), "-U", "altneu", *asks, "-E", "UTF8")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(data)]
    how = ["-w", "-l", str(folder / "log"), "-o", options]
    call(*control, *how, "start")
    try:
        yield Server(
            f"postgresql+psycopg://altneu@127.0.0.1:{port}", lambda: call(*control, *how, "-m", "fast", "restart")
        )
    finally:
        call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def database(server: str) -> str:
    """A new database on a server; its URI."""
    name = f"t{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server}/{name}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with running() as server:
        yield server.uri


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """A database of the test's own."""
    return database(postgres_server)
