"""A proxy in front of a real HTTP server: it passes requests on, and fails those that it is told to."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
import time
from collections.abc import Callable

# method, path → what happens instead: one of `REFUSALS`, "cut", "lost" an answer, "half" of one, or a pause in seconds
Fault = Callable[[str, str], str | None]
REFUSALS = {  # as S3 says them
    "403": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
    "503": b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
}


class Proxy:
    """In front of a port: `faults` says of each request whether it fails; `seen` has them all."""

    def __init__(self, target: int) -> None:
        self.faults: Fault = lambda method, path: None
        self.seen: list[tuple[str, str]] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self._body()
                proxy.seen.append((self.command, self.path))
                fault = proxy.faults(self.command, self.path)
                if fault == "cut":
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if fault in REFUSALS:
                    self._answer(int(fault), [("Content-Type", "application/xml")], REFUSALS[fault])
                    return
                if fault not in (None, "half", "lost"):
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
                if fault == "lost":  # it was done, and nobody hears of it
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        self.connection.shutdown(socket.SHUT_RDWR)
                    return
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
        self.proxy.handle_error = lambda *request: None  # type: ignore[method-assign]  # a client that was killed
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self.proxy.server_port}"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
