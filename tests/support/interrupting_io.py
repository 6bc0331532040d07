"""A store in which something else happens before one of the operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from paimon_orch.storage import FileInfo, LocalFileIO


class InterruptingFileIO(LocalFileIO):
    """Calls a function before one of its operations."""

    def __init__(self, at: int, interrupt: Callable[[], object]) -> None:
        self.count, self.at, self.interrupt = 0, at, interrupt

    def _note(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.interrupt()

    def read_bytes(self, path: str) -> bytes:
        self._note()
        return super().read_bytes(path)

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        self._note()
        return super().open_input(path, size)

    def open_output(self, path: str) -> IO[bytes]:
        self._note()
        return super().open_output(path)

    def create(self, path: str, data: bytes) -> bool:
        self._note()
        return super().create(path, data)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        self._note()
        return super().list_dir(path)

    def delete(self, path: str) -> None:
        self._note()
        super().delete(path)
