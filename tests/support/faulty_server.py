"""A local HTTP server whose answers a test writes, faults included."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that the server got."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer, or a fault instead of it."""

    status: int = 200
    body: object = None
    """JSON, or bytes to send as they are."""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection before the answer, or inside the body if there is one."""
    announce_close: bool = True
    """Say in the answer that the server closes the connection."""
    delay: threading.Event | None = None
    """Wait for this before the answer."""


Handler = Callable[[Request], Answer]


@dataclass
class FaultyServer:
    """Answers with ``answers`` one after the other, and the last of them again and again."""

    answers: list[Answer | Handler] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    """All requests except those of the handshake."""
    handshakes: list[Request] = field(default_factory=list)
    uri: str = ""
    closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Counts the connections that the server has closed."""

    def answer(self, request: Request) -> Answer:
        if request.path.partition("?")[0] == "/v1/config":
            self.handshakes.append(request)
            return Answer(body=self.config)
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, Answer) else answer(request)


@contextmanager
def run_faulty_server() -> Iterator[FaultyServer]:
    """Run a server on a free port of this machine."""
    faulty = FaultyServer()

    class RequestHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(
                method=self.command, path=self.path, headers=dict(self.headers), body=body
            )
            _send(self, faulty.answer(request))

        do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            faulty.closed.release()

    server = Server(("127.0.0.1", 0), RequestHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    faulty.uri = f"http://127.0.0.1:{server.server_port}"
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    handler.close_connection = True
    if answer.delay is not None:
        answer.delay.wait(30)
    if answer.cut and answer.body is None:
        handler.connection.shutdown(socket.SHUT_RDWR)
        return
    body = answer.body
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    handler.send_response(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    if answer.announce_close:
        handler.send_header("Connection", "close")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command == "HEAD":
        return
    with suppress(OSError):  # the client may refuse the rest
        handler.wfile.write(content[: len(content) // 2] if answer.cut else content)
