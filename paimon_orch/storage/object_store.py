"""Object stores through fsspec; only packages with trusted exclusive creation can write."""

import errno
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
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
from paimon_orch.retry_policy import READ_AFTER_OTHER_ERROR
from paimon_orch.storage.base import FileInfo, build_size_error, check_path, find_root
from paimon_orch.storage.client_retries import (
    NO_BOTOCORE_RETRIES,
    add_time_limits,
    find_gcs_class,
    limit_retries,
)
from paimon_orch.storage.concurrency import (
    map_concurrently,
    read_concurrency,
    run_concurrently,
    start_call,
)
from paimon_orch.storage.exclusive_create import ExclusiveCreator, check_trusted
from paimon_orch.storage.lost_requests import ignore_unsent_requests
from paimon_orch.storage.object_store_options import StorageCredentials, StorageOptions
from paimon_orch.storage.s3_compatible import add_compatible_defaults, add_protocol
from paimon_orch.storage.store_operation import give_up_if_late, may_repeat
from paimon_orch.storage.streams import ObjectInput, ObjectOutput, find_end_start
from paimon_orch.stores import (
    ExclusiveCreation,
    Store,
    StoreCapabilities,
    find_store,
    list_schemes,
    normalize_scheme,
)

T = TypeVar("T")

_MAX_KEYS_PER_DELETION = 1_000
_BOTOCORE_CONNECTIONS = 10
# the default of s3fs, 50 MiB per upload part, needs too much memory if many buckets are written
_PART_BYTES = 16 << 20
_RANGE_REFUSAL = re.compile("InvalidRange|range.*(satisf|invalid)", re.IGNORECASE | re.DOTALL)
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


_UNKNOWN_STORE = Store(
    schemes=(),
    package=None,
    extra=None,
    capabilities=StoreCapabilities(exclusive_creation=None),
)
"""Another implementation of fsspec, which can be read."""


class _RangeRefusedError(PaimonError):
    """A store refused to read a range, because the object ends before it starts."""


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
    def capabilities(self) -> StoreCapabilities:
        """Return what the store of this scheme can do."""
        declared = self._declaration.capabilities
        if self.options.has_lock:
            return replace(declared, exclusive_creation=ExclusiveCreation.LOCK_FILE)
        return declared

    @property
    def store(self) -> Hashable:
        """Return the connection, which is the same for equal options."""
        fs = self._fs
        return type(fs).__name__, fs._fs_token  # noqa: SLF001 - fsspec finds connections by it

    @property
    def _fs(self) -> Any:
        """Return the file system; fsspec caches one per process and options."""
        import fsspec

        scheme, store = self._scheme, self._declaration
        options = self.options.resolve() | {"use_listings_cache": False}
        if store.package == "s3fs":
            options = _add_s3_defaults(add_compatible_defaults(scheme, options))
        options = add_time_limits(store.package, options)
        try:
            cls = _find_class(scheme)
            if scheme != store.fsspec_protocol and (own := add_protocol(cls, scheme)) is not cls:
                fs = own(**options)
            elif store.package == "gcsfs":
                fs = find_gcs_class(cls)(**options)
            else:
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
        limit_retries(fs)
        if fs.async_impl:
            ignore_unsent_requests(fs.loop)
        return fs

    def confine(self, roots: Sequence[str], anchors: Sequence[str] = ()) -> Self:  # noqa: ARG002 - no links
        """Return a copy for some directories; see :meth:`FileIO.confine`."""
        return replace(self, roots=tuple(roots))

    def check_readable(self, path: str) -> None:
        """Raise :class:`NotAllowedError` for a path outside of the roots."""
        self._check_path(path)

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        """Open for random reads; reads the end of an object of known size, which proves the size."""
        end = b""
        if size is not None and self._declaration.shortens_ranges:
            end = self._read_end(path, size)
        else:
            actual = self.size(path)
            if size is not None and actual != size:
                raise build_size_error(path, actual, size)
            size = actual

        def fetch(start: int, end: int) -> bytes:
            data = self._read_range(path, start, end)
            if len(data) != end - start:
                raise CorruptFileError(
                    path, f"has fewer than {end} bytes, but was larger when it was opened"
                )
            return data

        start = partial(start_call, self)
        return ObjectInput(fetch, size, end=end, start_call=start)  # type: ignore[return-value]  # an IO by its methods

    def _read_end(self, path: str, size: int) -> bytes:
        """Return the end of an object, or a small object as a whole.

        Raises :class:`CorruptFileError` if the object does not have this size.
        """
        self._check_path(path)
        start = find_end_start(size)
        try:
            data = self._read_range(path, start, size + 1)  # one byte more of a larger object
        except _RangeRefusedError:
            data = b""  # the object ends before the range starts
        if len(data) != size - start:
            actual = self.size(path)
            if actual != size:
                raise build_size_error(path, actual, size)
            if size:
                raise StorageError(
                    f"{path} cannot be read: the store returned {len(data)} bytes for the range "
                    f"from {start} to {size}"
                )
        return data

    def open_output(self, path: str) -> IO[bytes]:
        """Open a new object for writing; it becomes visible when it is closed."""
        fs = self._get_writable_fs(path)
        with self.options.wrap_write_errors(path):
            sink = fs.open(path, "wb", block_size=_PART_BYTES)
        return ObjectOutput(sink, lambda: self.options.wrap_write_errors(path))  # type: ignore[return-value]

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content."""
        self._check_path(path)
        end = get_max_whole_file_bytes() + 1  # a range, because only the server knows the size
        try:
            data = self._read_range(path, 0, end)
        except _RangeRefusedError as error:
            if size := self.size(path):
                raise StorageError(
                    f"{path} cannot be read: the store refused to read its {size} bytes from the start"
                ) from error
            return b""  # servers refuse every range of an empty object
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
        with self.options.wrap_write_errors(path):
            fs.pipe_file(path, data)

    def list_dir(self, path: str) -> Iterator[FileInfo]:
        """Yield the entries directly below ``path``."""
        base = self._check_path(path).rstrip("/")
        try:
            entries = self._retry_read(path, "listed", lambda: _list_directory(self._fs, path))
        except (FileNotFoundError, NotADirectoryError):
            return
        own_name = self._fs._strip_protocol(base)  # noqa: SLF001 - fsspec compares names in this form
        for entry in entries:
            if entry["name"].rstrip("/") == own_name:
                continue  # the path itself is a file or a marker object
            name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
            yield _describe(f"{base}/{name}", entry)

    def list_tree(self, path: str) -> list[FileInfo] | None:
        """Return all objects whose names begin with the path and a slash."""
        base = self._check_path(path).rstrip("/")
        own_name = self._fs._strip_protocol(base)  # noqa: SLF001 - fsspec compares names in this form
        entries = self._retry_read(path, "listed", lambda: _find_objects(self._fs, base))
        below = {name.removeprefix(f"{own_name}/"): entry for name, entry in entries.items()}
        # a name with an empty component is a marker object, or cannot be a path
        return [
            _describe(f"{base}/{name}", entry)
            for name, entry in below.items()
            if "" not in name.split("/") and name != own_name
        ]

    def list_few(
        self, prefix: str, limit: int, *, with_directories: bool = False
    ) -> list[FileInfo] | None:
        """Return all objects whose names begin with a prefix, if S3 lists them in one page."""
        self._check_path(prefix.rstrip("/"))
        fs = self._fs
        if not hasattr(fs, "call_s3"):
            return None
        bucket, key, _ = fs.split_path(prefix)
        options = {"Bucket": bucket, "Prefix": key, "MaxKeys": limit}
        if with_directories:
            options["Delimiter"] = "/"
        try:
            answer = self._retry_read(
                prefix, "listed", lambda: fs.call_s3("list_objects_v2", **options)
            )
        except FileNotFoundError:  # there is no bucket
            return []
        if answer["IsTruncated"]:
            return None
        start = prefix.removesuffix(key)
        directories = [each["Prefix"].rstrip("/") for each in answer.get("CommonPrefixes", ())]
        entries = [{"name": name, "type": "directory", "size": 0} for name in directories]
        entries += [
            each | {"name": each["Key"], "type": "file", "size": each["Size"]}
            for each in answer.get("Contents", ())
        ]
        # a name with an empty component is a marker object, or cannot be a path
        return [_describe(start + e["name"], e) for e in entries if "" not in e["name"].split("/")]

    def exists(self, path: str) -> bool:
        """Return whether there is an object with this name or below it."""
        try:
            self._read_info(path)
        except FileNotFoundError:
            return False
        return True

    def file_exists(self, path: str) -> bool:
        """Return whether there is an object with this name; does not list names below it."""
        self._check_path(path)
        try:
            self._read_range(path, 0, 1, action="looked up")
        except FileNotFoundError:
            return False
        except _RangeRefusedError:
            return True  # an empty object
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
        self._delete_object(self._get_writable_fs(path), path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete objects; S3 deletes up to 1,000 in one request."""
        for path in paths:
            self._check_path(path)
        if paths:
            self._delete_objects(self._get_writable_fs(paths[0]), list(dict.fromkeys(paths)))

    def delete_dir(self, path: str) -> None:
        """Delete all objects below a name."""
        fs = self._get_writable_fs(path)
        below = f"{fs._strip_protocol(path)}/"  # noqa: SLF001 - fsspec compares names in this form
        with suppress(FileNotFoundError), self.options.wrap_errors(path, "deleted"):
            names = [name.removeprefix(below) for name in fs.find(path) if name.startswith(below)]
            self._delete_objects(fs, [f"{path.rstrip('/')}/{name}" for name in names])

    def _delete_objects(self, fs: Any, names: Sequence[str]) -> None:
        if len(names) > 1 and self.capabilities.has_bulk_delete and hasattr(fs, "call_s3"):
            starts = range(0, len(names), _MAX_KEYS_PER_DELETION)
            chunks = [names[start : start + _MAX_KEYS_PER_DELETION] for start in starts]
            delete_chunk = partial(_delete_in_one_request, fs)
            names = list(chain.from_iterable(map_concurrently(self, delete_chunk, chunks)))
        run_concurrently(self, partial(self._delete_object, fs), names)

    def _delete_object(self, fs: Any, path: str) -> None:
        with suppress(FileNotFoundError), self.options.wrap_errors(path, "deleted"):
            fs.rm_file(path)  # fs.rm would treat * and ? in a name as a pattern

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
        if self.file_exists(target):
            return False
        fs = self._get_writable_fs(source)
        self._check_path(target)
        with self.options.wrap_errors(source, f"copied to {target}"):
            fs.cp_file(source, target)
            fs.rm_file(source)
        return True

    @property
    def _scheme(self) -> str:
        return self.root.partition("://")[0]

    @property
    def _declaration(self) -> Store:
        return find_store(self._scheme) or _UNKNOWN_STORE

    def _check_path(self, path: str) -> str:
        scheme, separator, _ = path.partition("://")
        mine = self._scheme
        if not separator or normalize_scheme(scheme) != normalize_scheme(mine):
            raise UnsupportedError(
                f"{path} is in a different store from the table, which is below {self.root}; a "
                "table in several stores is not supported"
            )
        if "?versionId=" in path:
            raise CorruptFileError(
                path,
                "is refused: s3fs would interpret ?versionId= and read another version of it",
            )
        if self._declaration.package == "adlfs" and (
            path.endswith(("?", "#")) or "?versionid=" in path
        ):
            raise CorruptFileError(
                path, "is refused: adlfs would use the object with the name before the ? or #"
            )
        find_root(_strip_scheme(path), [_strip_scheme(root) for root in self.roots])
        return check_path(path)

    def _get_writable_fs(self, path: str) -> Any:
        """Return the file system. Raises :class:`UnsupportedError` if writes are not trusted."""
        self._check_path(path)
        fs = self._fs
        check_trusted(fs, path, self.capabilities.exclusive_creation)
        return fs

    def _read_range(self, path: str, start: int, end: int, *, action: str = "read") -> bytes:
        """Return the bytes of a range, or fewer if the object ends in it.

        Raises :class:`_RangeRefusedError` if it ends before the range.
        """

        def read() -> bytes:
            try:
                return bytes(self._fs.cat_file(path, start=start, end=end))
            except FileNotFoundError:
                raise
            except Exception as error:  # each package has its own errors
                status = getattr(error, "code", None)  # not each server explains it
                if status in (416, "416") or _RANGE_REFUSAL.search(str(error)):
                    raise _RangeRefusedError(path) from error
                raise

        return self._retry_read(path, action, read)

    def _retry_read(self, path: str, action: str, call: Callable[[], T]) -> T:
        """Call a function that reads, and retry it after temporary errors."""
        with self.options.wrap_errors(path, action):
            return READ_AFTER_OTHER_ERROR.call(
                call,
                retry_on=lambda error: not isinstance(error, _PERMANENT_ERRORS) and may_repeat(),
                before_retry=lambda *_: give_up_if_late(),
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
    store = find_store(parsed.scheme)
    has_bucket = parsed.netloc or store is None or not store.is_shared
    if "://" not in root or "::" in root or check_path(root).endswith(":") or not has_bucket:
        raise InputError(f"warehouse {uri!r} must look like {parsed.scheme}://bucket/path")
    try:
        _find_class(parsed.scheme)
    except ValueError:
        schemes = ", ".join(f"{name}://" for name in list_schemes())
        raise InputError(
            f"warehouse {uri!r}: the scheme {parsed.scheme!r} is not supported; use a local path, "
            f"a file: URI, {schemes}"
        ) from None
    except ImportError as error:
        if store is not None and store.package is not None:
            install = f"paimon-orch[{store.extra}]" if store.extra else store.package
            require_package(store.package, f"warehouse {uri!r}", install=install)
        reason = error.__cause__ or error  # fsspec replaces it
        raise InputError(
            f"warehouse {uri!r}: the package for {parsed.scheme}:// cannot be imported: {reason}"
        ) from error
    return FsspecFileIO(root, StorageOptions.of(options, credentials)), root


def _find_class(scheme: str) -> Any:
    """Return the class of fsspec for a scheme; imports its package."""
    import fsspec

    store = find_store(scheme)
    return fsspec.get_filesystem_class((store and store.fsspec_protocol) or scheme)


def _add_s3_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of s3fs with our defaults for those that the user does not set."""
    # with its default concurrency, s3fs requests the size of an object before it reads the object
    options = {"max_concurrency": 1} | options
    config = options.get("config_kwargs") or {}
    if isinstance(config, Mapping):
        # botocore's default is 10 connections, and further requests wait for one of them
        connections = max(_BOTOCORE_CONNECTIONS, read_concurrency())
        options["config_kwargs"] = {
            "max_pool_connections": connections,
            "retries": NO_BOTOCORE_RETRIES,
            **config,
        }
    return options


def _delete_in_one_request(fs: Any, names: Sequence[str]) -> list[str]:
    """Delete objects of S3; return those that the server did not delete.

    ``fs.bulk_delete`` does not say which these are. Deleting them one by one finds the reason.
    """
    name_by_key = {fs.split_path(name)[1]: name for name in names}
    objects = {"Objects": [{"Key": key} for key in name_by_key], "Quiet": True}
    try:
        answer = fs.call_s3("delete_objects", Bucket=fs.split_path(names[0])[0], Delete=objects)
    except Exception:  # noqa: BLE001 - some servers do not have this request
        return list(names)
    failed = {error.get("Key") for error in answer.get("Errors", ())}
    return [name for key, name in name_by_key.items() if key in failed]


def _strip_scheme(path: str) -> str:
    """Return bucket and name, because the schemes of a store are aliases."""
    return path.partition("://")[2]


def _find_objects(fs: Any, path: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of all objects below a path by their names."""
    entries = fs.find(path, detail=True)
    if not isinstance(entries, Mapping):  # adlfs does not list what is below the name of an object
        raise OSError("there is an object with the name of the directory")
    return entries


def _list_directory(fs: Any, path: str) -> Sequence[Mapping[str, Any]]:
    """Return the entries directly below a path."""
    entries: Sequence[Mapping[str, Any]]
    if hasattr(fs, "_lsdir") and type(fs).__module__.partition(".")[0] == "s3fs":
        from fsspec.asyn import sync

        name = fs._strip_protocol(path).rstrip("/")  # noqa: SLF001
        # fs.ls also calls it, and then lists the parent of an empty directory
        entries = sync(fs.loop, fs._lsdir, name)  # noqa: SLF001
    else:
        entries = fs.ls(path, detail=True)
    return entries


def _describe(path: str, entry: Mapping[str, Any]) -> FileInfo:
    """Return an entry of a listing."""
    is_dir = entry["type"] == "directory"
    return FileInfo(
        path=path,
        size=entry["size"] or 0,
        modified=_get_modification_time(entry),
        is_dir=is_dir,
        version="" if is_dir else _get_version(entry),
    )


def _get_version(entry: Mapping[str, Any]) -> str:
    """Return the generation or hash of an object that its listing states, or an empty text."""
    for key in ("generation", "ETag", "etag", "md5Hash"):
        if isinstance(value := entry.get(key), (str, int)) and value:
            return str(value)
    return ""


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
