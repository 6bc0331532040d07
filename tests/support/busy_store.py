"""A server that refuses each request for the moment, as an overloaded object store does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf

CONTENT = b"content"
_BODY = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


@contextmanager
def run_busy_store(refusals: float = inf) -> Iterator[tuple[str, list[str]]]:
    """Run a server that answers 503; return its address, and the requests so far.

    After a number of refusals, each object has the same content.
    """
    requests = list[str]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(f"{self.command} {self.path}")
            is_busy = len(requests) <= refusals
            body = _BODY if is_busy else CONTENT
            self.send_response(503 if is_busy else 206)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            if not is_busy:
                self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
                self.send_header("ETag", '"1"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
