"""Servers that tests start as a process of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 120


def find_free_port() -> int:
    """Return a port of this machine on which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def run_local_server(
    command: Sequence[str], port: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server with its files and its log in a folder; return when it listens on the port."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            command, stdout=sink, stderr=sink, cwd=folder, env={**os.environ, **(environment or {})}
        )
    try:
        _wait_until_ready(server, port, log)
        yield
    finally:
        server.kill()  # the server inherits ignored signals, and then SIGTERM does not end it
        server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
