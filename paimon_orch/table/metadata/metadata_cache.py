"""Keeps the content of metadata files that never change, in one bounded cache per process.

See docs/storage.md#requests-and-caches.
"""

from collections.abc import Hashable
from threading import Lock
from typing import Final

from cachetools import LRUCache

from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.metadata_io import read_metadata_file

_MAX_BYTES: Final = 64 << 20
_MAX_FILE_BYTES: Final = 16 << 20

_Key = tuple[Hashable, tuple[str, ...], str, str]
"""The store, the directories that its reader may use, the path and the version."""

_contents: LRUCache[_Key, bytes] = LRUCache(_MAX_BYTES, getsizeof=len)
_lock = Lock()


def read_unchanging_file(
    io: FileIO, path: str, version: str = "", *, size: int | None = None
) -> bytes:
    """Return the content of a file that is never replaced; raises ``FileNotFoundError``.

    The name of the file must be unique for all times, as those of manifests, or ``version`` must
    identify the content, as :attr:`FileInfo.version` does. ``size`` is the expected number of
    bytes, if it is known; content of another size is read again.
    """
    key = (io.store, io.roots, path, version)
    with _lock:
        data = _contents.get(key)
    if data is None or size not in (None, len(data)):
        data = read_metadata_file(io, path)
        _keep(key, data)
    return data


def keep_written_file(io: FileIO, path: str, data: bytes) -> None:
    """Add the content of a new file with a unique name, which this process has written."""
    _keep((io.store, io.roots, path, ""), data)


def clear_metadata_cache() -> None:
    """Forget all contents."""
    with _lock:
        _contents.clear()


def _keep(key: _Key, data: bytes) -> None:
    if len(data) <= _MAX_FILE_BYTES:
        with _lock:
            _contents[key] = data
