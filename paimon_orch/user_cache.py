"""The user's cache: start scripts, archives for workers, and the warehouses of demos."""

import os
import stat

import platformdirs

from paimon_orch.errors import InputError

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def check_user_cache() -> None:
    """Create the cache, which other users cannot read, or check that no other user can write to it.

    Raises :class:`InputError` if another user can, because programs are started from it, and
    :class:`OSError` if it cannot be created.
    """
    cache = platformdirs.user_cache_path("paimon-orch")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = cache.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _WRITABLE_BY_OTHERS:
        raise InputError(
            f"{cache} belongs to another user, or others may write to it, so programs in it are "
            f"not started. Run `chmod go-w {cache}`, or set XDG_CACHE_HOME to another directory"
        )
