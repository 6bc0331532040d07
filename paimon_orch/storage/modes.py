"""The modes of new files and directories on a local file system: those of the warehouse.

Whoever may read a table can then read its new files, and nobody else, whatever the umask of the
process is. A directory with the sticky bit, such as ``/tmp``, is shared by strangers: in it, the
umask counts.
"""

import os
import stat
from contextlib import suppress

_FILE_BITS, _DIRECTORY_BITS = 0o666, 0o777


def open_new_file(parent: int, name: str, flags: int) -> int:
    """Create a file with the mode of an open directory; return its descriptor.

    Raises :class:`FileExistsError` if ``flags`` have ``O_EXCL``.
    """
    mode = _read_mode(parent)
    bits = _FILE_BITS if mode is None else mode & _FILE_BITS
    file = os.open(name, flags, bits, dir_fd=parent)
    if mode is not None:
        with suppress(PermissionError, NotImplementedError):  # some file systems have no modes
            os.fchmod(file, bits)
    return file


def make_directory(parent: int, name: str) -> None:
    """Create a directory with the mode of an open one; raises :class:`FileExistsError`."""
    mode = _read_mode(parent)
    os.mkdir(name, _DIRECTORY_BITS if mode is None else mode & _DIRECTORY_BITS, dir_fd=parent)
    if mode is not None:
        with suppress(PermissionError, NotImplementedError):
            os.chmod(name, mode, dir_fd=parent)


def _read_mode(directory: int) -> int | None:
    """Return the mode that new entries of a directory get, or None for that of the umask."""
    mode = stat.S_IMODE(os.fstat(directory).st_mode)
    return None if mode & stat.S_ISVTX else mode
