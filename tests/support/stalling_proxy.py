"""A proxy whose connections a test cuts, or in which it stops the bytes while they stay open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf


class StallingProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends = list[socket.socket]()
        self._answer_bytes = inf
        """How many bytes of the server's answers are forwarded from now on."""

    def stall_after(self, answer_bytes: float) -> None:
        """Forward some more bytes of the server, and then none; inf ends this."""
        self._answer_bytes = answer_bytes

    def cut(self) -> None:
        """Close all connections; further ones are accepted."""
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def run(self) -> None:
        """Accept connections until the proxy is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._port))
                except ConnectionRefusedError:
                    client.close()
                    continue
                self._ends += client, server
                for arguments in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._forward, args=arguments, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer:
                    data = data[: int(min(len(data), self._answer_bytes))]
                    self._answer_bytes -= len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def run_stalling_proxy(port: int) -> Iterator[StallingProxy]:
    """Run a proxy in front of a port."""
    proxy = StallingProxy(port)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(10)
