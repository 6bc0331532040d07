"""File operations that fail, or that another writer precedes, at a chosen change of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import IOBase
from pathlib import Path
from typing import IO, TypeVar

from support.iceberg_metadata import HINT, IcebergTable

from paimon_orch.storage import LocalFileIO
from paimon_orch.storage.base import FileInfo

T = TypeVar("T")


class Killed(BaseException):
    """Stands for the end of the process: no handler of errors catches it."""


class InterruptedFileIO(LocalFileIO):
    """Calls ``interrupt`` before or after the n-th operation below a directory.

    After that, readers check the Iceberg metadata before each change of the table. This is not
    possible after an interrupted change of the hint, which cannot depend on the content of the
    hint; the publication corrects the hint at its end.
    """

    def __init__(
        self,
        directory: Path,
        number: int,
        interrupt: Callable[[], object],
        *,
        after: bool = False,
        only_changes: bool = False,
    ) -> None:
        self.directory, self.number, self.interrupt = directory, number, interrupt
        self.after, self.only_changes = after, only_changes
        self.operations: list[str] = []

    @property
    def was_interrupted(self) -> bool:
        """Whether the operation was reached."""
        return len(self.operations) >= self.number

    def create(self, path: str, data: bytes) -> bool:
        """Create a file."""
        return self._change(path, lambda: super(InterruptedFileIO, self).create(path, data))

    def write(self, path: str, data: bytes) -> None:
        """Replace a file."""
        return self._change(path, lambda: super(InterruptedFileIO, self).write(path, data))

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file."""
        return self._change(path, lambda: super(InterruptedFileIO, self).open_output(path))

    def delete(self, path: str) -> None:
        """Delete a file."""
        return self._change(path, lambda: super(InterruptedFileIO, self).delete(path))

    def read_bytes(self, path: str) -> bytes:
        """Read a file."""
        return self._read(path, lambda: super(InterruptedFileIO, self).read_bytes(path))

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """List a directory."""
        return self._read(path, lambda: iter([*super(InterruptedFileIO, self).list_dir(path)]))

    def _change(self, path: str, operation: Callable[[], T]) -> T:
        if self.was_interrupted and not self.operations[self.number - 1].endswith(HINT):
            check_readers(self.directory)
        return self._count(path, operation)

    def _read(self, path: str, operation: Callable[[], T]) -> T:
        return operation() if self.only_changes else self._count(path, operation)

    def _count(self, path: str, operation: Callable[[], T]) -> T:
        if not path.startswith(f"{self.directory}"):
            return operation()
        self.operations.append(path)
        is_chosen = len(self.operations) == self.number
        if is_chosen and not self.after:
            self.interrupt()
        result = operation()
        if is_chosen and self.after:
            if isinstance(result, IOBase):
                result.close()
            self.interrupt()
        return result


def check_readers(directory: Path) -> None:
    """Check what readers find now, whether or not they look for versions above the hint."""
    iceberg = IcebergTable(directory)
    iceberg.check_current()
    if iceberg.head != iceberg.hint:
        IcebergTable(directory, version=iceberg.head).check_current()
