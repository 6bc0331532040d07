"""Object stores: unknown outcomes, untrusted stores, and servers without conditional writes."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from filelock import FileLock

from paimon_orch import decode_limits
from paimon_orch.errors import CorruptFileError, InputError, StorageError, UnsupportedError
from paimon_orch.storage import FsspecFileIO, LocalFileIO, exclusive_create, resolve_warehouse
from paimon_orch.storage.object_store_options import StorageOptions

pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem

# The package has an attribute with the name of this module, which an import would return.
REGISTERED = sys.modules["fsspec.registry"]._registry

if TYPE_CHECKING:
    from storage.conftest import Bucket

Answer = Callable[[], None]


class FakeS3(MemoryFileSystem):  # type: ignore[misc]
    """A store with scripted answers: one per call, None for normal behaviour."""

    protocol = "s3"
    cachable = True
    answers: list[BaseException | str | None] = []  # noqa: RUF012 - each test sets its own
    calls: list[str] = []  # noqa: RUF012
    keeps_condition = True
    retries = 1

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").strip("/")

    def _answer(self, call: str) -> BaseException | str | None:
        type(self).calls.append(call)
        return self.answers.pop(0) if self.answers else None

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        answer = self._answer("put")
        if isinstance(answer, BaseException):
            raise answer
        if answer == "stored, answer lost":
            super().pipe_file(path, value)
            raise FileExistsError(path)
        super().pipe_file(path, value, mode if self.keeps_condition else "overwrite")

    def cat_file(self, path: str, *args: Any, **ranges: Any) -> bytes:
        answer = self._answer("get")
        if isinstance(answer, BaseException):
            raise answer
        return bytes(super().cat_file(path, *args, **ranges))

    def info(self, path: str, **kwargs: Any) -> Any:
        answer = self._answer("head")
        if isinstance(answer, BaseException):
            raise answer
        return super().info(path, **kwargs)


FakeS3.__module__ = "s3fs.fake"  # FakeS3 replaces the real package


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, impatient: None) -> Iterator[type[FakeS3]]:
    monkeypatch.setitem(REGISTERED, "s3", FakeS3)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2026.9.0")
    monkeypatch.setattr(FakeS3, "answers", [])
    monkeypatch.setattr(FakeS3, "calls", [])
    monkeypatch.setattr(FakeS3, "keeps_condition", True)
    monkeypatch.setattr(exclusive_create, "_verified_stores", set())
    yield FakeS3
    FakeS3.clear_instance_cache()


@pytest.fixture
def io(store: type[FakeS3]) -> FsspecFileIO:
    """Return a store that is verified already, so that a test counts only its own calls."""
    io, root = resolve_warehouse(f"s3://{uuid4()}/wh")
    assert isinstance(io, FsspecFileIO)
    io.create(f"{root}/proof", b"")
    store.calls.clear()
    return io


def test_a_put_succeeds_if_only_its_response_was_lost(
    io: FsspecFileIO, store: type[FakeS3]
) -> None:
    store.answers[:] = ["stored, answer lost"]
    assert io.create(f"{io.root}/snapshot-1", b"mine")


@pytest.mark.parametrize(
    "refusal", [FileExistsError(), OSError(errno.EINVAL, "pre-condition"), TimeoutError()]
)
def test_the_stored_object_determines_the_outcome_after_an_error(
    io: FsspecFileIO, store: type[FakeS3], refusal: Exception
) -> None:
    io.write(f"{io.root}/snapshot-1", b"theirs")
    store.answers[:] = [refusal]
    assert not io.create(f"{io.root}/snapshot-1", b"mine")
    assert io.read_bytes(f"{io.root}/snapshot-1") == b"theirs"


@pytest.mark.parametrize("error", [TimeoutError("no answer"), PermissionError("denied")])
def test_the_outcome_is_unknown_if_no_object_is_stored(
    io: FsspecFileIO, store: type[FakeS3], error: Exception
) -> None:
    store.answers[:] = [error]
    with pytest.raises(StorageError, match="unknown whether the object was created"):
        io.create(f"{io.root}/snapshot-1", b"mine")
    assert store.calls.count("put") == 1, "a creation is not tried again"


def test_a_put_is_retried_while_the_store_is_busy(io: FsspecFileIO, store: type[FakeS3]) -> None:
    conflict = OSError(errno.EBUSY, "ConditionalRequestConflict")
    store.answers[:] = [conflict, conflict, None]
    assert io.create(f"{io.root}/snapshot-1", b"mine")
    assert store.calls.count("put") == 3


class _StatusError(Exception):
    """As gcsfs raises it for an answer without a text."""

    code = 416


REFUSED_RANGES: list[Exception] = [
    _StatusError(", 416"),
    OSError(errno.EINVAL, "An error occurred (InvalidRange) when calling GetObject"),
    RuntimeError("The requested range cannot be satisfied., 416"),  # gcsfs has its own error
    RuntimeError("The range specified is invalid for the current size of the resource."),  # Azure
]


@pytest.mark.parametrize("refusal", REFUSED_RANGES)
def test_an_empty_object_whose_ranges_are_refused_is_read(
    io: FsspecFileIO, store: type[FakeS3], refusal: Exception
) -> None:
    io.write(f"{io.root}/_SUCCESS", b"")
    store.answers[:] = [refusal]
    assert io.read_bytes(f"{io.root}/_SUCCESS") == b""
    store.answers[:] = [refusal] * 9
    assert io.file_exists(f"{io.root}/_SUCCESS")


def test_an_object_is_not_empty_because_a_range_is_refused(
    io: FsspecFileIO, store: type[FakeS3]
) -> None:
    io.write(f"{io.root}/snapshot-1", b"mine")
    store.answers[:] = [REFUSED_RANGES[-1]]
    with pytest.raises(StorageError, match="refused to read its 4 bytes"):
        io.read_bytes(f"{io.root}/snapshot-1")


def test_reads_are_retried_after_temporary_errors(io: FsspecFileIO, store: type[FakeS3]) -> None:
    io.write(f"{io.root}/file", b"content")
    store.answers[:] = [ConnectionResetError()]
    assert io.read_bytes(f"{io.root}/file") == b"content"
    store.answers[:] = [OSError(errno.EIO, "hiccup")]
    assert io.exists(f"{io.root}/file")


def test_an_unreachable_store_raises_an_error(io: FsspecFileIO, store: type[FakeS3]) -> None:
    store.answers[:] = [ConnectionError("unreachable")] * 9
    with pytest.raises(StorageError, match="looked up: ConnectionError: unreachable"):
        io.exists(f"{io.root}/snapshot-1")


def test_permission_errors_are_not_retried(io: FsspecFileIO, store: type[FakeS3]) -> None:
    store.answers[:] = [PermissionError("denied")]
    with pytest.raises(StorageError, match="cannot be read: PermissionError: denied"):
        io.read_bytes(f"{io.root}/file")
    assert store.calls == ["get"]


def test_a_truncated_object_raises_an_error(io: FsspecFileIO) -> None:
    io.write(f"{io.root}/file", b"1234567890")
    with io.open_input(f"{io.root}/file") as source:
        io.write(f"{io.root}/file", b"123")
        with pytest.raises(CorruptFileError, match="fewer than 10 bytes, but was larger"):
            source.read()


def test_a_large_object_is_not_read_at_once(
    io: FsspecFileIO, store: type[FakeS3], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_limits, "_MAX_WHOLE_FILE_BYTES", 10)
    for size in (0, 10, 11, 5_000):
        io.write(f"{io.root}/{size}", bytes(size))
    store.calls.clear()

    assert [len(io.read_bytes(f"{io.root}/{size}")) for size in (0, 10)] == [0, 10]
    for size in (11, 5_000):
        with pytest.raises(CorruptFileError, match="has more than 10 bytes, but is read at once"):
            io.read_bytes(f"{io.root}/{size}")
    assert store.calls == ["get"] * 4


def test_a_server_that_ignores_the_condition_is_refused(store: type[FakeS3]) -> None:
    store.keeps_condition = False
    io, root = resolve_warehouse(f"s3://{uuid4()}/wh")
    with pytest.raises(
        UnsupportedError, match="ignores the condition that the object must not exist yet"
    ):
        io.create(f"{root}/snapshot-1", b"")
    assert list(io.list_dir(root)) == []


def test_exclusive_creation_is_verified_once(io: FsspecFileIO, store: type[FakeS3]) -> None:
    for number in range(3):
        assert io.create(f"{io.root}/snapshot-{number}", b"")
    assert store.calls.count("put") == 3


def test_an_old_version_is_refused_for_writing(
    io: FsspecFileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2025.5.1")
    with pytest.raises(UnsupportedError, match=r"s3fs 2025\.5\.1.*install s3fs>=2025\.7"):
        io.create(f"{io.root}/file", b"")
    assert io.read_bytes(f"{io.root}/proof") == b""


def test_untrusted_implementations_are_read_only(
    io: FsspecFileIO, store: type[FakeS3], monkeypatch: pytest.MonkeyPatch
) -> None:
    io.write(f"{io.root}/file", b"content")
    monkeypatch.setattr(store, "__module__", "obstore.fsspec")

    for write in (io.create, io.write):
        with pytest.raises(UnsupportedError, match="not known to create files exclusively"):
            write(f"{io.root}/file", b"")
    for remove in (io.delete, io.delete_dir, io.open_output):
        with pytest.raises(UnsupportedError, match="Reading works"):
            remove(f"{io.root}/file")
    assert io.read_bytes(f"{io.root}/file") == b"content"


def test_a_lock_makes_any_store_writable(tmp_path: Path) -> None:
    root, lock = f"local://{tmp_path}/warehouse", tmp_path / "lock"
    plain, locked = (
        resolve_warehouse(root, options)[0] for options in ({}, {"lock_path": str(lock)})
    )

    with pytest.raises(UnsupportedError, match="lock_path"):
        plain.create(f"{root}/file", b"")
    assert locked.create(f"{root}/dir/file", b"one")
    assert not locked.create(f"{root}/dir/file", b"two")
    assert locked.read_bytes(f"{root}/dir/file") == b"one"
    assert [entry.path for entry in locked.list_dir(f"{root}/dir")] == [f"{root}/dir/file"]


def test_a_lock_that_is_not_released_raises_a_storage_error(tmp_path: Path) -> None:
    root, lock = f"local://{tmp_path}/warehouse", str(tmp_path / "lock")
    options = StorageOptions.of({"lock_path": lock})
    io = FsspecFileIO(root, options, lock_seconds=0.01)

    with FileLock(lock), pytest.raises(StorageError, match="was not released"):
        io.create(f"{root}/file", b"")


def test_a_name_with_a_version_is_refused(io: FsspecFileIO) -> None:
    io.write(f"{io.root}/file", b"content")
    with pytest.raises(CorruptFileError, match="versionId"):
        io.delete(f"{io.root}/file?versionId=1")
    assert io.exists(f"{io.root}/file")


def test_gcsfs_asks_no_grpc_service_for_the_kind_of_a_bucket() -> None:
    pytest.importorskip("gcsfs")
    io, _ = resolve_warehouse("gs://bucket/wh", {"token": "anon"})
    assert isinstance(io, FsspecFileIO)
    classes = [f"{cls.__module__}.{cls.__name__}" for cls in type(io._fs).__mro__]
    assert classes[:2] == ["gcsfs.core.GCSFileSystem"] * 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["a?", "a#", "a?#", "a?versionid=1"])
def test_a_name_that_adlfs_would_shorten_is_refused(name: str) -> None:
    root = "abfs://container/wh"
    azure, s3 = resolve_warehouse(root)[0], resolve_warehouse("s3://bucket/wh")[0]
    with pytest.raises(CorruptFileError, match="adlfs would use the object with the name before"):
        azure.check_readable(f"{root}/{name}")
    azure.check_readable(f"{root}/{name}b" if "versionid" not in name else f"{root}/versionid=1")
    s3.check_readable(f"s3://bucket/wh/{name}")


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("s3://", "must look like s3://bucket/path"),
        ("s3:bucket", "must look like s3://bucket/path"),
        ("memory://a::b", "must look like"),
        ("s3://user:hidden@bucket/wh", "must not contain credentials"),
        ("abfs://c@a.example/wh?sig=hidden", "must not contain credentials"),
        ("nowhere://bucket/wh", "scheme 'nowhere' is not supported"),
    ],
)
def test_an_invalid_warehouse_is_refused(uri: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        resolve_warehouse(uri)
    assert "hidden" not in str(caught.value)


def test_a_path_above_the_bucket_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="is refused"):
        resolve_warehouse("memory://bucket/../other")


def test_storage_options_are_refused_for_local_warehouses() -> None:
    with pytest.raises(InputError, match="cannot have storage options; got key"):
        resolve_warehouse("/warehouse", {"key": "hidden"})
    assert isinstance(resolve_warehouse("/warehouse")[0], LocalFileIO)


def test_unsupported_storage_options_are_refused(
    store: type[FakeS3], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(FakeS3):
        def __init__(self, **options: Any) -> None:
            raise TypeError(f"unexpected options {options}")

    monkeypatch.setitem(REGISTERED, "s3", Picky)
    io, root = resolve_warehouse("s3://bucket/wh", {"secret": "hidden"})
    with pytest.raises(InputError, match="cannot be opened with these options") as caught:
        io.read_bytes(f"{root}/file")
    assert "hidden" not in str(caught.value)


@pytest.mark.slow
def test_a_forked_process_opens_its_own_connections(s3: Bucket) -> None:
    program = """
        import json, os, sys
        from paimon_orch.storage import resolve_warehouse
        root, options = sys.argv[1:]
        io, _ = resolve_warehouse(root, json.loads(options))
        assert io.create(f"{root}/file", b"parent")
        child = os.fork()
        if not child:
            os._exit(io.read_bytes(f"{root}/file") != b"parent" or not io.create(f"{root}/two", b"child"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert io.read_bytes(f"{root}/two") == b"child"
    """
    command = [sys.executable, "-c", textwrap.dedent(program), s3.root, json.dumps(s3.options)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_a_listing_that_names_only_the_directory_itself_is_an_error(
    io: FsspecFileIO, store: type[FakeS3], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "find", lambda _self, path, **_: [path])

    with pytest.raises(StorageError, match="an object with the name of the directory"):
        io.list_tree(f"{io.root}/d")
