"""The local file system, through ``os``."""

import errno
import os
import stat
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from io import BufferedWriter, FileIO
from typing import IO, TYPE_CHECKING, Self, TypeVar
from uuid import uuid4

from paimon_orch.decode_limits import check_whole_file, measure_stored_bytes
from paimon_orch.errors import (
    CorruptFileError,
    FileNotCreatedError,
    NotAllowedError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.retry_policy import LOCAL_CREATE
from paimon_orch.storage.base import FileInfo, StoreWithDirectories, build_size_error, check_path
from paimon_orch.storage.delete_tree import delete_tree
from paimon_orch.storage.modes import make_directory, open_new_file
from paimon_orch.storage.open_directory import (
    InDirectory,
    Roots,
    build_link_error,
    call_to_change,
    call_to_read,
    make_directories,
)
from paimon_orch.stores import ExclusiveCreation, StoreCapabilities

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

T = TypeVar("T")

_MAX_HOLES = 128 << 10


class LocalFileIO(StoreWithDirectories):
    """The local file system. Exclusive creation uses a hard link."""

    capabilities = StoreCapabilities(
        is_local=True,
        has_slow_requests=False,
        has_directories=True,
        has_atomic_rename=True,
        has_bulk_delete=False,
        exclusive_creation=ExclusiveCreation.HARD_LINK,
    )
    store: Hashable = "file"
    time_precision_seconds = 0.0

    _roots = Roots()

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the directories that may be used, or () for all."""
        return self._roots.paths

    def confine(self, roots: Sequence[str], anchors: Sequence[str] = ()) -> Self:
        """Return a copy for some directories; see :meth:`FileIO.confine`."""
        confined = copy(self)
        kept = dict.fromkeys((*self._roots.anchors, *anchors))
        confined._roots = Roots(tuple(roots), tuple(kept))  # noqa: SLF001 - its own class
        return confined

    def check_readable(self, path: str) -> None:
        """Raise :class:`NotAllowedError` for a path outside of the roots."""
        if self.roots:
            self.exists(path)

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        """Open for random reads, and check the size if it is given."""
        source = self._open_input(path)
        if size is not None:
            actual = os.fstat(source.fileno()).st_size
            if actual != size:
                source.close()
                raise build_size_error(path, actual, size)
        return source

    def _open_input(self, path: str) -> IO[bytes]:

        def open_in(directory: int, name: str, flags: int) -> IO[bytes]:
            def open_name(_: str, mode: int) -> int:
                return _open_regular(path, directory, name, mode | flags)

            return open(path, "rb", opener=open_name)

        try:
            return self._call_to_read(path, open_in)
        except IsADirectoryError:
            raise CorruptFileError(path, "is a directory, but a file is expected") from None

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file for writing; parent directories are created."""
        try:
            return _NewFile(self._open_new(_check_local_path(path)), path)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:  # for example, a read-only file system
            raise _build_write_error(path, error) from error

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        with self.open_input(path) as file:
            # a sparse file of any size needs almost no space on the disk
            size = os.fstat(file.fileno()).st_size
            check_whole_file(size, path)
            if size > _MAX_HOLES and size - measure_stored_bytes(file, size) > _MAX_HOLES:
                raise CorruptFileError(path, "is sparse, as no writer of metadata leaves a file")
            return file.read()

    def create(self, path: str, data: bytes) -> bool:
        """Write a temporary file and hard-link it, so that ``path`` appears atomically."""
        temporary = self._write_temporary(_check_local_path(path), data)
        try:
            self._link(temporary, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            raise StorageError(
                f"{path} cannot be created exclusively ({error.strerror}); this file system has "
                "no hard links, so two committers could overwrite each other. Use another location."
            ) from error
        finally:
            self._unlink(temporary)

    def write(self, path: str, data: bytes) -> None:
        """Replace by renaming a temporary file."""
        temporary = self._write_temporary(_check_local_path(path), data)
        try:
            self._rename(temporary, path)
        except OSError:
            self._delete_temporary(temporary)
            raise

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``; symbolic links are not followed."""

        def open_in(parent: int, name: str, flags: int) -> int:
            return os.open(name, os.O_RDONLY | os.O_DIRECTORY | flags, dir_fd=parent)

        try:
            directory = self._call_to_read(path, open_in)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with os.scandir(directory) as entries:
                yield from (info for entry in entries if (info := _describe(path, entry)))
        finally:
            os.close(directory)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        try:
            self._stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def file_exists(self, path: str) -> bool:
        """Return whether a file or directory exists; a directory costs no more than a file."""
        return self.exists(path)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self._stat(path).st_size

    def delete(self, path: str) -> None:
        """Delete one file; a missing file is not an error."""
        with suppress(FileNotFoundError):
            self._unlink(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files; a missing file is not an error."""
        for path in paths:
            self.delete(path)

    def delete_dir(self, path: str) -> None:
        """Delete a directory with its content; a missing one is not an error."""

        def delete_in(parent: int, name: str, flags: int) -> None:
            if flags and stat.S_ISLNK(os.lstat(name, dir_fd=parent).st_mode):
                raise build_link_error(path)
            delete_tree(parent, name)

        with suppress(FileNotFoundError):
            self._call_to_change(path, delete_in)

    def make_dir(self, path: str) -> bool:
        """Create an empty directory and its parents."""
        try:
            self._make_parents(path)
            self._call_to_change(path, lambda parent, name, _: make_directory(parent, name))
        except FileExistsError:
            return False
        except OSError as error:
            raise _build_write_error(path, error) from error
        return True

    def rename_dir(self, source: str, target: str) -> bool:
        """Rename a directory; ``False`` if the target exists."""
        self._make_parents(target)
        if self._lexists(target):
            return False
        try:
            self._rename(source, target)
        except FileNotFoundError:
            raise
        except OSError as error:
            if self._lexists(target):  # another process has created the target
                return False
            raise _build_write_error(target, error) from error
        return True

    def delete_empty_dir(self, path: str) -> bool:
        """Delete an empty directory."""
        try:
            self._call_to_change(path, lambda parent, name, _: os.rmdir(name, dir_fd=parent))
        except (OSError, NotAllowedError):
            return False  # it is missing, not empty, a file or a link, or must not be deleted
        return True

    def move(self, source: str, target: str) -> bool:
        """Hard-link the new name, which must not exist, and unlink the old one."""
        self._make_parents(target)
        try:
            self._link(source, target)
        except FileExistsError:
            return False
        self._unlink(source)
        return True

    def _call_to_change(self, path: str, call: InDirectory[T]) -> T:
        return call_to_change(self._roots, _check_local_path(path), call)

    def _call_to_read(self, path: str, call: InDirectory[T]) -> T:
        return call_to_read(self._roots, _check_local_path(path), call)

    def _stat(self, path: str) -> os.stat_result:
        def stat_in(parent: int, name: str, flags: int) -> os.stat_result:
            follows = not flags & os.O_NOFOLLOW
            result = os.stat(name, dir_fd=parent, follow_symlinks=follows)
            if stat.S_ISLNK(result.st_mode):
                raise build_link_error(path)
            return result

        return self._call_to_read(path, stat_in)

    def _lexists(self, path: str) -> bool:
        try:
            self._call_to_change(path, lambda parent, name, _: os.lstat(name, dir_fd=parent))
        except FileNotFoundError:
            return False
        return True

    def _link(self, source: str, target: str) -> None:
        """Create a second name of a file; raises :class:`FileExistsError` if it is taken."""

        def link_from(source_parent: int, source_name: str, _: int) -> None:
            self._call_to_change(
                target,
                lambda parent, name, _: os.link(
                    source_name,
                    name,
                    src_dir_fd=source_parent,
                    dst_dir_fd=parent,
                    follow_symlinks=False,
                ),
            )

        self._call_to_change(source, link_from)

    def _rename(self, source: str, target: str) -> None:
        """Rename a file or directory, and replace a file."""

        def rename_from(source_parent: int, source_name: str, _: int) -> None:
            self._call_to_change(
                target,
                lambda parent, name, _: os.replace(
                    source_name, name, src_dir_fd=source_parent, dst_dir_fd=parent
                ),
            )

        self._call_to_change(source, rename_from)

    def _make_parents(self, path: str) -> None:
        try:
            make_directories(self._roots, os.path.dirname(_check_local_path(path)))
        except OSError as error:
            raise _build_write_error(path, error) from error

    def _open_new(self, path: str) -> FileIO:
        """Create a file and its directory; a concurrent cleanup may delete the empty directory."""

        def open_in(parent: int, name: str, flags: int) -> FileIO:
            def open_name(_: str, mode: int) -> int:
                return open_new_file(parent, name, mode | flags)

            return FileIO(path, "x", opener=open_name)

        def create() -> FileIO:
            try:
                return self._call_to_change(path, open_in)
            except FileNotFoundError:
                self._make_parents(path)
            return self._call_to_change(path, open_in)

        return LOCAL_CREATE.call(
            create, retry_on=lambda error: isinstance(error, FileNotFoundError)
        )

    def _write_temporary(self, path: str, data: bytes) -> str:
        """Write and sync a file that listings of the format ignore.

        See docs/format/table-layout.md#atomic-writes.
        """
        head, tail = os.path.split(path)
        temporary = f"{head}/.{tail}.{uuid4()}.tmp"
        try:
            with BufferedWriter(self._open_new(temporary)) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._delete_temporary(temporary)
            raise _build_write_error(path, error, FileNotCreatedError) from error
        return temporary

    def _delete_temporary(self, path: str) -> None:
        """Delete a temporary file after an error; orphan cleanup can delete it later."""
        with suppress(OSError):
            self._unlink(path)

    def _unlink(self, path: str) -> None:
        self._call_to_change(path, lambda parent, name, _: os.unlink(name, dir_fd=parent))


class _NewFile(BufferedWriter):
    """A file for writing, whose errors name it: those of a full disk do not."""

    def __init__(self, raw: FileIO, path: str) -> None:
        super().__init__(raw)
        self._path = path

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write bytes; raises :class:`StorageError` if the disk is full."""
        with self._name_file():
            return super().write(data)

    def flush(self) -> None:
        """Write the buffered bytes; raises :class:`StorageError` if the disk is full."""
        with self._name_file():
            super().flush()

    @contextmanager
    def _name_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _build_write_error(self._path, error) from error


def _describe(directory: str, entry: "os.DirEntry[str]") -> FileInfo | None:
    """Return an entry of a listing, or None if it was deleted after it was listed."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return FileInfo(
        path=f"{directory.rstrip('/')}/{entry.name}",
        size=status.st_size,
        modified=status.st_mtime,
        is_dir=entry.is_dir(follow_symlinks=False),
        is_link=entry.is_symlink(),
        version=f"{status.st_ino}-{status.st_mtime_ns}-{status.st_ctime_ns}",
    )


def _open_regular(path: str, directory: int, name: str, flags: int) -> int:
    """Open a file, but no pipe, socket or device: they can block a reader, or never end.

    Without O_NONBLOCK, the opening of a pipe waits for a writer.
    """
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        if error.errno != errno.ENXIO:  # the error of a socket
            raise
        raise CorruptFileError(path, "is a special file, not a file") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        os.close(descriptor)
        raise CorruptFileError(path, f"is a special file ({stat.filemode(mode)[0]}), not a file")
    return descriptor


def _check_local_path(path: str) -> str:
    if not os.path.isabs(path):
        raise UnsupportedError(
            f"{path} is in a different store from the table, which is on the local file system; "
            "a table in several stores is not supported"
        )
    return check_path(path)


def _build_write_error(
    path: str, error: OSError, kind: type[StorageError] = StorageError
) -> StorageError:
    return kind(
        f"{path} cannot be written ({error.strerror}). Check that the warehouse is a directory "
        "you may write to and that the disk is not full."
    )
