"""An HTTP proxy in front of a real REST server: counts requests, and injects faults.

A fault can happen before the server gets the request, or after it carried it out, so that only the
answer is lost. Without faults the proxy passes everything on.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from support.catalogs.rest_server import RestServer

_SECONDS = 60
_HOP_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
_SUBRESOURCES = frozenset({"branches", "commit", "forward", "rollback", "snapshot", "token"})
_LISTINGS = frozenset({"databases", "tables"})


@dataclass(frozen=True, kw_only=True)
class ProxiedRequest:
    """A request that the proxy got."""

    method: str
    path: str
    """With the query."""
    headers: Mapping[str, str]
    body: bytes

    @property
    def resource(self) -> str:
        """`config`, `databases`, `database`, `tables`, `table`, or a part such as `commit`."""
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[-1] in {"config", "databases", "tables"}:
            return parts[-1]
        if parts[-1] in _SUBRESOURCES and len(parts) > 5:
            return parts[-1]
        return parts[-2].removesuffix("s")

    @property
    def name(self) -> str:
        """The method and resource: `POST commit`."""
        return f"{self.method} {self.resource}"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to a request."""

    forward: bool = False
    """Let the server carry out the request first."""
    status: int | None = None
    """The status of the answer; None cuts the connection instead."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    """JSON of the answer; bytes are sent as they are."""
    genuine: bool = False
    """Send the answer of the server."""
    before: Callable[[ProxiedRequest], object] | None = None
    """Called before the request is forwarded."""
    after: Callable[[], object] | None = None
    """Called after the request was forwarded, before the answer."""


CUT_BEFORE = Fault()
CUT_AFTER = Fault(forward=True)


def answer_before(status: int, **headers: str) -> Fault:
    """Return a fault: the server does not get the request, and the client gets this status."""
    return Fault(status=status, headers=_dashed(headers), body=_error(status))


def answer_after(status: int, **headers: str) -> Fault:
    """Return a fault: the server carries out the request, but the client gets this status."""
    return Fault(status=status, headers=_dashed(headers), body=_error(status), forward=True)


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _error(status: int) -> dict[str, Any]:
    return {"message": "injected", "resourceType": None, "resourceName": None, "code": status}


Rewrite = Callable[[ProxiedRequest, dict[str, Any]], dict[str, Any]]


@dataclass
class RestProxy:
    """A running proxy."""

    server: RestServer
    uri: str = ""
    requests: list[ProxiedRequest] = field(default_factory=list)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """The faults of the next requests by their names."""
    rewrites: dict[str, Rewrite] = field(default_factory=dict)
    """Changes of answers by the names of requests."""
    refuse: Callable[[ProxiedRequest], Fault | None] = lambda _: None
    """Returns the fault of each request that has no other."""
    page_size: int | None = None
    """The number of names on each page of a listing."""

    @property
    def options(self) -> dict[str, Any]:
        """The options with which a client opens the catalog through the proxy."""
        return {**self.server.options, "uri": self.uri}

    def inject(self, name: str, *faults: Fault) -> None:
        """Add faults of the next requests with a name such as `POST commit`, one for each."""
        self.faults.setdefault(name, []).extend(faults)

    @contextmanager
    def count(self) -> Iterator[Counter[str]]:
        """Count the requests in the context by name."""
        counted, first = Counter[str](), len(self.requests)
        yield counted
        counted.update(request.name for request in self.requests[first:])

    def remove_faults(self) -> dict[str, list[Fault]]:
        """Return the faults that did not happen; the proxy passes everything on from now."""
        left = {name: faults for name, faults in self.faults.items() if faults}
        self.faults, self.rewrites = {}, {}
        return left

    def next_fault(self, request: ProxiedRequest) -> Fault | None:
        """Return the fault of a request, and remove it."""
        faults = self.faults.get(request.name)
        return faults.pop(0) if faults else self.refuse(request)

    def forward(self, request: ProxiedRequest) -> tuple[int, dict[str, str], bytes]:
        """Send a request to the server; return status, headers and body of its answer."""
        upstream = urlsplit(self.server.uri)
        assert upstream.hostname is not None
        path = request.path
        if self.page_size is not None and request.resource in _LISTINGS:
            path = self._limit_page(path)
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=_SECONDS)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS}
        try:
            connection.request(request.method, path, request.body or None, headers)
            response = connection.getresponse()
            status, received, body = response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()
        rewrite = self.rewrites.get(request.name)
        if rewrite is not None and status == http.HTTPStatus.OK:
            body = json.dumps(rewrite(request, json.loads(body))).encode()
        kept = {k: v for k, v in received.items() if k.lower() not in _HOP_HEADERS}
        return status, kept, body

    def _limit_page(self, path: str) -> str:
        parts = urlsplit(path)
        query = {**dict(parse_qsl(parts.query)), "maxResults": str(self.page_size)}
        return f"{parts.path}?{urlencode(query)}"


@contextmanager
def run_rest_proxy(server: RestServer) -> Iterator[RestProxy]:
    """Run a proxy on a free port of this machine."""
    proxy = RestProxy(server)

    class RequestHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = ProxiedRequest(
                method=self.command, path=self.path, headers=dict(self.headers), body=body
            )
            proxy.requests.append(request)
            self.close_connection = True
            _handle(self, proxy, request)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), RequestHandler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    proxy.uri = f"http://127.0.0.1:{listener.server_port}"
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _handle(handler: BaseHTTPRequestHandler, proxy: RestProxy, request: ProxiedRequest) -> None:
    fault = proxy.next_fault(request) or Fault(genuine=True)
    if fault.before is not None:
        fault.before(request)
    answer = proxy.forward(request) if fault.forward or fault.genuine else None
    if fault.after is not None:
        fault.after()
    if fault.genuine:
        assert answer is not None
        _answer(handler, *answer)
    elif fault.status is not None:
        body = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
        _answer(handler, fault.status, dict(fault.headers), body)
    else:
        handler.connection.shutdown(socket.SHUT_RDWR)


def _answer(
    handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes
) -> None:
    with suppress(OSError):  # the client may be killed
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Connection", "close")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
