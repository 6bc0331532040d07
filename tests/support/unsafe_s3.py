"""S3 servers whose conditional puts cannot be trusted, which must be refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from support.memory_s3 import MemoryS3

_SECONDS_TO_WRITE = 0.02
_CONDITION = "If-None-Match"


class Condition(Enum):
    """What a server does with the condition that an object must not exist."""

    KEPT = auto()
    IGNORED = auto()
    CHECKED_FIRST = auto()
    """It looks for the object, and writes later."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, condition: Condition) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.condition, self.store, self.lock = condition, MemoryS3(), threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that closed their connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self) -> None:
        server, headers = self.server, self.headers
        body = self.rfile.read(int(headers.get("Content-Length", 0)))
        key = unquote(urlsplit(self.path).path).removeprefix("/")
        if server.condition is not Condition.KEPT and _CONDITION in headers:
            is_new = server.condition is Condition.IGNORED or key not in server.store.objects
            if is_new:
                time.sleep(_SECONDS_TO_WRITE)
                del headers[_CONDITION]
        with server.lock:
            answer = server.store._answer(self.command, self.path, headers, body)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def run_unsafe_s3(condition: Condition) -> Iterator[dict[str, Any]]:
    """Run a server in threads of this process; return the storage options for it."""
    server = _Server(condition)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {"key": "any", "secret": "any", "endpoint_url": address}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
