"""Storage: the file operations of the format, on local file systems, HDFS and object stores.

Paths are strings and always absolute. Only :meth:`FileIO.create` is exclusive; commits rely on it.

See docs/format/commit.md#atomic-creation.
"""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from paimon_orch.errors import InputError
from paimon_orch.safe_text import mask_secrets
from paimon_orch.storage.base import FileInfo, FileIO
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.storage.object_store import FsspecFileIO, open_object_store
from paimon_orch.storage.object_store_options import StorageCredentials
from paimon_orch.stores import ExclusiveCreation, StoreCapabilities, find_store

__all__ = [
    "ExclusiveCreation",
    "FileIO",
    "FileInfo",
    "FsspecFileIO",
    "LocalFileIO",
    "StorageCredentials",
    "StoreCapabilities",
    "resolve_warehouse",
]


def resolve_warehouse(
    uri: str,
    options: Mapping[str, Any] | None = None,
    *,
    credentials: StorageCredentials | None = None,
) -> tuple[FileIO, str]:
    """Return the file system of a warehouse and its absolute root path, without a trailing slash.

    ``options`` are the storage options, for example an endpoint, and ``credentials`` those of object
    stores that are renewed. Raises :class:`InputError`.
    """
    try:
        scheme = urlparse(uri).scheme
    except ValueError as error:  # for example a bracket in the host, which would begin an address
        raise InputError(f"warehouse {mask_secrets(uri)!r} is not a valid URI: {error}") from None
    if scheme not in ("", "file"):
        store = find_store(scheme)
        opened: tuple[FileIO, str] = (open_object_store if store is None else store.open)(
            uri, options or {}, credentials
        )
        return opened
    if options:
        names = ", ".join(sorted(options))
        raise InputError(f"warehouse {uri!r} is local and cannot have storage options; got {names}")
    path = unquote(urlparse(uri).path) if scheme else uri
    return LocalFileIO(), os.path.abspath(os.path.expanduser(path))
