"""Files: the few operations the format needs, and nothing else.

Paths are strings; a path handed to a :class:`FileIO` is always absolute. Only :meth:`FileIO.create` is
exclusive, and a commit rests on it alone.

See docs/format/commit.md#atomic-creation.
"""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from paimon_orch.errors import InputError
from paimon_orch.storage.base import FileInfo, FileIO
from paimon_orch.storage.local import LocalFileIO
from paimon_orch.storage.object_store import FsspecFileIO, open_object_store

__all__ = ["FileIO", "FileInfo", "FsspecFileIO", "LocalFileIO", "resolve_warehouse"]


def resolve_warehouse(uri: str, options: Mapping[str, Any] | None = None) -> tuple[FileIO, str]:
    """Return the file system of a warehouse and its absolute root path, without a slash at the end.

    ``options`` are fsspec's for the store of the URI: credentials, an endpoint. Raises :class:`InputError`.
    """
    scheme = urlparse(uri).scheme
    if scheme not in ("", "file"):
        return open_object_store(uri, options or {})
    if options:
        names = ", ".join(sorted(options))
        raise InputError(f"warehouse {uri!r} is local and takes no storage options; got {names}")
    path = unquote(urlparse(uri).path) if scheme else uri
    return LocalFileIO(), os.path.abspath(os.path.expanduser(path))
