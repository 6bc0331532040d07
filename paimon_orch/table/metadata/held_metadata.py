"""The metadata of one branch as one examination sees it: each file and listing is read once.

An examination must not meet the cache of the process, which would hide that a file is missing or
damaged, but needs the same files for several of its findings.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileInfo
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.snapshot_store import SnapshotStore

T = TypeVar("T")

_MAX_HELD_BYTES = 64 << 20
"""The size of manifests and their lists that are held; others are read again."""


@dataclass(frozen=True, slots=True)
class HeldSnapshotStore(SnapshotStore):
    """The snapshots as they were when they were read first."""

    _held: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def _hold(self, key: object, read: Callable[[], T]) -> T:
        if key not in self._held:
            self._held[key] = read()
        result: T = self._held[key]
        return result

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot."""
        return self._hold("latest", lambda: SnapshotStore.latest(self))

    def latest_id(self) -> int | None:
        """Return the id of the newest snapshot."""
        latest = self.latest()
        return None if latest is None else latest.id

    def earliest_id(self) -> int | None:
        """Return the oldest snapshot id that is not expired."""
        return min(self.list_retained_ids(), default=None)

    def _list_directory(self) -> list[FileInfo]:
        return self._hold("files", lambda: SnapshotStore._list_directory(self))  # noqa: SLF001

    def hint(self, name: str) -> int | None:
        """Return the number in a hint file."""
        return self._hold(name, lambda: SnapshotStore.hint(self, name))

    def _read_file(self, snapshot_id: int) -> bytes | None:
        return self._hold(snapshot_id, lambda: SnapshotStore._read_file(self, snapshot_id))  # noqa: SLF001


class _HeldFiles:
    """Contents of files by name, up to a number of bytes; several threads may use it."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = Lock()

    def get(self, name: str) -> bytes | None:
        return self._contents.get(name)

    def hold(self, name: str, data: bytes) -> None:
        with self._lock:
            size = self._bytes - len(self._contents.get(name, b"")) + len(data)
            if size <= _MAX_HELD_BYTES:
                self._contents[name], self._bytes = data, size


@dataclass(frozen=True, slots=True)
class HeldManifestReader(ManifestReader):
    """Manifests and their lists; in another process, an ordinary reader without a cache."""

    _held: _HeldFiles = field(default_factory=_HeldFiles, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[ManifestReader], tuple[object, ...]]:
        """Return what creates the reader in another process."""
        return ManifestReader, (self.io, self.paths)

    @property
    def keeps_files(self) -> bool:
        """Return True."""
        return True

    def _read_bytes(self, name: str, size: int | None = None) -> tuple[bytes, str]:
        data = self._held.get(name)
        if data is not None and size in (None, len(data)):
            return data, self._path(name)
        data, path = ManifestReader._read_bytes(self, name, size)  # noqa: SLF001 - its own class
        self._held.hold(name, data)
        return data, path
