"""A store whose changes stay in a local directory, and that counts what is read."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import SEEK_END
from typing import IO, Self, cast

from paimon_orch.errors import UnsupportedError
from paimon_orch.storage.base import FileInfo, FileIO, StoreWithDirectories, check_path
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.storage.streams import ObjectInput, find_end_start
from paimon_orch.stores import ExclusiveCreation, StoreCapabilities


@dataclass(slots=True)
class ReadCounts:
    """What was read through a store."""

    files: int = 0
    """The number of times that a file was opened."""
    requests: int = 0
    """The number of requests for ranges that an object store would need."""
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFileIO(StoreWithDirectories):
    """Reads the files of another store, which never changes; new files are in a directory.

    A file that is deleted is hidden. All paths are those of the other store.
    """

    base: FileIO
    directory: str
    """A local directory for new files; the caller deletes it."""
    counts: ReadCounts = field(default_factory=ReadCounts, compare=False)
    _deleted: set[str] = field(default_factory=set, compare=False, repr=False)
    _local: LocalFileIO = field(default_factory=LocalFileIO, compare=False, repr=False)

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return those of an object store, so that its requests are measured, in one process."""
        return replace(
            self.base.capabilities,
            is_local=False,
            has_slow_requests=True,
            has_directories=True,
            has_atomic_rename=False,
            has_bulk_delete=False,
            exclusive_creation=ExclusiveCreation.ONE_PROCESS,
        )

    @property
    def store(self) -> Hashable:
        """Return what no other store is equal to: its files may differ from those below it."""
        return "overlay", self.base.store, self.directory

    @property
    def time_precision_seconds(self) -> float:
        """Return the precision of the store below."""
        return self.base.time_precision_seconds

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the directories of the store below that may be read."""
        return self.base.roots

    def confine(self, roots: Sequence[str], anchors: Sequence[str] = ()) -> Self:
        """Return a copy with a confined store below, and the same changes and counts."""
        return replace(self, base=self.base.confine(roots, anchors))

    def check_readable(self, path: str) -> None:
        """Check that the store below may read a path."""
        self.base.check_readable(path)

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        """Open a new file, or one of the store below, with the requests of an object store."""
        io, real = self._locate(path)
        source = io.open_input(real, size)
        length = source.seek(0, SEEK_END)
        self.counts.files += 1
        if io.capabilities.is_local:  # an open file would need an end
            source.close()

        def fetch(start: int, end: int) -> bytes:
            opened = io.open_input(real, size) if io.capabilities.is_local else source
            opened.seek(start)
            data = opened.read(end - start)
            if opened is not source:
                opened.close()
            self.counts.requests += 1
            self.counts.bytes += len(data)
            return data

        end = fetch(find_end_start(length), length)
        return cast("IO[bytes]", ObjectInput(fetch, length, end=end))

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file in the directory."""
        self._deleted.discard(path)
        return self._local.open_output(self._map(path))

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        io, real = self._locate(path)
        data = io.read_bytes(real)
        self.counts.files += 1
        self.counts.requests += 1
        self.counts.bytes += len(data)
        return data

    def create(self, path: str, data: bytes) -> bool:
        """Create a file in the directory, unless it exists."""
        if self.file_exists(path):
            return False
        self._deleted.discard(path)
        return self._local.create(self._map(path), data)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file by one in the directory."""
        self._deleted.discard(path)
        self._local.write(self._map(path), data)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries of both stores that are not deleted."""
        mine = {
            info.name: replace(info, path=f"{path}/{info.name}")
            for info in self._local.list_dir(self._map(path))
        }
        for info in self.base.list_dir(path):
            if info.name not in mine and info.path not in self._deleted:
                yield info
        yield from mine.values()

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return self._local.exists(self._map(path)) or (
            path not in self._deleted and self.base.exists(path)
        )

    def file_exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return self._local.file_exists(self._map(path)) or (
            path not in self._deleted and self.base.file_exists(path)
        )

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        io, real = self._locate(path)
        return io.size(real)

    def delete(self, path: str) -> None:
        """Delete a new file, or hide one of the store below."""
        self._local.delete(self._map(path))
        self._deleted.add(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files one by one."""
        for path in paths:
            self.delete(path)

    def delete_dir(self, path: str) -> None:
        """Refuse to delete a directory."""
        raise UnsupportedError(f"{path}: a simulation deletes no directories")

    def make_dir(self, path: str) -> bool:
        """Create a directory."""
        return not self.exists(path) and self._local.make_dir(self._map(path))

    def rename_dir(self, source: str, target: str) -> bool:
        """Refuse to rename a directory."""
        raise UnsupportedError(f"{source}: a simulation renames no directories to {target}")

    def delete_empty_dir(self, path: str) -> bool:
        """Keep all directories."""
        del path
        return False

    def move(self, source: str, target: str) -> bool:
        """Copy a file to a new name, and hide the old one."""
        if not self.create(target, self.read_bytes(source)):
            return False
        self.delete(source)
        return True

    def _map(self, path: str) -> str:
        """Return where a new file is."""
        return f"{self.directory}/{check_path(path).replace('://', '/', 1).lstrip('/')}"

    def _locate(self, path: str) -> tuple[FileIO, str]:
        """Return the store and the path of a file.

        Raises ``FileNotFoundError`` for a deleted file.
        """
        if path in self._deleted:
            raise FileNotFoundError(path)
        if self._local.file_exists(self._map(path)):
            return self._local, self._map(path)
        return self.base, path
