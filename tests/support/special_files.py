"""Pipes, sockets and devices in the place of files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        previous = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 characters
        try:
            server.bind(path.name)
        finally:
            os.chdir(previous)


SPECIAL_FILES: Mapping[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": _make_socket,
}
"""What creates a special file, by its kind."""
