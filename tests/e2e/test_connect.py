"""Runs through Spark Connect: a real server (`altneu connect`), commands without a JVM, and the same result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from altneu.pipeline.checking import audit
from altneu.pipeline.state.records import Revision, RunState
from altneu.pipeline.storage.session import QUICK
from altneu.pipeline.storage.table_schemas import TABLES
from altneu.pipeline.storage.warehouse import Warehouse
from tests import home_helpers, seeds
from tests.builders import draw_batch
from tests.proxy import Proxy
from tests.session import TINY

REPO = Path(__file__).resolve().parents[2]
SETTINGS = "".join(f'"{key}" = "{value}", ' for key, value in TINY.items())
pytestmark = pytest.mark.backend("connect")
TOKEN = uuid.uuid4().hex  # of the shared server
SETTINGS += f'"spark.driver.extraJavaOptions" = "{" ".join(QUICK)}", '  # it serves for minutes
TOML = f'[retention]\nrevisions = 2\n[spark]\nconf = {{ {SETTINGS} "spark.driver.memory" = "1g" }}\n'
BATCH: dict[str, Any] = {"vertices": range(14), "size": 60, "deletes": 0.2, "seqs": 3}


def altneu(
    home: Path, *arguments: str, server: str | None = None, token: str = TOKEN, **variables: str
) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "ALTNEU_MASTER"}
    environment |= {"PYTHONPATH": str(REPO), "SPARK_CONNECT_AUTHENTICATE_TOKEN": token, **variables}
    environment |= {"ALTNEU_MASTER": server} if server else {}
    command = [sys.executable, "-m", "altneu.pipeline.cli", "--home", str(home), *arguments]
    return subprocess.Popen(
        command, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def serve(home: Path, port: int = 0) -> tuple[subprocess.Popen[str], str, str]:
    """A server, once it listens: its process, its address, what it has said."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    process = altneu(home, "connect", "--port", str(port))
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if "Ctrl-C" in line:
            break
    return process, f"sc://127.0.0.1:{port}", told


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home, _ = home_helpers.make(tmp_path_factory.mktemp("server"), TOML)
    process, address, told = serve(home.path)
    assert address in told, told
    yield address
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "has stopped" in rest, told + rest
    assert TOKEN not in told + rest


def finished(home: Path, *arguments: str, server: str) -> str:
    """What a command through the server says, once it has succeeded."""
    process = altneu(home, *arguments, server=server)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def is_right(warehouse: Warehouse, row: Revision, epochs: range) -> None:
    """A full audit, through the JVM of this process."""
    results = audit.audit_published(warehouse, row, list(epochs), lambda text: None)
    assert len(results) > 20 and [result["name"] for result in results if not result["passed"]] == []


@pytest.mark.usefixtures("tiny")
def test_a_run_through_connect(spark: SparkSession, tmp_path: Path, shared: str) -> None:
    """With a condition that cannot be evaluated on some rows: these are in quarantine."""
    settings = '[values]\ntag = "string"\n[edges]\nwhere = "tag > 5"\n[ingest]\nmax_bad_share = 0.5\n'
    home, ledger = home_helpers.make(tmp_path / "home", settings + TOML)
    rng = random.Random(seeds.one(4))
    bad = 0
    for epoch in range(2):
        rows = [
            (src, dst, rng.choice(["7", "9", "1", "abc"]), op, seq) for src, dst, _, op, seq in draw_batch(rng, **BATCH)
        ]
        bad += sum(tag == "abc" and op == "upsert" for _, _, tag, op, _ in rows)
        home_helpers.put(home, epoch, rows)  # type: ignore[arg-type]
    finished(home.path, "backfill", "--all", server=shared)
    assert bad and sum(batch.bad_rows for batch in ledger.outputs.published_batches().values()) == bad
    is_right(Warehouse(spark, home), ledger.revisions.get(), range(2))


@pytest.mark.usefixtures("tiny")
def test_the_same_state_and_metadata_through_connect(spark: SparkSession, tmp_path: Path, shared: str) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    rng = random.Random(seeds.one(4))
    for epoch in range(4):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))

    def done(*arguments: str) -> str:
        return finished(home.path, *arguments, server=shared)

    done("backfill", "--all")
    home_helpers.put(home, 1, draw_batch(rng, **BATCH))
    done("run", "1")
    home_helpers.put(home, 4, draw_batch(rng, **BATCH))
    home_helpers.run(ledger, [4])  # one revision through the JVM in this process, on top of those
    assert ledger.revisions.get().revision == 3
    assert "all equal" in done("audit")
    third = altneu(home.path, "audit", "0", "--third-party", server=shared)
    output, _ = third.communicate(timeout=300)
    assert third.returncode == 2 and "through Spark Connect" in " ".join(output.split()), output
    warehouse = Warehouse(spark, home)
    snapshots = {table: len(warehouse.load_metadata(table).snapshot_ids()) for table in TABLES}
    done("compact", "--grace", "0")
    row = ledger.revisions.get()
    is_right(warehouse, row, range(5))
    for table in TABLES:
        assert set(warehouse.load_metadata(table).ref_snapshots()) == {"main", f"r{row.revision}"}
        assert warehouse.load_metadata(table).main_snapshot() == row.snapshots[table]
    assert len(warehouse.load_metadata("upserts").snapshot_ids()) < snapshots["upserts"]


@pytest.mark.usefixtures("tiny", "unaudited")
def test_metadata_files_say_what_iceberg_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", '[values]\nrating = "double"\n')
    for epoch in range(2):
        home_helpers.put(home, epoch, [(1, 2 + epoch, 0.5, "upsert", 0), (2, 3, 1.0, "upsert", 0)])
        home_helpers.run(ledger, [epoch])
    warehouse = Warehouse(spark, home)
    warehouse.load_metadata("edges").commit_steps(
        [("createBranch", "aside", ledger.revisions.get(1).snapshots["edges"])]
    )
    mine = {table: warehouse.load_metadata(table) for table in TABLES}  # read by us

    def on_no_disk_of_ours(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", on_no_disk_of_ours)
    apart = Warehouse(spark, home)
    theirs = {table: apart.load_metadata(table) for table in TABLES}  # by Spark
    long = {"bigint": "long"}
    for table in TABLES:
        name = warehouse.table_name(table)
        fields = {f.name: f.dataType.simpleString() for f in spark.table(name).schema}
        refs = spark.sql(f"SELECT name, snapshot_id FROM {name}.refs").collect()
        rows = spark.sql(f"SELECT snapshot_id, parent_id, operation, summary FROM {name}.snapshots").collect()
        for found in (mine[table], theirs[table]):
            assert found.column_types() == {column: long.get(type_, type_) for column, type_ in fields.items()}
            assert found.ref_snapshots() == {row.name: row.snapshot_id for row in refs}
            assert found.snapshot_ids() == {row.snapshot_id for row in rows}
            assert [found.first_snapshot()] == [row.snapshot_id for row in rows if row.parent_id is None]
            for row in rows:
                assert found.snapshot_summary(row.snapshot_id) == {"operation": row.operation, **row.summary}
    assert (
        mine["edges"].ref_snapshots()["aside"]
        == ledger.revisions.get(1).snapshots["edges"]
        != mine["edges"].main_snapshot()
    )


IDLE = """
import sys, time
from pathlib import Path
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.session import IDLE_MS, session_for
from altneu.pipeline.storage.warehouse import Warehouse
home = Home.open(Path(sys.argv[1]))
ledger = Ledger(home)
warehouse = Warehouse(session_for(ledger), home)
counts = []
for turn in range(2):
    counts.append(warehouse.read_table("edges", ledger.revisions.get()).count())
    time.sleep(0 if turn else 1.2 * IDLE_MS / 1000)
print(counts)
"""


def test_tables_that_a_rest_catalog_lists(tmp_path: Path, shared: str, rest: Proxy) -> None:
    """Its branches are changed in SQL here."""
    catalog = f'[storage]\ncatalog = {{ type = "rest", uri = "{rest.endpoint}", namespace = "connected" }}\n'
    home, ledger = home_helpers.make(tmp_path / "home", catalog + TOML)
    rng = random.Random(seeds.one())
    for epoch in range(4):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
    for command in (["backfill", "--all"], ["audit"], ["rollback", "0"], ["backfill", "--all"], ["compact"]):
        process = altneu(home.path, *command, server=shared)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    assert ledger.revisions.get().frontier == 3 and ledger.revisions.get().revision == 3


@pytest.mark.usefixtures("tiny")
def test_the_server_keeps_no_connections_to_postgresql(tmp_path: Path, shared: str, postgres: str) -> None:
    """Those of sessions that are over end; a session that idles goes on."""
    home, _ = home_helpers.make(tmp_path / "home", TOML + f'[storage]\ndatabase = "{postgres}"\n')
    engine = sa.create_engine(postgres)

    def kept() -> int:
        named = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%JDBC%'"
        with engine.connect() as connection:
            return int(connection.execute(sa.text(named)).scalar_one())

    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)])
    finished(home.path, "run", "0", server=shared)
    assert kept() <= 1
    environment = os.environ | {"PYTHONPATH": str(REPO), "ALTNEU_MASTER": shared}
    environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = TOKEN
    command = [sys.executable, "-c", IDLE, str(home.path)]
    answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    assert json.loads(answer.stdout) == [2, 2]
    deadline = time.monotonic() + 60
    while kept():
        assert time.monotonic() < deadline, "connections stay"
        time.sleep(1)
    engine.dispose()


def said(home: Path, *arguments: str, **how: str) -> tuple[int | None, str]:
    """How a command ended, and its words on one line."""
    process = altneu(home, *arguments, **how)
    output, _ = process.communicate(timeout=120)
    return process.returncode, " ".join(output.split())


def test_a_token(tmp_path: Path, shared: str) -> None:
    """Of a server that asks for one: none, another, in a file that is not there, and the right one in a file."""
    home, _ = home_helpers.make(tmp_path, TOML)
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0)])
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    by_file = {"token": "", "SPARK_CONNECT_AUTHENTICATE_TOKEN_FILE": str(file)}
    gone = by_file | {"SPARK_CONNECT_AUTHENTICATE_TOKEN_FILE": str(tmp_path / "gone")}
    there = f"the Spark Connect server at {shared}"
    rows: list[tuple[dict[str, str], int, str]] = [
        ({"token": ""}, 2, f"{there} requires a token, and none is set."),
        ({"token": "another-" + TOKEN}, 2, f"{there} refuses the token that was sent."),
        ({"token": "", "server": f"{shared}/;token=other-{TOKEN}"}, 2, "/;token=*** refuses the token that was sent."),
        (gone, 2, f"SPARK_CONNECT_AUTHENTICATE_TOKEN_FILE = {tmp_path / 'gone'}: No such file"),
        (by_file, 0, "revision 1"),
    ]
    for how, code, words in rows:
        ended, output = said(home.path, "run", "0", **{"server": shared, **how})
        assert (ended, words in output, TOKEN in output) == (code, True, False), (how, output)


def test_beyond_this_machine_a_server_needs_a_token(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path, TOML)
    code, output = said(home.path, "connect", "--host", "0.0.0.0", token="")
    assert code == 2 and "it needs a token, and none is set" in output, output
    assert "export SPARK_CONNECT_AUTHENTICATE_TOKEN=" in output


@pytest.mark.needs("openssl")
def test_a_proxy_with_tls(tmp_path: Path, shared: str, tls: tuple[int, Path]) -> None:
    """The server behind what Spark leaves to others; a certificate that nobody here trusts is refused in words."""
    home, _ = home_helpers.make(tmp_path, TOML)
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0)])
    port, authority = tls
    server = f"sc://localhost:{port}/;use_ssl=true"
    code, output = said(home.path, "run", "0", server=server)
    assert code == 1 and "has a certificate that is not trusted here" in output, output
    code, output = said(home.path, "run", "0", server=f"{shared}/;use_ssl=true")
    assert code == 1 and "does not speak TLS" in output, output
    code, output = said(home.path, "run", "0", server=f"sc://localhost:{port}")
    assert code == 1 and "is not a Spark Connect server, or requires TLS" in output, output
    code, output = said(home.path, "run", "0", server=server, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(authority))
    assert code == 0, output


@pytest.fixture
def tls(shared: str, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A proxy that speaks TLS before the shared server: its port, and the certificate that it is known by."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.new_event_loop()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(2**16):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def passed_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", int(shared.rpartition(":")[2]))
        await asyncio.gather(copy(source, forth), copy(back, sink))

    server = loop.run_until_complete(asyncio.start_server(passed_on, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server.sockets[0].getsockname()[1], certificate
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_a_server_without_its_jvm_ends(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path, TOML)
    process, _, _ = serve(home.path)
    for child in psutil.Process(process.pid).children():
        if child.name() == "java":
            child.kill()
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "JVM has ended" in rest, rest


def kill(server: subprocess.Popen[str]) -> None:
    """At once, with its JVM: nothing is said to its clients."""
    for each in [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]:
        each.kill()
    server.wait()


@pytest.mark.usefixtures("tiny")
def test_a_server_is_killed_during_a_run(spark: SparkSession, tmp_path: Path, shared: str) -> None:
    home, ledger = home_helpers.make(tmp_path / "home", TOML)
    rng = random.Random(seeds.one())
    for epoch in range(2):
        home_helpers.put(home, epoch, draw_batch(rng, **BATCH))
    server, address, _ = serve(home.path)
    client = altneu(home.path, "run", "0", "1", server=address)
    assert client.stdout is not None
    told = ""
    for line in client.stdout:
        told += line
        if "triangles:" in line:  # the stage is at work
            break
    kill(server)
    rest, _ = client.communicate(timeout=90)
    words = " ".join(rest.split())
    assert client.returncode == 1, told + rest
    assert f"the Spark Connect server at {address} does not answer any more" in words, rest
    assert "next: altneu connect" in words and "Traceback" not in words and "RETRIES_EXCEEDED" not in words, rest
    assert ledger.revisions.get().revision == 0 and [run.state for run in ledger.runs.list_all()] == [RunState.FAILED]
    finished(home.path, "run", "0", "1", server=shared)
    is_right(Warehouse(spark, home), ledger.revisions.get(), range(2))


ANEW = """
import sys
from pathlib import Path
from altneu.pipeline.errors import Unavailable
from altneu.pipeline.home.home import Home
from altneu.pipeline.state.ledger import Ledger
from altneu.pipeline.storage.session import session_for
from altneu.pipeline.storage.warehouse import Warehouse
home = Home.open(Path(sys.argv[1]))
ledger = Ledger(home)
edges = Warehouse(session_for(ledger), home).read_table("edges", ledger.revisions.get())
print(edges.count(), flush=True)
input()
try:
    edges.count()
except Unavailable as error:
    print(error.what)
print(Warehouse(session_for(ledger), home).read_table("edges", ledger.revisions.get()).count())
"""


@pytest.mark.usefixtures("tiny")
def test_a_server_is_started_again(tmp_path: Path, shared: str) -> None:
    """A process that goes on hears that its session is lost, and gets a new one."""
    from altneu.pipeline.storage import spark_connect_client

    home, _ = home_helpers.make(tmp_path / "home", TOML)
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0), (2, 3, None, "upsert", 0)])
    finished(home.path, "run", "0", server=shared)
    server, address, _ = serve(home.path)
    environment = os.environ | {"PYTHONPATH": str(REPO), "ALTNEU_MASTER": address, spark_connect_client.TOKEN: TOKEN}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    client = subprocess.Popen([sys.executable, "-c", ANEW, str(home.path)], env=environment, **pipes)  # type: ignore[call-overload]
    assert client.stdout.readline() == "2\n"
    kill(server)
    server, _, _ = serve(home.path, int(address.rpartition(":")[2]))
    rest, _ = client.communicate("\n", timeout=90)
    kill(server)
    lost = f"the Spark Connect server at {address} has lost the session: it was restarted, or has ended the session."
    assert rest.splitlines() == [lost, "2"] and client.returncode == 0


def test_nobody_answers(tmp_path: Path) -> None:
    home, _ = home_helpers.make(tmp_path, TOML)
    home_helpers.put(home, 0, [(1, 2, None, "upsert", 0)])
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"sc://127.0.0.1:{free.getsockname()[1]}"
    process = altneu(home.path, "run", "0", server=address)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"no Spark Connect server answers at {address}" in " ".join(output.split()) and "altneu connect" in output
