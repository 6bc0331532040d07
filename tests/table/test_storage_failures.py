"""Storage failures during reads are reported with the file, not as corrupt files."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    CorruptFileError,
    MissingFileError,
    StorageError,
    wrap_decode_errors,
    wrap_library_errors,
)
from paimon_orch.files.uncommitted_files import delete_unused_files
from paimon_orch.steps.autopilot.maintenance_plan import plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.inspection.doctor.doctor import examine_catalog, examine_table
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.steps.repairs.repair import RepairRequest
from paimon_orch.steps.repairs.repair import plan as plan_repair
from paimon_orch.storage import LocalFileIO
from paimon_orch.storage.base import FileInfo
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table

FAILURES: list[Callable[[], Exception]] = [
    lambda: OSError(5, "Input/output error"),
    lambda: PermissionError(13, "Permission denied"),
    lambda: ConnectionResetError("the peer is gone"),
    lambda: TimeoutError("it takes too long"),
    lambda: StorageError("x: the store is busy"),
]


class Failing(io.BytesIO):
    """A file whose content cannot be read."""

    failure: Callable[[], Exception]

    def read(self, _size: int | None = -1) -> bytes:
        raise self.failure()

    def readinto(self, _buffer: object) -> int:
        raise self.failure()


@pytest.fixture(params=FAILURES, ids=["errno", "permission", "connection", "timeout", "ours"])
def failure(request: pytest.FixtureRequest) -> Callable[[], Exception]:
    create_error: Callable[[], Exception] = request.param
    return create_error


@pytest.fixture(params=["parquet", "orc", "avro"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    created = new_table(tmp_path, file__format=request.param)
    created.upsert(table_of("k v", [(n, "x" * 50) for n in range(100)]))
    return created


@pytest.mark.parametrize("kind", ["snapshot-", "schema-", "manifest-list-", "manifest-"])
def test_unreadable_metadata_is_not_reported_as_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, failure: Callable[[], Exception]
) -> None:
    table, original = new_table(tmp_path), LocalFileIO.read_bytes
    table.upsert(table_of("k v", [(1, "a")]))
    clear_metadata_cache()

    def read_bytes(self: LocalFileIO, path: str) -> bytes:
        name = path.rsplit("/", 1)[-1]
        if name.startswith(kind) and (kind != "manifest-" or "list" not in name):
            raise failure()
        return original(self, path)

    monkeypatch.setattr(LocalFileIO, "read_bytes", read_bytes)
    with pytest.raises(StorageError) as caught:
        rows_of(table)
    assert kind in str(caught.value) or "the store is busy" in str(caught.value)


def test_unreadable_data_is_not_reported_as_corrupt(
    table: Table, monkeypatch: pytest.MonkeyPatch, failure: Callable[[], Exception]
) -> None:
    original = LocalFileIO.open_input

    def open_input(self: LocalFileIO, path: str, size: int | None = None) -> IO[bytes]:
        with original(self, path, size) as file:
            failing = Failing(file.read())
        failing.failure = failure
        return failing

    monkeypatch.setattr(LocalFileIO, "open_input", open_input)
    monkeypatch.setattr(LocalFileIO, "read_bytes", lambda _, path: Path(path).read_bytes())
    with pytest.raises(StorageError):
        rows_of(table)


def test_the_error_of_a_directory_that_cannot_be_listed_contains_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)

    def list_dir(_self: LocalFileIO, path: str) -> Iterator[FileInfo]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(LocalFileIO, "list_dir", list_dir)
    with pytest.raises(StorageError, match=r"/db\.db/t/.* cannot be read \(Permission denied\)"):
        rows_of(table)


def test_an_unreadable_hint_is_ignored_unless_the_store_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Callable[[], Exception]
) -> None:
    table, original = new_table(tmp_path), LocalFileIO.read_bytes
    table.upsert(table_of("k v", [(1, "a")]))
    listed = list[str]()

    def read_bytes(self: LocalFileIO, path: str) -> bytes:
        if path.endswith("LATEST"):
            raise failure()
        return original(self, path)

    def ids(store: SnapshotStore) -> list[int]:
        listed.append(store.paths.root)
        return [1]

    monkeypatch.setattr(LocalFileIO, "read_bytes", read_bytes)
    monkeypatch.setattr(SnapshotStore, "ids", ids)
    if isinstance(failure(), PermissionError):
        assert rows_of(table) == [(1, "a")]
    else:
        with pytest.raises(StorageError):
            rows_of(table)
        assert not listed


class Store:
    """The files of this machine, until the store does not answer any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.failed, self.limit = 0, 0, 10**9
        for name in ("read_bytes", "list_dir", "exists", "size", "open_input"):
            monkeypatch.setattr(LocalFileIO, name, self._wrap(getattr(LocalFileIO, name)))

    def _wrap(self, original: Callable[..., object]) -> Callable[..., object]:
        def call(io: LocalFileIO, path: str, size: int | None = None) -> object:
            self.calls += 1
            if self.calls > self.limit:
                self.failed += 1
                raise StorageError(f"{path} cannot be read: the store is busy")
            return original(io, path) if size is None else original(io, path, size)

        return call


EXAMINATIONS: list[Callable[[Catalog], object]] = [
    lambda catalog: check(catalog.table("db.t")),
    lambda catalog: check(catalog.table("db.t"), deep=True),
    lambda catalog: inspect(catalog.table("db.t")),
    lambda catalog: examine_table(catalog, "db.t", check_files=True),
    lambda catalog: plan_repair(catalog.table("db.t"), RepairRequest()),
    lambda catalog: plan_maintenance(catalog, MaintenanceRequest()),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "examine", EXAMINATIONS, ids=["check", "deep", "inspect", "doctor", "repair", "autopilot"]
)
def test_no_examination_judges_a_table_whose_store_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examine: Callable[[Catalog], object]
) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    table.stores.tags.create("t", 2)
    catalog, store = Catalog(str(tmp_path)), Store(monkeypatch)
    clear_metadata_cache()
    examine(catalog)
    calls = store.calls

    for limit in range(calls):
        store.calls, store.failed, store.limit = 0, 0, limit
        clear_metadata_cache()
        with pytest.raises(StorageError, match="the store is busy"):
            examine(catalog)
        assert store.failed == 1, f"{store.failed} calls were made after the first that failed"


def test_the_doctor_reports_a_table_whose_store_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table(tmp_path)
    Store(monkeypatch).limit = 0

    [finding] = examine_catalog(Catalog(str(tmp_path)), ["db.t"]).findings

    assert finding.rule is DoctorRule.UNAVAILABLE_TABLE
    assert "was not examined" in finding.text


def test_files_without_commit_are_left_if_the_store_is_unavailable() -> None:
    deleted = list[str]()

    class Unavailable(LocalFileIO):
        def delete(self, path: str) -> None:
            deleted.append(path)
            raise StorageError(f"{path} cannot be deleted: the store is busy")

    delete_unused_files(Unavailable(), ["/a", "/b"])
    assert deleted == ["/a"]


def test_a_missing_data_file_is_reported_by_name(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    [path] = (Path(table.paths.root) / "bucket-0").iterdir()
    path.unlink()

    with pytest.raises(MissingFileError, match=rf"{path.name}: is missing"):
        rows_of(table)


def test_decode_errors_are_reported_as_corrupt_files() -> None:
    for error in (
        OSError("Couldn't deserialize thrift"),
        ValueError("x"),
        KeyError("x"),
        struct.error("x"),
        zlib.error("x"),
        EOFError(),
        OverflowError(),
        RecursionError(),
        pa.ArrowNotImplementedError("x"),
        MemoryError(),
    ):
        with pytest.raises(CorruptFileError, match="file-1"), wrap_decode_errors("file-1"):
            raise error


@pytest.mark.parametrize(
    "error", [AttributeError("x"), TypeError("x"), NameError("x"), AssertionError()]
)
def test_a_bug_in_a_decoder_is_not_reported_as_a_corrupt_file(error: Exception) -> None:
    with pytest.raises(type(error)), wrap_decode_errors("file-1"):
        raise error
    with (
        pytest.raises(CorruptFileError, match=type(error).__name__),
        wrap_decode_errors("file-1"),
        wrap_library_errors(),
    ):
        raise error


def test_an_unexpected_error_in_the_decoder_of_snapshots_is_raised_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    monkeypatch.setattr("paimon_orch.format.snapshot.CommitKind", None)

    with pytest.raises(TypeError):
        rows_of(table)
