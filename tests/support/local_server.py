"""Servers that tests start as a process of this machine."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_START_SECONDS = 120


def find_free_port() -> int:
    """Return a port of this machine on which no server listens."""
    return find_free_ports(1)[0]


def find_free_ports(count: int) -> list[int]:
    """Return ports on which no server listens, nor on those that are higher by 10,000.

    SeaweedFS uses the higher ones, too. All are below those that systems give to outgoing
    connections (from 32,768 on), which could take the port of a server that is started again.
    """
    ports = list[int]()
    with ExitStack() as sockets:
        while len(ports) < count:
            port = 10_000 + secrets.randbelow(12_000)
            with suppress(OSError):
                for number in (port, port + 10_000):
                    sockets.enter_context(socket.create_server(("127.0.0.1", number)))
                ports.append(port)
    return ports


class LocalServer:
    """A server that listens on a port, with its files and its log in a folder."""

    def __init__(
        self, command: Sequence[str], port: int, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._command, self._port, self._folder = command, port, folder
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and return when it listens."""
        log = self._folder / "server.log"
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command, stdout=sink, stderr=sink, cwd=self._folder, env=self._environment
            )
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """Kill the process; it can be started again."""
        if self._process is not None:
            # the server inherits ignored signals, and then SIGTERM does not end it
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def run_local_server(
    command: Sequence[str], port: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[LocalServer]:
    """Run a server until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    server = LocalServer(command, port, folder, environment or {})
    try:
        server.start()
        yield server
    finally:
        server.kill()
