"""The cache of metadata files: what it returns after files are replaced, and its limits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from cachetools import LRUCache
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import MissingFileError, NotAllowedError
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.metadata import metadata_cache
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.metadata.metadata_cache import (
    clear_metadata_cache,
    keep_written_file,
    read_unchanging_file,
)
from paimon_orch.table.schema_change.schema_changes import AddColumn


class CountingFileIO(LocalFileIO):
    """Counts the files that are read."""

    def __init__(self) -> None:
        self.reads = 0

    def read_bytes(self, path: str) -> bytes:
        self.reads += 1
        return super().read_bytes(path)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    io, path = CountingFileIO(), write(tmp_path / "manifest-1", b"abc")

    assert {read_unchanging_file(io, path) for _ in range(3)} == {b"abc"}
    assert io.reads == 1


def test_a_file_that_this_process_wrote_is_not_read(tmp_path: Path) -> None:
    io, path = CountingFileIO(), write(tmp_path / "manifest-1", b"abc")
    keep_written_file(io, path, b"abc")

    assert read_unchanging_file(io, path) == b"abc"
    assert io.reads == 0


def test_content_of_another_version_or_size_is_read_again(tmp_path: Path) -> None:
    io, path = CountingFileIO(), write(tmp_path / "schema-0", b"abc")
    read_unchanging_file(io, path, "1")
    write(tmp_path / "schema-0", b"xyz")

    assert read_unchanging_file(io, path, "2") == b"xyz"
    write(tmp_path / "schema-0", b"longer")
    assert read_unchanging_file(io, path, "2", size=6) == b"longer"


def test_the_cache_gives_nothing_to_readers_that_may_not_read_the_file(tmp_path: Path) -> None:
    io, path = LocalFileIO(), write(tmp_path / "manifest-1", b"abc")
    read_unchanging_file(io, path)

    with pytest.raises(NotAllowedError):
        read_unchanging_file(io.confine([str(tmp_path / "other")]), path)


def test_large_files_and_old_files_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_metadata_cache()
    monkeypatch.setattr(metadata_cache, "_MAX_FILE_BYTES", 100)
    monkeypatch.setattr(metadata_cache, "_contents", LRUCache(250, getsizeof=len))
    io = CountingFileIO()
    large = write(tmp_path / "large", bytes(101))
    small = [write(tmp_path / f"small-{number}", bytes(100)) for number in range(3)]
    for path in (large, large, *small, small[2], small[0]):
        read_unchanging_file(io, path)

    assert io.reads == 2 + 3 + 1
    assert metadata_cache._contents.currsize <= 250


def test_threads_share_the_cache(tmp_path: Path) -> None:
    io = LocalFileIO()
    paths = [write(tmp_path / f"manifest-{number}", bytes([number])) for number in range(50)]
    wrong: list[str] = []

    def read_all() -> None:
        for number, path in enumerate(paths * 20):
            if read_unchanging_file(io, path) != bytes([number % 50]):
                wrong.append(path)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_table_that_is_created_again_has_its_new_schema_and_rows(tmp_path: Path) -> None:
    table, catalog = new_table(tmp_path, "k BIGINT, a STRING"), Catalog(str(tmp_path))
    table.upsert(table_of("k a", [(1, "old")]))
    assert rows_of(table) == [(1, "old")]
    size = (tmp_path / "db.db/t/schema/schema-0").stat().st_size

    catalog.drop_table("db.t")
    again = new_table(tmp_path, "k BIGINT, b STRING")  # a schema file of the same size
    again.upsert(table_of("k b", [(1, "new")]))

    assert (tmp_path / "db.db/t/schema/schema-0").stat().st_size == size
    assert [each.load().schema.names for each in (table, again)] == [["k", "b"]] * 2
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "b": "new"}]


def test_a_snapshot_id_that_is_used_again_has_its_new_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for value in ("a", "b"):
        table.upsert(table_of("k v", [(1, value)]))
    assert rows_of(table) == [(1, "b")]

    table.rollback(1)
    assert rows_of(table) == [(1, "a")]
    snapshot = table.upsert(table_of("k v", [(1, "c")]))

    assert snapshot is not None
    assert snapshot.id == 2
    assert rows_of(table) == [(1, "c")]


def test_a_schema_that_a_branch_replaces_is_read_again(tmp_path: Path) -> None:
    table, catalog = new_table(tmp_path), Catalog(str(tmp_path))
    table.upsert(table_of("k v", [(1, "a")]))
    table.tags.create("t")
    table.branches.create("dev", "t")
    catalog.alter_table("db.t", [AddColumn(column="a", type="INT")])
    catalog.alter_table("db.t$branch_dev", [AddColumn(column="b", type="INT")])
    catalog.table("db.t$branch_dev").upsert(table_of("k v b", [(1, "a", 2)]))
    stores = table.stores
    assert stores.get_schema().names == ["k", "v", "a"]

    table.branches.fast_forward("dev")

    assert stores.get_schema().names == ["k", "v", "b"]


def test_readers_that_verify_do_not_use_the_cache(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    snapshot = table.upsert(table_of("k v", [(1, "a")]))
    assert snapshot is not None
    [meta] = table.stores.manifests.manifests(snapshot)
    table.stores.manifests.open(meta)
    Path(f"{table.paths.manifest_dir}/{meta.file_name}").unlink()

    table.stores.manifests.open(meta)
    with pytest.raises(MissingFileError):
        ManifestReader(table.io, table.paths).open(meta)
