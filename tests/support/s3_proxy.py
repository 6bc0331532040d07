"""A proxy in front of an S3 server that delays each request and logs it."""

from __future__ import annotations

import hashlib
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from support.request_chains import HEADER, read_chain
from support.request_log import Request, read_log, write_request

_CHUNK = 1 << 20
_ONE_CONNECTION = {"connection", "expect", "keep-alive", "transfer-encoding"}
_NOT_FORWARDED = {*_ONE_CONNECTION, HEADER}


class S3Proxy(ThreadingHTTPServer):
    """Forwards requests to a server; each connection of a client has one to the server."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, server: tuple[str, int], log: Path, delay: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = server
        self.delay = delay
        """Seconds before each request is forwarded."""
        self.log = log
        self._sink = log.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self.server_port}"

    def write(self, request: Request) -> None:
        """Add a request to the log."""
        with self._lock:
            self._sink.write(write_request(request))

    def count(self) -> int:
        """Return the number of requests so far."""
        return len(read_log(self.log))

    def read(self, first: int = 0) -> list[Request]:
        """Return the requests so far, except the first ones."""
        return read_log(self.log)[first:]

    def wait(self) -> None:
        """Wait until the proxy ends."""
        self._ended.wait()

    def close(self) -> None:
        """End the proxy."""
        self.shutdown()
        self.server_close()
        self._sink.close()
        self._ended.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that closed their connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Proxy
    # an answer is sent in few packets, and no packet waits for the one before
    wbufsize = _CHUNK
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(*self.server.server, timeout=120)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def handle_expect_100(self) -> bool:
        """Tell the client to send the body, which it does not send before."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def _forward(self) -> None:
        start = time.monotonic()
        if self.server.delay:
            time.sleep(self.server.delay)
        digest = hashlib.sha256()
        self._send_request(digest)
        answer = self._upstream.getresponse()
        kind, key, part = describe(self.command, self.path, self.headers, digest.hexdigest())
        request = Request(
            kind=kind,
            key=key,
            part=part,
            status=answer.status,
            start=start,
            end=start,
            chain=read_chain(self.headers),
        )
        self._send_answer(answer, request)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815

    def _send_request(self, digest: Any) -> None:
        upstream = self._upstream
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _NOT_FORWARDED:
                upstream.putheader(name, value)
        is_chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        if is_chunked:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        for chunk in _read_body(self.rfile, self.headers, is_chunked=is_chunked):
            digest.update(chunk)
            upstream.send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
        if is_chunked:
            upstream.send(b"0\r\n\r\n")

    def _send_answer(self, answer: http.client.HTTPResponse, request: Request) -> None:
        """Send the answer; the request ends before the client can have the last bytes of it."""
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _ONE_CONNECTION:
                self.send_header(name, value)
        is_chunked = answer.getheader("Content-Length") is None and not (
            self.command == "HEAD" or answer.status in (204, 304)
        )
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chunk = answer.read(_CHUNK)
        while following := answer.read(_CHUNK):
            self._write(chunk, is_chunked=is_chunked)
            chunk = following
        self.server.write(replace(request, end=time.monotonic()))
        self._write(chunk, is_chunked=is_chunked)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _write(self, chunk: bytes, *, is_chunked: bool) -> None:
        if chunk:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)

    def log_message(self, format: str, *args: object) -> None:
        pass


def describe(
    method: str, path: str, headers: Message[str, str], digest: str
) -> tuple[str, str, str]:
    """Return kind, key and part of a request."""
    parsed = urlsplit(path)
    query = dict(parse_qsl(parsed.query, keep_blank_values=True))
    key = unquote(parsed.path).strip("/")
    if method == "GET" and ("list-type" in query or "delimiter" in query or "/" not in key):
        part = query.get("continuation-token") or query.get("marker", "")
        flat = "" if query.get("delimiter") else "flat "
        return "LIST", f"{key}/{query.get('prefix', '')}", f"{flat}{part}".strip()
    if method == "POST" and "delete" in query:
        return "BULK DELETE", key, digest
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "COPY", key, unquote(headers["x-amz-copy-source"])
    part = query.get("partNumber") or ("uploads" if "uploads" in query else "")
    return method, key, part or headers.get("Range", "")


def _read_body(
    source: BufferedIOBase, headers: Message[str, str], *, is_chunked: bool
) -> Iterator[bytes]:
    if is_chunked:
        while size := int(source.readline().partition(b";")[0], 16):
            yield source.read(size)
            source.readline()
        while source.readline().strip():  # trailers
            pass
        return
    missing = int(headers.get("Content-Length", 0))
    while missing:
        chunk = source.read(min(missing, _CHUNK))
        if not chunk:
            raise ConnectionError("the client closed the connection")
        missing -= len(chunk)
        yield chunk


@contextmanager
def run_proxy(server: tuple[str, int], log: Path, *, delay: float = 0) -> Iterator[S3Proxy]:
    """Run a proxy in threads of this process."""
    log.write_text("")
    proxy = S3Proxy(server, log, delay)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
    thread.daemon = True
    thread.start()
    try:
        yield proxy
    finally:
        with suppress(OSError):
            proxy.close()
        thread.join(10)
