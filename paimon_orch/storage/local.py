"""The local file system, through ``os``."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from paimon_orch.errors import CorruptFileError, StorageError, UnsupportedError
from paimon_orch.retry_policy import LOCAL_CREATE
from paimon_orch.storage.base import FileInfo, check_path


class LocalFileIO:
    """The local file system. Exclusive creation uses a hard link."""

    remote = False
    time_precision_seconds = 0.0

    def open_input(self, path: str) -> IO[bytes]:
        """Open for random reads."""
        try:
            return open(_check_local_path(path), "rb")
        except IsADirectoryError:
            raise CorruptFileError(path, "is a directory, but a file is expected") from None

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file for writing; parent directories are created."""
        return _open_new(_check_local_path(path))

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        with self.open_input(path) as file:
            return file.read()

    def create(self, path: str, data: bytes) -> bool:
        """Write a temporary file and hard-link it, so that ``path`` appears atomically."""
        temporary = _write_temporary(_check_local_path(path), data)
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            raise StorageError(
                f"{path} cannot be created exclusively ({error.strerror}); this file system has "
                "no hard links, so two committers could overwrite each other. Use another location."
            ) from error
        finally:
            os.unlink(temporary)

    def write(self, path: str, data: bytes) -> None:
        """Replace by renaming a temporary file."""
        temporary = _write_temporary(_check_local_path(path), data)
        try:
            os.replace(temporary, path)
        except OSError:
            _delete_temporary(temporary)
            raise

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``; symbolic links are not followed."""
        try:
            entries = os.scandir(_check_local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                try:
                    stat = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # the entry was deleted after it was listed
                is_dir, is_link = entry.is_dir(follow_symlinks=False), entry.is_symlink()
                yield FileInfo(
                    path=entry.path,
                    size=stat.st_size,
                    modified=stat.st_mtime,
                    is_dir=is_dir,
                    is_link=is_link,
                )

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return os.path.exists(_check_local_path(path))

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return os.stat(_check_local_path(path)).st_size

    def delete(self, path: str) -> None:
        """Delete one file; a missing file is not an error."""
        Path(_check_local_path(path)).unlink(missing_ok=True)

    def delete_dir(self, path: str) -> None:
        """Delete a directory with its content; a missing one is not an error."""
        try:
            shutil.rmtree(_check_local_path(path))
        except FileNotFoundError:
            return

    def make_dir(self, path: str) -> bool:
        """Create an empty directory and its parents."""
        _make_parents(_check_local_path(path))
        try:
            os.mkdir(path)
        except FileExistsError:
            return False
        except OSError as error:
            raise _build_write_error(path, error) from error
        return True

    def rename_dir(self, source: str, target: str) -> bool:
        """Rename a directory; ``False`` if the target exists."""
        _make_parents(_check_local_path(target))
        if os.path.lexists(target):
            return False
        try:
            os.rename(_check_local_path(source), target)
        except FileNotFoundError:
            raise
        except OSError as error:
            if os.path.lexists(target):  # another process has created the target
                return False
            raise _build_write_error(target, error) from error
        return True

    def delete_empty_dir(self, path: str) -> bool:
        """Delete an empty directory."""
        try:
            os.rmdir(_check_local_path(path))
        except OSError:  # it is missing, not empty, not a directory, or must not be deleted
            return False
        return True

    def move(self, source: str, target: str) -> bool:
        """Hard-link the new name, which must not exist, and unlink the old one."""
        _make_parents(_check_local_path(target))
        try:
            os.link(_check_local_path(source), target, follow_symlinks=False)
        except FileExistsError:
            return False
        os.unlink(source)
        return True


def _check_local_path(path: str) -> str:
    if not os.path.isabs(path):
        raise UnsupportedError(
            f"{path} is in a different store from the table, which is on the local file system; "
            "a table in several stores is not supported"
        )
    return check_path(path)


def _make_parents(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise _build_write_error(path, error) from error


def _open_new(path: str) -> IO[bytes]:
    """Create a file and its directory; a concurrent cleanup may delete the empty directory."""

    def create() -> IO[bytes]:
        _make_parents(path)
        return open(path, "xb")

    return LOCAL_CREATE.call(create, retry_on=lambda error: isinstance(error, FileNotFoundError))


def _write_temporary(path: str, data: bytes) -> str:
    """Write and sync a file that listings of the format ignore.

    See docs/format/table-layout.md#atomic-writes.
    """
    head, tail = os.path.split(path)
    temporary = f"{head}/.{tail}.{uuid4()}.tmp"
    try:
        with _open_new(temporary) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        _delete_temporary(temporary)
        raise _build_write_error(path, error) from error
    return temporary


def _delete_temporary(path: str) -> None:
    """Delete a temporary file after an error."""
    with suppress(OSError):  # orphan cleanup can delete the file later
        os.unlink(path)


def _build_write_error(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be written ({error.strerror}). Check that the warehouse is a directory "
        "you may write to and that the disk is not full."
    )
