"""Object stores through fsspec; only packages with trusted exclusive creation can write."""

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import IO, Any, Self, TypeVar
from urllib.parse import urlparse

from paimon_orch.decode_limits import check_whole_file, get_max_whole_file_bytes
from paimon_orch.errors import (
    CorruptFileError,
    InputError,
    PaimonError,
    StorageError,
    UnsupportedError,
    is_temporary,
)
from paimon_orch.optional_packages import require_package
from paimon_orch.retry_policy import OBJECT_READ
from paimon_orch.storage.base import FileInfo, check_path, find_root
from paimon_orch.storage.exclusive_create import ExclusiveCreator, check_trusted
from paimon_orch.storage.object_store_options import StorageCredentials, StorageOptions
from paimon_orch.storage.streams import ObjectInput, ObjectOutput

T = TypeVar("T")

PACKAGE_BY_SCHEME = (
    {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
    | dict.fromkeys(("abfs", "abfss", "az"), "adlfs")
    | {"oss": "ossfs"}
)
# with its default concurrency, s3fs requests the size of an object before it reads the object
_DEFAULT_OPTIONS: dict[str, dict[str, Any]] = {
    name: {"max_concurrency": 1} for name in ("s3", "s3a")
}
# the default of s3fs, 50 MiB per upload part, needs too much memory if many buckets are written
_PART_BYTES = 16 << 20
_PERMANENT_ERRORS = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PaimonError,
    PermissionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class FsspecFileIO:
    """Files of one object store; each process opens its own connection on first use.

    Reading works with every fsspec implementation. Writing requires a package whose exclusive
    creation is trusted, and a server that was verified to refuse a second creation of a name.
    """

    root: str
    options: StorageOptions
    roots: tuple[str, ...] = ()
    """The directories that may be used; empty for all."""
    lock_seconds: float = 60
    """The time to wait for the lock file, if one is configured."""
    time_precision_seconds: float = 1
    """Stores round the modification times of files down to whole seconds."""

    @property
    def remote(self) -> bool:
        """Return True."""
        return True

    @property
    def _fs(self) -> Any:
        """Return the file system; fsspec caches one per process and options."""
        import fsspec

        scheme = self.root.partition("://")[0]
        options = (
            _DEFAULT_OPTIONS.get(scheme, {})
            | self.options.resolve()
            | {"use_listings_cache": False}
        )
        try:
            fs = fsspec.url_to_fs(self.root, **options)[0]
        except Exception as error:  # noqa: BLE001 - each package has its own errors
            text = self.options.describe_error(error)
            cause = self.options.redact_cause(error)
            if is_temporary(error):
                raise StorageError(
                    f"{self.root}: the store cannot be opened now: {text}"
                ) from cause
            raise InputError(
                f"{self.root}: the store cannot be opened with these options: {text}"
            ) from cause
        if type(fs).__module__.partition(".")[0] == "s3fs":
            fs.retries = 1  # botocore retries each request; s3fs would repeat all its attempts
        return fs

    def confine(self, roots: Sequence[str], anchors: Sequence[str] = ()) -> Self:  # noqa: ARG002 - no links
        """Return a copy for some directories; see :meth:`FileIO.confine`."""
        return replace(self, roots=tuple(roots))

    def check_readable(self, path: str) -> None:
        """Raise :class:`NotAllowedError` for a path outside of the roots."""
        self._check_path(path)

    def open_input(self, path: str) -> IO[bytes]:
        """Open for random reads."""
        size = self.size(path)

        def fetch(start: int, end: int) -> bytes:
            data = self._retry_read(
                path, "read", lambda: self._fs.cat_file(path, start=start, end=end)
            )
            if len(data) != end - start:
                raise CorruptFileError(
                    path, f"has fewer than {end} bytes, but was larger when it was opened"
                )
            return bytes(data)

        return ObjectInput(fetch, size)  # type: ignore[return-value]  # an IO by its methods

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new object for writing; it becomes visible when it is closed."""
        fs = self._get_writable_fs(path)
        with self.options.wrap_errors(path, "written"):
            sink = fs.open(path, "wb", block_size=_PART_BYTES)
        return ObjectOutput(sink, lambda: self.options.wrap_errors(path, "written"))  # type: ignore[return-value]

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        self._check_path(path)
        end = get_max_whole_file_bytes() + 1  # a range, because only the server knows the size

        def read() -> bytes:
            try:
                return bytes(self._fs.cat_file(path, start=0, end=end))
            except Exception as error:
                if "range" in str(error).lower() and self._fs.info(path)["size"] == 0:
                    return b""  # servers refuse every range of an empty object
                raise

        data = self._retry_read(path, "read", read)
        check_whole_file(len(data), path)
        return data

    def create(self, path: str, data: bytes) -> bool:
        """Create the object if it does not exist, by a conditional put; see :meth:`FileIO.create`.

        After an error the stored object decides the result, because a repeated request can be
        refused due to its first attempt, and refusals differ between servers. Raises
        :class:`StorageError` if there is no object after an error, because it may still appear.
        """
        return ExclusiveCreator(
            fs=self._get_writable_fs(path),
            io=self,
            options=self.options,
            lock_seconds=self.lock_seconds,
        ).create(path, data)

    def write(self, path: str, data: bytes) -> None:
        """Replace the object."""
        fs = self._get_writable_fs(path)
        with self.options.wrap_errors(path, "written"):
            fs.pipe_file(path, data)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``."""
        base = self._check_path(path).rstrip("/")
        try:
            entries = self._retry_read(path, "listed", lambda: self._fs.ls(path, detail=True))
        except (FileNotFoundError, NotADirectoryError):
            return
        own_name = self._fs._strip_protocol(base)  # noqa: SLF001 - fsspec compares names in this form
        for entry in entries:
            if entry["name"].rstrip("/") == own_name:
                continue  # the path itself is a file or a marker object
            name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
            is_dir = entry["type"] == "directory"
            yield FileInfo(
                path=f"{base}/{name}",
                size=entry["size"] or 0,
                modified=_get_modification_time(entry),
                is_dir=is_dir,
            )

    def exists(self, path: str) -> bool:
        """Return whether there is an object with this name or below it."""
        try:
            self._read_info(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        info = self._read_info(path)
        if info["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, "object does not exist", path)
        return int(info["size"])

    def _read_info(self, path: str) -> Mapping[str, Any]:
        # fs.exists returns False after any error, which would let a commit overwrite another one
        self._check_path(path)
        return self._retry_read(path, "looked up", lambda: self._fs.info(path))

    def delete(self, path: str) -> None:
        """Delete one object; a missing object is not an error."""
        fs = self._get_writable_fs(path)
        with suppress(FileNotFoundError), self.options.wrap_errors(path, "deleted"):
            fs.rm_file(path)  # fs.rm would treat * and ? in a name as a pattern

    def delete_dir(self, path: str) -> None:
        """Delete all objects below a name."""
        fs = self._get_writable_fs(path)
        below = f"{fs._strip_protocol(path)}/"  # noqa: SLF001 - fsspec compares names in this form
        with suppress(FileNotFoundError), self.options.wrap_errors(path, "deleted"):
            for name in fs.find(path):
                if name.startswith(below):
                    fs.rm_file(name)

    def make_dir(self, path: str) -> bool:
        """Raise :class:`UnsupportedError`."""
        raise UnsupportedError(
            f"{self._check_path(path)}: object stores have no empty directories; the database "
            "exists as soon as a table is created in it"
        )

    def rename_dir(self, source: str, target: str) -> bool:
        """Raise :class:`UnsupportedError`."""
        self._check_path(target)
        raise UnsupportedError(
            f"{self._check_path(source)}: object stores have no atomic rename; concurrent readers "
            "would see a partially renamed table. Create a table with the new name and write the "
            "rows to it."
        )

    def delete_empty_dir(self, path: str) -> bool:
        """Return False: object stores have no empty directories."""
        self._check_path(path)
        return False

    def move(self, source: str, target: str) -> bool:
        """Copy the object to a name that does not exist, and delete the old one."""
        if self.exists(target):
            return False
        fs = self._get_writable_fs(source)
        self._check_path(target)
        with self.options.wrap_errors(source, f"copied to {target}"):
            fs.cp_file(source, target)
            fs.rm_file(source)
        return True

    def _check_path(self, path: str) -> str:
        scheme, separator, _ = path.partition("://")
        mine = self.root.partition("://")[0]
        if not separator or PACKAGE_BY_SCHEME.get(scheme, scheme) != PACKAGE_BY_SCHEME.get(
            mine, mine
        ):
            raise UnsupportedError(
                f"{path} is in a different store from the table, which is below {self.root}; a "
                "table in several stores is not supported"
            )
        if "?versionId=" in path:
            raise CorruptFileError(
                path,
                "is refused: s3fs would interpret ?versionId= and read another version of it",
            )
        find_root(_strip_scheme(path), [_strip_scheme(root) for root in self.roots])
        return check_path(path)

    def _get_writable_fs(self, path: str) -> Any:
        """Return the file system. Raises :class:`UnsupportedError` if writes are not trusted."""
        self._check_path(path)
        fs = self._fs
        check_trusted(fs, path, self.options)
        return fs

    def _retry_read(self, path: str, action: str, call: Callable[[], T]) -> T:
        """Call a function that reads, and retry it after temporary errors."""
        with self.options.wrap_errors(path, action):
            return OBJECT_READ.call(
                call, retry_on=lambda error: not isinstance(error, _PERMANENT_ERRORS)
            )


def open_object_store(
    uri: str, options: Mapping[str, Any], credentials: StorageCredentials | None = None
) -> tuple[FsspecFileIO, str]:
    """Return the file system and root of a warehouse in an object store; does not connect."""
    parsed = urlparse(uri)
    if parsed.password or parsed.query:
        raise InputError(
            f"a warehouse of {parsed.scheme}:// must not contain credentials; give them as storage "
            "options"
        )
    root = uri.rstrip("/")
    if "://" not in root or "::" in root or check_path(root).endswith(":"):
        raise InputError(f"warehouse {uri!r} must look like {parsed.scheme}://bucket/path")
    try:
        import fsspec

        fsspec.get_filesystem_class(parsed.scheme)
    except ValueError:
        schemes = ", ".join(f"{name}://" for name in PACKAGE_BY_SCHEME)
        raise InputError(
            f"warehouse {uri!r}: the scheme {parsed.scheme!r} is not supported; use a local path, "
            f"a file: URI, {schemes}"
        ) from None
    except ImportError as error:
        package = PACKAGE_BY_SCHEME.get(parsed.scheme)
        if package is not None:
            install = "paimon-orch[s3]" if package == "s3fs" else package
            require_package(package, f"warehouse {uri!r}", install=install)
        raise InputError(
            f"warehouse {uri!r}: the package for {parsed.scheme}:// cannot be imported: {error}"
        ) from error
    return FsspecFileIO(root, StorageOptions.of(options, credentials)), root


def _strip_scheme(path: str) -> str:
    """Return bucket and name, because the schemes of a store are aliases."""
    return path.partition("://")[2]


def _get_modification_time(entry: Mapping[str, Any]) -> float:
    """Return when an object was written; if unknown, the current time, so cleanup keeps it."""
    if entry["type"] == "directory":
        return 0.0
    for key in ("LastModified", "mtime", "updated", "last_modified", "created"):
        value = entry.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value).timestamp()
    return time.time()
