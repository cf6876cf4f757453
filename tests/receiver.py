"""A local HTTP server that keeps what is sent to it: what alerts and lineage arrive at in tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Receiver:
    """`got`: paths and JSON bodies, in their order. `status`: what it answers; `hangs`: it does not, before `free`;
    `waiting`: so many requests have no answer yet."""

    port: int = 0
    status: int = 200
    hangs: bool = False
    waiting: int = 0
    free: threading.Event = field(default_factory=threading.Event)
    got: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.got]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.hangs:
                receiver.waiting += 1
                receiver.free.wait(60)
                receiver.waiting -= 1
                return
            receiver.got.append((self.path, json.loads(body)))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.free.set()
        server.shutdown()
        server.server_close()


@contextmanager
def alerted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """One that `ALTNEU_ALERTS` names."""
    with receiving() as found:
        monkeypatch.setenv("ALTNEU_ALERTS", f"json://127.0.0.1:{found.port}/hook")
        yield found
