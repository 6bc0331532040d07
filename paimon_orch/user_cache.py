"""The user's cache: start scripts, archives for workers, and the warehouses of demos."""

import os
import stat
from pathlib import Path

import platformdirs

from paimon_orch.errors import InputError

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_cache_folder(*names: str) -> Path:
    """Create a folder of the cache, or check that no other user can write to it; return its path.

    New folders cannot be read by others, also with the umask 0. Raises :class:`InputError` if
    another user can write to one of them, because programs are started from it, and
    :class:`OSError` if one cannot be created.
    """
    folder = platformdirs.user_cache_path("paimon-orch")
    missing = [parent for parent in folder.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    _make_private(folder)
    for name in names:
        folder /= name
        _make_private(folder)
    return folder


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _WRITABLE_BY_OTHERS:
        raise InputError(
            f"{folder} belongs to another user, or others may write to it, so programs in it are "
            f"not started. Run `chmod go-w {folder}`, or set XDG_CACHE_HOME to another directory"
        )
