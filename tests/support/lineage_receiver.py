"""A receiver of the events of OpenLineage: an HTTP server in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Receiver:
    """What was received, and the status that requests are answered with."""

    url: str
    status: int = 201
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def states(self) -> list[tuple[str, str]]:
        """Return the job and the state of each event."""
        return [(event["job"]["name"], event["eventType"]) for event in self.events]


@contextmanager
def run_receiver() -> Iterator[Receiver]:
    """Run a receiver on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.events.append({**json.loads(body), "path": self.path})
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()
