"""A real S3 server for tests, Versity's gateway: `s3` is a folder of the test's own in it, `store` the server, which
can be told to fail.

The program `versitygw` is looked for in `ALTNEU_VERSITYGW`, on the PATH and where Go installs programs:
`go install github.com/versity/versitygw/cmd/versitygw@latest`. Without it these tests are skipped.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.storage.session import ASSETS

# Set before the suite's JVM starts, which inherits them. No test uses the keys of whoever runs it.
os.environ |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": uuid.uuid4().hex}
os.environ |= {"AWS_EC2_METADATA_DISABLED": "true"}
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
    os.environ.pop(name, None)

BUCKET = "altneu"
Fault = Callable[
    [str, str], str | None
]  # method, path → what happens instead: "503", "cut", "half" an answer, or a pause in seconds


def program() -> str | None:
    go = Path(os.environ.get("GOBIN") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin")
    places = [os.environ.get("ALTNEU_VERSITYGW"), shutil.which("versitygw"), str(go / "versitygw")]
    return next((place for place in places if place and Path(place).exists()), None)


def need_library() -> None:
    """Skip a test of tables in S3 where Iceberg's library for it is not installed."""
    if not any((ASSETS / "jars").glob("*iceberg-aws-bundle*")):
        pytest.skip("tables in S3 need Amazon's library: altneu setup --s3")


class Store:
    """The server behind a proxy: `faults` says of each request whether it fails; `seen` has them all."""

    def __init__(self, target: int, folder: Path) -> None:
        self.folder = folder / BUCKET
        self.faults: Fault = lambda method, path: None
        self.seen: list[tuple[str, str]] = []
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self._body()
                store.seen.append((self.command, self.path))
                fault = store.faults(self.command, self.path)
                if fault == "cut":
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if fault == "503":
                    text = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
                    self._answer(503, [("Content-Type", "application/xml")], text)
                    return
                if fault not in (None, "half"):
                    time.sleep(float(fault or 0))
                server = http.client.HTTPConnection("127.0.0.1", target, timeout=60)
                server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for key, value in self.headers.items():
                    if key.lower() not in ("transfer-encoding", "expect", "connection"):
                        server.putheader(key, value)
                if "content-length" not in self.headers:
                    server.putheader("Content-Length", str(len(body)))
                server.endheaders(body)
                answer = server.getresponse()
                kept = [pair for pair in answer.getheaders() if pair[0].lower() != "transfer-encoding"]
                content = answer.read()
                server.close()
                if fault == "half":  # what was promised is longer
                    self.close_connection = True
                    content = content[: len(content) // 2]
                self._answer(answer.status, kept, content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return b"".join(parts)

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for key, value in headers:
                    self.send_header(key, value)
                if not any(key.lower() == "content-length" for key, _ in headers) and status not in (204, 304):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    with contextlib.suppress(OSError):
                        self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.proxy.daemon_threads = True
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self.proxy.server_port}"


def _free() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def gateway() -> Iterator[Store]:
    command = program()
    if command is None:
        pytest.skip("no S3 server is here: go install github.com/versity/versitygw/cmd/versitygw@latest")
    folder = Path(tempfile.mkdtemp(prefix="altneu-s3-"))
    (folder / BUCKET).mkdir()
    port = _free()
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
