"""A proxy that cuts connections to a Thrift server before or after a request reaches it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlparse


class CuttingProxy:
    """Forwards requests; each is one message on one connection, and names its method."""

    def __init__(self, server: str) -> None:
        parsed = urlparse(server)
        self._server = parsed.hostname, parsed.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        """The methods of all requests that reached the server."""
        self._cuts: list[tuple[str, bool]] = []
        self._ends: list[socket.socket] = []

    def cut(self, method: str, *, after: bool, times: int = 1) -> None:
        """Cut the connection of the next requests with a method, before or after it is answered."""
        self._cuts += [(method, after)] * times

    def run(self) -> None:
        """Accept connections until the proxy is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _forward(self, client: socket.socket) -> None:
        self._ends.append(client)
        with client, socket.create_connection(self._server) as server, suppress(OSError):
            while request := client.recv(1 << 20):
                method = _read_method(request)
                if self._take_cut(method, after=False):
                    return
                self.requests.append(method)
                server.sendall(request)
                answer = server.recv(1 << 20)
                if not answer or self._take_cut(method, after=True):
                    return
                client.sendall(answer)

    def _take_cut(self, method: str, *, after: bool) -> bool:
        if (method, after) not in self._cuts:
            return False
        self._cuts.remove((method, after))
        return True


def _read_method(request: bytes) -> str:
    """Return the method of a message in the strict binary protocol."""
    length = int.from_bytes(request[4:8], "big")
    return request[8 : 8 + length].decode()


@contextmanager
def run_cutting_proxy(server: str) -> Iterator[CuttingProxy]:
    """Run a proxy in front of ``thrift://host:port``."""
    proxy = CuttingProxy(server)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(10)
