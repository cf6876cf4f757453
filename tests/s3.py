"""A real S3 server for tests, Versity's gateway: `s3` is a folder of the test's own in it, `store` the server, which
can be told to fail.

Tests of tables in S3 need Iceberg's library, too: the marker `needs("s3 library")`.
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

from tests import tools
from tests.proxy import Proxy, free_port

# Set before the suite's JVM starts, which inherits them. No test uses the keys of whoever runs it.
os.environ |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": uuid.uuid4().hex}
os.environ |= {"AWS_EC2_METADATA_DISABLED": "true"}
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
    os.environ.pop(name, None)

BUCKET = "altneu"


class Store(Proxy):
    """The server behind a proxy, and its folder."""

    def __init__(self, target: int, folder: Path) -> None:
        super().__init__(target)
        self.folder = folder / BUCKET


@pytest.fixture(scope="session")
def s3_gateway() -> Iterator[Store]:
    command = tools.require("s3")
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
def store(s3_gateway: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The server, which this process and what it starts find in its environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_gateway.endpoint)
    yield s3_gateway
    s3_gateway.faults = lambda method, path: None
    s3_gateway.seen.clear()


@pytest.fixture
def s3(store: Store) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
