"""Exclusive creation of objects: if two committers create the same name, only one succeeds.

See docs/format/table-layout.md#atomic-writes.
"""

import errno
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError
from typing import Any
from uuid import uuid4

from paimon_orch.errors import FileNotCreatedError, StorageError, UnsupportedError
from paimon_orch.retry_policy import STORE_CALL
from paimon_orch.storage.base import FileIO
from paimon_orch.storage.object_store_options import LOCK_PATH, StorageOptions
from paimon_orch.storage.store_operation import (
    begin_operation,
    continue_operation,
    describe_attempts,
    may_repeat,
)
from paimon_orch.stores import ExclusiveCreation, list_stores

_CONCURRENT_PROBES = 3
_PROBE_THREADS = 8
_BARRIER_SECONDS = 5.0
_NOT_IMPLEMENTED = re.compile("not ?implemented", re.IGNORECASE)
_verified_stores: set[tuple[int, str]] = set()


def check_trusted(fs: Any, path: str, means: ExclusiveCreation | None) -> None:
    """Raise :class:`UnsupportedError` unless a lock or the package makes creation exclusive.

    ``means`` is that of the scheme; another class can be registered for it in fsspec.
    """
    module = type(fs).__module__
    package = module.partition(".")[0]
    if means in (ExclusiveCreation.LOCK_FILE, ExclusiveCreation.ONE_PROCESS):
        return
    versions = {store.package: store.first_trusted_version for store in list_stores()}
    min_version = versions.get(package)
    if min_version is None:
        packages = ", ".join(sorted(name for name, first in versions.items() if name and first))
        raise UnsupportedError(
            f"{path} was not written: {type(fs).__name__} of {module} is not known to create "
            "files exclusively, so two committers could overwrite each other. Write with "
            f"{packages}, or set the storage option {LOCK_PATH} of all committers to the same "
            "lock file, which all of them can access. Reading works without this."
        )
    from importlib.metadata import version

    installed = version(package)
    release = tuple(int(part) if part.isdigit() else 0 for part in installed.split(".")[:2])
    if release < min_version:
        raise UnsupportedError(
            f"{path} was not written: {package} {installed} may overwrite a file of another "
            f"committer; install {package}>={min_version[0]}.{min_version[1]}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveCreator:
    """Creates objects of a store whose package :func:`check_trusted` accepts."""

    fs: Any
    io: FileIO
    """Reads the store, with retries."""
    options: StorageOptions
    lock_seconds: float

    def create(self, path: str, data: bytes) -> bool:
        """Create an object by a conditional put, unless it exists; see :meth:`FileIO.create`."""
        with begin_operation():
            if self.options.lock_path is not None:
                return self._create_under_lock(self.options.lock_path, path, data)
            try:
                self._verify_store(path)
            except StorageError as error:
                failure = FileNotCreatedError(f"{path} was not created: {error}")
                raise describe_attempts(failure) from error
            try:
                STORE_CALL.call(
                    lambda: self.fs.pipe_file(path, data, mode="create"),
                    # EBUSY: another put of the same name is in progress
                    retry_on=lambda error: (
                        isinstance(error, OSError) and error.errno == errno.EBUSY and may_repeat()
                    ),
                )
            except Exception as error:  # noqa: BLE001 - the stored object decides
                return self._resolve_outcome(path, data, error)
            return True

    def _create_under_lock(self, lock_path: str, path: str, data: bytes) -> bool:
        """Create while holding the lock file that all committers share."""
        from filelock import FileLock, Timeout

        head, tail = path.rsplit("/", 1)
        temporary = f"{head}/.{tail}.{uuid4()}.tmp"
        try:
            with FileLock(lock_path, timeout=self.lock_seconds):
                if self.io.file_exists(path):
                    return False
                self.fs.makedirs(head, exist_ok=True)
                self.fs.pipe_file(temporary, data)
                self.fs.mv(temporary, path)  # the file is complete when it becomes visible
        except Timeout as error:
            raise StorageError(
                f"{path}: the lock {lock_path} was not released within "
                f"{self.lock_seconds:g} seconds. Try again, or find the process that holds it."
            ) from error
        except Exception as error:  # noqa: BLE001 - the stored object decides
            return self._resolve_outcome(path, data, error)
        return True

    def _resolve_outcome(self, path: str, data: bytes, error: Exception) -> bool:
        """Return whether the stored object is ours after an error."""
        try:
            return self.io.read_bytes(path) == data
        except (FileNotFoundError, StorageError):
            failure = StorageError(
                f"{path}: it is unknown whether the object was created "
                f"({self.options.describe_error(error)}). Check whether it exists before you try "
                "again."
            )
            raise describe_attempts(failure) from self.options.redact_cause(error)

    def _verify_store(self, path: str) -> None:
        """Test once per process and bucket whether the server creates objects exclusively."""
        fs = self.fs
        bucket = "/".join(path.split("/", 3)[:3])
        is_memory = self.io.capabilities.exclusive_creation is ExclusiveCreation.ONE_PROCESS
        if is_memory or (hash(fs), bucket) in _verified_stores:
            return
        head, tail = path.rsplit("/", 1)
        # listings ignore files with such a name (docs/format/table-layout.md#atomic-writes)
        probe = f"{head}/.{tail}.{uuid4()}.tmp"
        with self.options.wrap_write_errors(probe, "created"):
            try:
                _create_probe(fs, probe, bucket)
                with suppress(Exception):  # this write should fail; the stored object decides
                    fs.pipe_file(probe, b"second", mode="create")
                is_exclusive = fs.cat_file(probe) == b"first"
            finally:
                _remove(fs, probe)
            # a store that checks first and writes later refuses only puts that are not concurrent
            for _ in range(_CONCURRENT_PROBES if is_exclusive else 0):
                winners = _count_winners(fs, f"{head}/.{tail}.{uuid4()}.tmp")
                if winners == 0:
                    raise StorageError(
                        f"all requests failed that test whether the store at {bucket} creates "
                        "objects exclusively. Try again."
                    )
                is_exclusive = is_exclusive and winners == 1
        if not is_exclusive:
            raise UnsupportedError(
                f"{path} was not written: the store at {bucket} ignores the condition that the "
                "object must not exist yet, at least for concurrent requests, so two committers "
                "could overwrite each other. Use a store with conditional writes."
            )
        _verified_stores.add((hash(fs), bucket))


def _count_winners(fs: Any, path: str) -> int:
    """Create an object from several threads at the same moment; return how many succeed."""
    barrier = Barrier(_PROBE_THREADS, timeout=_BARRIER_SECONDS)

    def create(number: int) -> bool:
        with suppress(BrokenBarrierError):  # the machine could not start all threads
            barrier.wait()
        try:
            fs.pipe_file(path, b"%d" % number, mode="create")
        except Exception:  # noqa: BLE001 - a refusal, or an error after which nothing is certain
            return False
        return True

    try:
        with ThreadPoolExecutor(_PROBE_THREADS) as threads:
            return sum(threads.map(continue_operation(create), range(_PROBE_THREADS)))
    finally:
        _remove(fs, path)


def _create_probe(fs: Any, probe: str, bucket: str) -> None:
    """Create an object; raise :class:`UnsupportedError` if the store knows no condition for it."""
    try:
        fs.pipe_file(probe, b"first", mode="create")
    except Exception as error:
        if not _NOT_IMPLEMENTED.search(f"{type(error).__name__}: {error}"):
            raise
        raise UnsupportedError(
            f"{probe} was not written: the store at {bucket} does not implement the condition that "
            "the object must not exist yet, so two committers could overwrite each other. Use a "
            f"store with conditional writes, or set the storage option {LOCK_PATH} of all "
            "committers to the same lock file. Reading works without this."
        ) from None


def _remove(fs: Any, path: str) -> None:
    with suppress(Exception):  # orphan cleanup can delete the object later
        fs.rm_file(path)
