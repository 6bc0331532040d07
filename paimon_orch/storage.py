"""Files: the few operations the format needs, and nothing else.

Paths are strings; a path handed to a :class:`FileIO` is always absolute. Only :meth:`FileIO.create` is
exclusive, and a commit rests on it alone (format section 10.3).
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import unquote, urlparse
from uuid import uuid4

from paimon_orch.errors import InputError, StorageError


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing; ``modified`` is epoch seconds, ``size`` bytes."""

    path: str
    size: int
    modified: float
    is_dir: bool

    @property
    def name(self) -> str:
        """Return the last component of the path."""
        return self.path.rsplit("/", 1)[-1]


class FileIO(Protocol):
    """The storage contract. Every missing file raises ``FileNotFoundError``."""

    def open_input(self, path: str) -> IO[bytes]:
        """Open for random reads."""
        ...

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new, uniquely named file for writing; parents are made."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make ``path`` with ``data``, wholly or not at all; ``False`` if it exists already."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Replace ``path`` by ``data``; a reader sees the old or the new content."""
        ...

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``; nothing if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory is there."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        ...

    def delete(self, path: str) -> None:
        """Remove one file; a missing one is no error."""
        ...

    def delete_dir(self, path: str) -> None:
        """Remove a whole directory (dropping a table); a missing one is no error."""
        ...


class LocalFileIO:
    """The local file system, through ``os``."""

    def open_input(self, path: str) -> IO[bytes]:
        """Open for random reads."""
        return open(path, "rb")

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file for writing; parents are made."""
        _make_parents(path)
        return open(path, "xb")

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        with open(path, "rb") as file:
            return file.read()

    def create(self, path: str, data: bytes) -> bool:
        """Write a temporary file and hard-link it: atomic, and complete when it becomes visible."""
        temporary = _write_temporary(path, data)
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be created exclusively ({error.strerror}); this file system has no "
                "hard links, so two committers could overwrite each other. Use another location."
            ) from error
        finally:
            os.unlink(temporary)

    def write(self, path: str, data: bytes) -> None:
        """Replace by renaming a temporary file."""
        os.replace(_write_temporary(path, data), path)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``; links are reported as what they are."""
        try:
            entries = os.scandir(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                try:
                    stat = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed since it was listed
                is_dir = entry.is_dir(follow_symlinks=False)
                yield FileInfo(entry.path, stat.st_size, stat.st_mtime, is_dir)

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory is there."""
        return os.path.exists(path)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return os.stat(path).st_size

    def delete(self, path: str) -> None:
        """Remove one file; a missing one is no error."""
        Path(path).unlink(missing_ok=True)

    def delete_dir(self, path: str) -> None:
        """Remove a whole directory; a missing one is no error."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return


def _make_parents(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _write_temporary(path: str, data: bytes) -> str:
    """Write and sync a file that listings of the format ignore (section 1.6)."""
    _make_parents(path)
    head, tail = os.path.split(path)
    temporary = f"{head}/.{tail}.{uuid4()}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(path, error) from error
    return temporary


def _unwritable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be written ({error.strerror}). Check that the warehouse is a directory "
        "you may write to and that the disk is not full."
    )


def resolve_warehouse(uri: str) -> tuple[FileIO, str]:
    """Return the file system of a warehouse and its absolute root path, without a slash at the end."""
    scheme = urlparse(uri).scheme
    if scheme in ("", "file"):
        path = unquote(urlparse(uri).path) if scheme else uri
        return LocalFileIO(), os.path.abspath(os.path.expanduser(path))
    raise InputError(
        f"warehouse {uri!r}: the scheme {scheme!r} is not supported; give a local path or a file: URI"
    )
