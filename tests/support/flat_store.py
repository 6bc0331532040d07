"""A local directory that behaves like a store without directories, and records what is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from paimon_orch.storage import FileInfo, LocalFileIO
from paimon_orch.table.table import Table


class FlatFileIO(LocalFileIO):
    """Requests run at the same time, and all files below a path can be listed at once."""

    capabilities = replace(LocalFileIO.capabilities, has_slow_requests=True, has_directories=False)

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.listings: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read_bytes(path)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        self.listings.append(path)
        return super().list_dir(path)

    def list_tree(self, path: str) -> list[FileInfo] | None:
        self.listings.append(f"{path}/**")
        return list(self._walk(path))

    def _walk(self, path: str) -> Iterator[FileInfo]:
        for info in super().list_dir(path):
            if info.is_dir:
                yield from self._walk(info.path)
            else:
                yield info

    def names_read(self) -> list[str]:
        """Return the names of the files that were read, sorted."""
        return sorted(Path(path).name for path in self.reads)


class PagingFileIO(FlatFileIO):
    """Also lists what begins with a prefix, in pages, as S3 does."""

    def list_few(
        self, prefix: str, limit: int, *, with_directories: bool = False
    ) -> list[FileInfo] | None:
        self.listings.append(f"{prefix}*")
        parent = prefix.rpartition("/")[0]
        below = [
            info
            for info in (
                LocalFileIO.list_dir(self, parent) if with_directories else self._walk(parent)
            )
            if info.path.startswith(prefix)
        ]
        return None if len(below) > limit else below


def in_flat_store(
    table: Table, kind: Callable[[], FlatFileIO] = FlatFileIO
) -> tuple[Table, FlatFileIO]:
    """Return the same table with a file system of this kind."""
    io = kind()
    return replace(table, io=io), io
