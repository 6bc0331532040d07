"""Lists several folders of a table by one request, on stores without directories.

See docs/storage.md#requests-and-caches.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from cachetools import LRUCache

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.paths import TablePaths
from paimon_orch.storage import FileInfo, FileIO
from paimon_orch.table.metadata.metadata_io import wrap_read_errors
from paimon_orch.table.metadata.snapshot_store import SNAPSHOT_PREFIX, number_files

_MAX_ENTRIES: Final = 250
"""A longer listing takes more time than the requests that it saves."""

_too_long: LRUCache[tuple[Hashable, str], bool] = LRUCache(10_000)
"""The listings that had more entries, which are not tried again."""
_lock = Lock()


def list_small_folder(
    io: FileIO, prefix: str, *, with_directories: bool = False
) -> list[FileInfo] | None:
    """Return what :meth:`FileIO.list_few` does, or None for a prefix that had too many entries."""
    if not _may_be_small(io, prefix):
        return None
    with wrap_read_errors(prefix):
        entries = io.list_few(prefix, _MAX_ENTRIES, with_directories=with_directories)
    if entries is None:
        with _lock:
            _too_long[io.store, prefix] = True
    return entries


def _may_be_small(io: FileIO, prefix: str) -> bool:
    with _lock:
        return not io.capabilities.has_directories and (io.store, prefix) not in _too_long


@dataclass(frozen=True, slots=True)
class NewestFiles:
    """The schema and snapshot folders of a branch at one moment."""

    schemas: Sequence[FileInfo]
    snapshots: Sequence[FileInfo]
    """The snapshot files and their hints."""

    @property
    def snapshot_id(self) -> int | None:
        """Return the greatest id of a snapshot, 0 if there is none, or None if one is invalid."""
        with suppress(CorruptFileError):
            return max(number_files(self.snapshots, SNAPSHOT_PREFIX), default=0)
        return None


def may_list_newest_files(io: FileIO, paths: TablePaths) -> bool:
    """Return whether :func:`list_newest_files` sends a request."""
    return _may_be_small(io, _build_prefix(paths))


def list_newest_files(io: FileIO, paths: TablePaths) -> NewestFiles | None:
    """List the schemas and snapshots of a branch, or return None if one request does not suffice."""
    files = list_small_folder(io, _build_prefix(paths))
    if files is None:
        return None
    folders = {paths.schema_dir: list[FileInfo](), paths.snapshot_dir: list[FileInfo]()}
    for info in files:
        folder = folders.get(info.path.rpartition("/")[0])
        if folder is not None:
            folder.append(info)
    return NewestFiles(folders[paths.schema_dir], folders[paths.snapshot_dir])


def _build_prefix(paths: TablePaths) -> str:
    """Return what the paths of both folders begin with."""
    return f"{paths.branch_root}/s"
