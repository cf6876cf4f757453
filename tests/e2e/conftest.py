"""`altneu(...)` runs a command in this process; `postgres` is a real server for the suite."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from pipeline import cli


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Altneu = Callable[..., Outcome]


@pytest.fixture
def altneu(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch) -> Altneu:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, home: Path = tmp_path / "home") -> Outcome:
        capsys.readouterr()
        code = 0
        try:
            cli.main(["--home", str(home), *map(str, arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A PostgreSQL cluster of its own, on a free port of the loopback interface."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None:
        pytest.skip("no PostgreSQL server is installed here (initdb is not found)")
    programs = Path(initdb).parent
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

    call(str(programs / "initdb"), "-D", str(data), "-U", "altneu", "--auth=trust", "-E", "UTF8")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    call(str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://altneu@127.0.0.1:{port}"
    finally:
        call(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(server: str) -> str:
    """A database of the test's own."""
    name = f"t{uuid.uuid4().hex[:8]}"
    engine = sa.create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server}/{name}"
