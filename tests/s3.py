"""A real S3 server for tests, Versity's gateway: `s3` is a folder of the test's own in it, `store` the server, which
can be told to fail.

The program `versitygw` is looked for in `ALTNEU_VERSITYGW`, on the PATH and where Go installs programs:
`go install github.com/versity/versitygw/cmd/versitygw@latest`. Without it these tests are skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.storage.session import ASSETS
from tests.proxy import Proxy, free_port

# Set before the suite's JVM starts, which inherits them. No test uses the keys of whoever runs it.
os.environ |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": uuid.uuid4().hex}
os.environ |= {"AWS_EC2_METADATA_DISABLED": "true"}
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
    os.environ.pop(name, None)

BUCKET = "altneu"


def program() -> str | None:
    go = Path(os.environ.get("GOBIN") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin")
    places = [os.environ.get("ALTNEU_VERSITYGW"), shutil.which("versitygw"), str(go / "versitygw")]
    return next((place for place in places if place and Path(place).exists()), None)


def need_library() -> None:
    """Skip a test of tables in S3 where Iceberg's library for it is not installed."""
    if not any((ASSETS / "jars").glob("*iceberg-aws-bundle*")):
        pytest.skip("tables in S3 need Amazon's library: altneu setup --s3")


class Store(Proxy):
    """The server behind a proxy, and its folder."""

    def __init__(self, target: int, folder: Path) -> None:
        super().__init__(target)
        self.folder = folder / BUCKET


@pytest.fixture(scope="session")
def gateway() -> Iterator[Store]:
    command = program()
    if command is None:
        pytest.skip("no S3 server is here: go install github.com/versity/versitygw/cmd/versitygw@latest")
    folder = Path(tempfile.mkdtemp(prefix="altneu-s3-"))
    (folder / BUCKET).mkdir()
    port = free_port()
    keys = {"ROOT_ACCESS_KEY": os.environ["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": os.environ["AWS_SECRET_ACCESS_KEY"]}
    server = subprocess.Popen(
        [command, "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(folder)],
        env=os.environ | keys,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        store = Store(port, folder)
        yield store
        store.proxy.shutdown()
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def store(gateway: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The server, which this process and what it starts find in its environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway.endpoint)
    yield gateway
    gateway.faults = lambda method, path: None
    gateway.seen.clear()


@pytest.fixture
def s3(store: Store) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
