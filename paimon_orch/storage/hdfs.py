"""HDFS and viewfs, through hdfs-native.

See docs/storage.md#hdfs.
"""

import errno
import io
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import IO, Any, Self, TypeVar
from urllib.parse import urlparse
from uuid import uuid4

from paimon_orch.decode_limits import check_whole_file
from paimon_orch.errors import (
    CorruptFileError,
    FileNotCreatedError,
    InputError,
    PaimonError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.optional_packages import require_package
from paimon_orch.retry_policy import STORE_CALL
from paimon_orch.storage.base import (
    FileInfo,
    StoreWithDirectories,
    build_size_error,
    check_path,
    find_root,
)
from paimon_orch.storage.concurrency import run_concurrently, start_call
from paimon_orch.storage.hdfs_client import ConnectionLostError, HdfsClient, RefusedForNowError
from paimon_orch.storage.hdfs_settings import HdfsSettings
from paimon_orch.storage.object_store_options import StorageCredentials, StorageOptions
from paimon_orch.storage.store_operation import (
    begin_operation,
    describe_attempts,
    give_up,
    may_repeat,
    try_once,
)
from paimon_orch.storage.streams import ObjectInput, ObjectOutput, find_end_start
from paimon_orch.stores.hdfs import STORE

T = TypeVar("T")

_FILE_BITS, _DIRECTORY_BITS = 0o666, 0o777
_BUFFER_BYTES = 1 << 20
_MAX_WRITE_BYTES = 8 << 20  # what one call writes within its time limit


@dataclass(frozen=True, slots=True)
class HdfsFileIO(StoreWithDirectories):
    """Files of one HDFS. Exclusive creation renames a complete file, which replaces no other one.

    Tasks of Spark get the settings with this object, and open their own connections.
    """

    client: HdfsClient
    roots: tuple[str, ...] = ()
    """The directories that may be used; empty for all."""

    capabilities = STORE.capabilities
    time_precision_seconds = 0.001

    @property
    def store(self) -> Hashable:
        """Return what identifies the cluster and its user."""
        return self.client.key

    def confine(self, roots: Sequence[str], anchors: Sequence[str] = ()) -> Self:  # noqa: ARG002 - no links
        """Return a copy for some directories; see :meth:`FileIO.confine`."""
        return replace(self, roots=tuple(roots))

    def check_readable(self, path: str) -> None:
        """Raise :class:`NotAllowedError` for a path outside of the roots."""
        self._find_name(path)

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        """Open for random reads; reads the end of a file of known size."""
        name = self._find_name(path)
        reader = self._open_reader(path, name)
        actual = reader.file_length()
        if size is not None and actual != size:
            raise build_size_error(path, actual, size)

        def fetch(start: int, end: int) -> bytes:
            return self._read_range(path, reader, start, end)

        last = b"" if size is None else fetch(find_end_start(size), size)
        start = partial(start_call, self)
        return ObjectInput(fetch, actual, end=last, start_call=start)  # type: ignore[return-value]  # an IO by its methods

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new file for writing; parent directories are created."""
        name, attempts = self._find_name(path), count()

        def create(client: Any) -> Any:
            # The request of an attempt without an answer can arrive late, when the file is complete.
            return client.create(name, self._build_write_options(overwrite=next(attempts) > 0))

        writer = self._call(path, "written", create)
        sink = io.BufferedWriter(_HdfsOutput(self.client, path, writer), _BUFFER_BYTES)  # type: ignore[type-var]  # a raw stream by its methods
        return ObjectOutput(sink, lambda: _wrap_errors(path, "written"))  # type: ignore[return-value]

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        name = self._find_name(path)

        def read(client: Any) -> bytes:
            reader = client.read(name)
            size = reader.file_length()
            check_whole_file(size, path)
            return bytes(reader.read_range(0, size)) if size else b""

        try:
            return self._call(path, "read", read)  # a file that is replaced is opened again
        except IsADirectoryError:
            raise _build_directory_error(path) from None

    def create(self, path: str, data: bytes) -> bool:
        """Rename a complete file, unless ``path`` exists; see :meth:`FileIO.create`.

        After an error, the outcome is found: as long as the complete file has its old name, it can
        be deleted, and then it never gets the new one; otherwise the content of ``path`` decides.
        Raises :class:`StorageError` if there is no such file, because it may have been deleted.
        """
        with begin_operation():
            try:
                temporary = self._write_temporary(path, data)
            except StorageError as error:
                raise _build_not_created_error(path, error) from error
            try:
                self._rename(temporary, path, overwrite=False)
                return True
            except FileExistsError:
                with suppress(PaimonError):  # orphan cleanup deletes it later
                    self.delete(temporary)
                return False
            except (OSError, PaimonError) as error:  # an expired ticket is no StorageError
                return self._resolve_creation(path, data, temporary, error)

    def write(self, path: str, data: bytes) -> None:
        """Replace by renaming a complete file."""
        with begin_operation():
            temporary = self._write_temporary(path, data)
            try:
                self._rename(temporary, path, overwrite=True)
            except (OSError, PaimonError) as error:
                if not self._resolve_creation(path, data, temporary, error):
                    raise

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``."""
        name, base = self._find_name(path), path.rstrip("/")
        try:
            entries = self._call(
                path, "listed", lambda client: list(client.list_status(name, False))
            )
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.path != name:  # that of a file
                yield _describe(f"{base}/{entry.path.rpartition('/')[2]}", entry)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return self._find_info(path) is not None

    def file_exists(self, path: str) -> bool:
        """Return whether a file exists."""
        info = self._find_info(path)
        return info is not None and not info.isdir

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        info = self._find_info(path)
        if info is None or info.isdir:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return int(info.length)

    def delete(self, path: str) -> None:
        """Delete one file; a missing file is not an error."""
        self._delete_name(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files, several at the same time; a missing file is not an error."""
        for path in paths:
            self._find_name(path)
        run_concurrently(self, self.delete, dict.fromkeys(paths))

    def delete_dir(self, path: str) -> None:
        """Delete a directory with its content; a missing one is not an error."""
        self._delete_name(path, recursive=True)

    def make_dir(self, path: str) -> bool:
        """Create an empty directory and its parents."""
        if self.exists(path):
            return False
        self._make_directories(path)
        return True

    def rename_dir(self, source: str, target: str) -> bool:
        """Rename a directory; ``False`` if the target exists."""
        return self._move(source, target)

    def delete_empty_dir(self, path: str) -> bool:
        """Delete an empty directory."""
        info = self._find_info(path)
        if info is None or not info.isdir:
            return False
        try:
            return self._delete_name(path)
        except IsADirectoryError:
            return False  # it is not empty

    def move(self, source: str, target: str) -> bool:
        """Rename a file to a name that does not exist."""
        return self._move(source, target)

    def _move(self, source: str, target: str) -> bool:
        """Rename, and create the parents; return False if ``target`` exists.

        Only an answer can be lost: the source existed, so that it was renamed if it does not now.
        """
        if not self.exists(source):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._make_directories(target.rpartition("/")[0])
        try:
            self._rename(source, target, overwrite=False)
        except FileExistsError:
            return False
        except (OSError, StorageError):
            if self.exists(source) or not self.exists(target):
                raise
        return True

    def _resolve_creation(self, path: str, data: bytes, temporary: str, error: Exception) -> bool:
        """Return whether the file is ours after an error."""
        was_deleted = False
        with suppress(OSError, PaimonError):
            was_deleted = self._delete_name(temporary)
        if was_deleted:
            raise _build_not_created_error(path, error) from error
        try:
            return self.read_bytes(path) == data
        except (OSError, PaimonError):
            text = (
                f"{path}: it is unknown whether the file was created ({error}). Check whether it "
                "exists before you try again."
            )
            raise _build_error(text) from error

    def _write_temporary(self, path: str, data: bytes) -> str:
        """Write a complete file next to ``path``; return its path."""
        self._find_name(path)
        head, tail = path.rsplit("/", 1)
        options, names = self._build_write_options(overwrite=False), list[str]()

        def put(client: Any) -> None:
            # Listings ignore files with such a name (docs/format/table-layout.md#atomic-writes).
            # Each attempt has its own: the request of an earlier one can arrive late.
            names.append(f"{head}/.{tail}.{uuid4()}.tmp")
            writer = client.create(self._find_name(names[-1]), options)
            if data:
                writer.write(data)
            writer.close()

        self._call(path, "written", put)
        *failed, temporary = names
        with suppress(OSError, PaimonError), try_once():  # orphan cleanup deletes them later
            for name in failed:
                self._delete_name(name)
        return temporary

    def _rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Rename; repeated only after the NameNode has refused it for the moment."""
        old, new = self._find_name(source), self._find_name(target)
        self._call(
            target,
            "created by a rename",
            lambda client: client.rename(old, new, overwrite),
            retry_on=RefusedForNowError,
        )

    def _delete_name(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a file or directory; return whether it existed, unless an answer was lost."""
        name = self._find_name(path)
        return bool(self._call(path, "deleted", lambda client: client.delete(name, recursive)))

    def _make_directories(self, path: str) -> None:
        name, bits = self._find_name(path), _DIRECTORY_BITS & ~self.client.settings.umask
        self._call(path, "created", lambda client: client.mkdirs(name, bits, True))

    def _find_info(self, path: str) -> Any | None:
        name = self._find_name(path)
        try:
            return self._call(path, "looked up", lambda client: client.get_file_info(name))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _open_reader(self, path: str, name: str) -> Any:
        try:
            return self._call(path, "read", lambda client: client.read(name))
        except IsADirectoryError:
            raise _build_directory_error(path) from None

    def _read_range(self, path: str, reader: Any, start: int, end: int) -> bytes:
        """Return the bytes of a range; opens the file again after an error."""
        name, length, readers = self._find_name(path), reader.file_length(), [reader]
        if start == end:
            return b""

        def read(client: Any) -> bytes:
            opened = readers.pop() if readers else client.read(name)
            if opened.file_length() != length:
                raise build_size_error(path, opened.file_length(), length)
            return bytes(opened.read_range(start, end - start))

        return self._call(path, "read", read)

    def _build_write_options(self, *, overwrite: bool) -> Any:
        """Return the options of a new file."""
        from hdfs_native import WriteOptions

        settings = self.client.settings
        replication = settings.settings.get("dfs.replication")
        return WriteOptions(
            replication=None if replication is None else int(replication),
            permission=_FILE_BITS & ~settings.umask,
            overwrite=overwrite,
            create_parent=True,
        )

    def _find_name(self, path: str) -> str:
        """Return the path in the file system of a URI.

        Raises :class:`UnsupportedError` for other stores, :class:`NotAllowedError` for other
        directories than the roots, and :class:`CorruptFileError` for invalid names.
        """
        settings, parsed = self.client.settings, path.partition("://")
        authority, slash, rest = parsed[2].partition("/")
        if parsed[0] != settings.scheme or not settings.has_authority(authority):
            raise UnsupportedError(
                f"{path} is in a different store from the table, which is in {settings.root}; a "
                "table in several stores is not supported"
            )
        name = f"{slash}{rest}".rstrip("/")
        find_root(name, [_strip_authority(root) for root in self.roots])
        check_path(path)
        mounts = settings.mounts
        if mounts and not any(f"{name}/".startswith(f"{mount}/") for mount in mounts):
            raise UnsupportedError(f"{path} is below no mount of {settings.root}")
        return name or "/"

    def _call(
        self,
        path: str,
        action: str,
        make: Callable[[Any], T],
        *,
        retry_on: type[Exception] | tuple[type[Exception], ...] = (
            RefusedForNowError,
            ConnectionLostError,
        ),
    ) -> T:
        """Call hdfs-native, and repeat the call after temporary errors."""
        with _wrap_errors(path, action):
            try:
                return STORE_CALL.call(
                    lambda: self.client.call(path, make),
                    retry_on=lambda error: isinstance(error, retry_on) and may_repeat(),
                )
            except retry_on:
                give_up()
                raise


class _HdfsOutput(io.RawIOBase):
    """Writes an open file."""

    def __init__(self, client: HdfsClient, path: str, writer: Any) -> None:
        super().__init__()
        self._client, self._path, self._writer = client, path, writer
        self._failure: Exception | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | memoryview[int]") -> int:  # type: ignore[override]
        part = bytes(memoryview(data)[:_MAX_WRITE_BYTES])
        self._call(lambda: self._writer.write(part))
        return len(part)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._call(self._writer.close)

    def _call(self, function: Callable[[], object]) -> None:
        """Call the client; after an error, raise it again, because the rest cannot be written."""
        if self._failure is None:
            try:
                self._client.call(self._path, lambda _: function())
            except Exception as error:
                self._failure = error
                raise
        else:
            raise self._failure


def open_hdfs(
    uri: str,
    options: Mapping[str, Any],
    credentials: StorageCredentials | None = None,  # noqa: ARG001 - of object stores
) -> tuple[HdfsFileIO, str]:
    """Return the file system and root of a warehouse in HDFS; does not connect."""
    parsed = urlparse(uri)
    if parsed.username or parsed.password or "?" in uri:
        raise InputError(f"a warehouse of {parsed.scheme}:// has neither a user nor parameters")
    require_package(
        "hdfs_native",
        f"warehouse {uri!r}",
        install=f"paimon-orch[{STORE.extra}]",
        package=STORE.package,
    )
    settings = HdfsSettings.read(uri, StorageOptions.of(options).resolve())
    path = _strip_authority(check_path(uri.rstrip("/")))
    if "://" not in uri or path in ("", "/"):
        raise InputError(f"warehouse {uri!r} must look like {parsed.scheme}://host/path")
    return HdfsFileIO(HdfsClient(settings, path)), f"{settings.root}{path}"


@contextmanager
def _wrap_errors(path: str, action: str) -> Iterator[None]:
    """Convert errors of the client into :class:`StorageError`, except those of names."""
    with begin_operation():
        try:
            yield
        except (
            FileNotFoundError,
            FileExistsError,
            IsADirectoryError,
            NotADirectoryError,
            PaimonError,
        ):
            raise
        except (OSError, RefusedForNowError) as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise _build_error(f"{path} cannot be {action}: {text}") from error


def _build_error(text: str) -> StorageError:
    return describe_attempts(StorageError(text))


def _build_not_created_error(path: str, error: Exception) -> StorageError:
    return describe_attempts(FileNotCreatedError(f"{path} was not created: {error}."))


def _build_directory_error(path: str) -> CorruptFileError:
    return CorruptFileError(path, "is a directory, but a file is expected")


def _strip_authority(path: str) -> str:
    """Return the path of a URI, with its slash."""
    _, slash, rest = path.partition("://")[2].partition("/")
    return f"{slash}{rest}"


def _describe(path: str, entry: Any) -> FileInfo:
    """Return an entry of a listing."""
    return FileInfo(
        path=path,
        size=entry.length,
        modified=entry.modification_time / 1000,
        is_dir=entry.isdir,
        # A file that is replaced is another file, which was written at another time.
        version="" if entry.isdir else f"{entry.modification_time}-{entry.length}",
    )
