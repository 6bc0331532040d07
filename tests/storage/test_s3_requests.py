"""How many requests an operation sends to S3."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import NotAllowedError, StorageError
from paimon_orch.retry_policy import STORE_ANSWER_SECONDS, STORE_CONNECT_SECONDS
from paimon_orch.steps import compact
from paimon_orch.storage import FsspecFileIO, resolve_warehouse
from paimon_orch.storage.client_retries import NO_BOTOCORE_RETRIES
from paimon_orch.table.cleanup.safe_delete import SafeDeleter
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from storage.conftest import Bucket

MEGABYTE = 1 << 20
pytestmark = pytest.mark.slow


def test_a_file_of_known_size_is_opened_without_a_head_request(
    s3: Bucket, requests: list[str]
) -> None:
    path = f"{s3.root}/file"
    for size, count in ((10, 1), (MEGABYTE, 1), (MEGABYTE + 1, 2), (4 * MEGABYTE, 2)):
        s3.io.write(path, bytes(size))
        requests.clear()
        with s3.io.open_input(path, size) as source:
            assert len(source.read()) == size
        assert requests == ["get_object"] * count


def test_the_existence_of_a_file_needs_one_request(s3: Bucket, requests: list[str]) -> None:
    s3.io.write(f"{s3.root}/empty", b"")
    requests.clear()
    assert s3.io.file_exists(f"{s3.root}/empty")
    assert not s3.io.file_exists(f"{s3.root}/missing")
    assert requests == ["get_object"] * 2


def test_many_files_are_deleted_with_one_request_for_1000(s3: Bucket, requests: list[str]) -> None:
    paths = [f"{s3.root}/t/f{number}" for number in range(1500)]
    for path in (*paths[:3], paths[-1], f"{s3.root}/t/kept"):
        s3.io.write(path, b"x")
    deleter = SafeDeleter(io=s3.io, roots=(f"{s3.root}/t",))
    s3.io.write(f"{s3.root}/other", b"x")
    requests.clear()

    outside = [f"{s3.root}/other", f"{s3.root}/t/../other"]
    deleter.delete_many([*outside, *paths, paths[0]])

    assert requests == ["delete_objects"] * 2
    assert deleter.refused == outside
    assert [info.name for info in s3.io.list_dir(f"{s3.root}/t")] == ["kept"]
    assert s3.io.file_exists(f"{s3.root}/other")


def test_a_confined_file_system_deletes_nothing_outside(s3: Bucket, requests: list[str]) -> None:
    confined = s3.io.confine([f"{s3.root}/t"])
    requests.clear()
    with pytest.raises(NotAllowedError, match="outside"):
        confined.delete_many([f"{s3.root}/t/a", f"{s3.root}/b"])
    assert requests == []


def test_an_error_of_one_key_names_it(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")

    s3.io.write(f"{s3.root}/a", b"x")
    s3.io.write(f"{s3.root}/b", b"x")

    def refuse(self: object, method: str, **options: object) -> dict[str, object]:
        assert method == "delete_objects"
        key = s3.root.removeprefix("s3://").partition("/")[2]
        return {"Errors": [{"Key": f"{key}/b", "Code": "AccessDenied"}]}

    async def deny(self: object, method: str, **options: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", refuse)
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", deny)
    with pytest.raises(StorageError, match=r"/warehouse/b cannot be deleted: .*Access Denied"):
        s3.io.delete_many([f"{s3.root}/a", f"{s3.root}/b"])


def test_a_server_without_bulk_deletion_deletes_one_by_one(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs = pytest.importorskip("s3fs")

    def refuse(self: object, method: str, **options: object) -> object:
        raise OSError(38, "NotImplemented")

    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", refuse)
    paths = [f"{s3.root}/t/{number}" for number in range(5)]
    for path in paths:
        s3.io.write(path, b"x")
    s3.io.delete_many(paths)
    assert list(s3.io.list_dir(f"{s3.root}/t")) == []


def test_a_dropped_table_is_deleted_in_one_request(s3: Bucket, requests: list[str]) -> None:
    for number in range(5):
        s3.io.write(f"{s3.root}/t/bucket-0/{number}", b"x")
    s3.io.write(f"{s3.root}/t2/file", b"x")
    requests.clear()
    s3.io.delete_dir(f"{s3.root}/t")
    assert Counter(requests)["delete_objects"] == 1
    assert "delete_object" not in requests
    files = s3.io.list_tree(s3.root)
    assert [info.path for info in files or ()] == [f"{s3.root}/t2/file"]


def test_the_connection_pool_allows_the_concurrent_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAIMON_ORCH_CONCURRENT_REQUESTS", "33")

    def find_config(options: dict[str, object]) -> dict[str, object]:
        io, _ = resolve_warehouse(f"s3://b{uuid4()}/wh", options)
        assert isinstance(io, FsspecFileIO)
        config: dict[str, object] = io._fs.config_kwargs
        return config

    path_style = {"s3": {"addressing_style": "path"}}
    limits = {
        "connect_timeout": STORE_CONNECT_SECONDS,
        "read_timeout": STORE_ANSWER_SECONDS,
        "retries": NO_BOTOCORE_RETRIES,
    }
    assert find_config({}) == {"max_pool_connections": 33, **limits}
    assert find_config({"config_kwargs": path_style}) == {
        "max_pool_connections": 33,
        **limits,
        **path_style,
    }
    assert find_config({"config_kwargs": {"max_pool_connections": 5}}) == {
        "max_pool_connections": 5,
        **limits,
    }


def new_table(s3: Bucket, kind: str, **keys: object) -> Table:
    """Create a table with 12 small files."""
    catalog = Catalog(s3.root, **s3.options)
    table = catalog.create_table(
        "db.t",
        "k INT, p INT, v STRING",
        partition_by=["p"],
        options={"bucket": "2" if keys else "-1", "file.format": kind},
        **keys,  # type: ignore[arg-type]
    )
    rows = pa.table(
        {
            "k": pa.array(range(300), pa.int32()),
            "p": pa.array([number % 3 for number in range(300)], pa.int32()),
            "v": [f"v{number}" for number in range(300)],
        }
    )
    for _ in range(2 if keys else 4):
        (table.upsert if keys else table.append)(rows)
    assert sum(len(split.files) for split in table.files()) == 12
    return table


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("keys", [{"primary_key": ["k", "p"]}, {}], ids=["keys", "append"])
def test_a_scan_reads_each_small_file_with_one_request(
    s3: Bucket, requests: list[str], kind: str, keys: dict[str, object]
) -> None:
    table = new_table(s3, kind, **keys)
    scan = table.scan()
    requests.clear()
    planned = scan.plan()
    planning = len(requests)
    requests.clear()

    rows = sum(batch.num_rows for split in planned for batch in scan.read_split(split))

    assert rows == (300 if keys else 1200)
    assert planning < 10
    assert Counter(requests) == {"get_object": 12}


def test_a_compaction_reads_each_small_file_with_one_request(
    s3: Bucket, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, opened = new_table(s3, "parquet", primary_key=["k", "p"]), list[str]()
    original = FsspecFileIO.open_input

    def open_input(self: FsspecFileIO, path: str, size: int | None = None) -> object:
        opened.append(path.rpartition("/")[2])
        return original(self, path, size)

    monkeypatch.setattr(FsspecFileIO, "open_input", open_input)
    requests.clear()
    assert compact(table, strategy="full").files_before == 12
    opened = [name for name in opened if name.startswith("data-")]
    assert len(opened) == len(set(opened)) == 12
    assert "head_object" not in requests
