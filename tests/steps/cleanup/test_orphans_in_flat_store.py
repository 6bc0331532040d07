"""Orphan files are the same whether directories are listed one by one or all files at once."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from support.flat_store import FlatFileIO, PagingFileIO, in_flat_store
from support.histories import backdate_files, make_table
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import CorruptFileError
from paimon_orch.steps.cleanup import remove_orphan_files as orphans
from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.storage import FileInfo
from paimon_orch.table.table import Table
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_builder import WriteBuilder

STRAYS = [
    "p=1/bucket-0/data-stray-0.parquet",
    "p=1/bucket-0/below/data-stray-1.parquet",
    "p=1/other/data-stray-2.parquet",
    "q=1/bucket-0/data-stray-3.parquet",
    "bucket-0/data-stray-4.parquet",
    "p=2/schema/schema-0",
    "p=2/bucket-0/data-stray-5.parquet",
    "manifest/manifest-stray",
    "manifest/below/manifest-stray",
    "index/index-stray",
    "statistics/stat-stray",
    "snapshot/unfinished",
    "snapshot/snapshot-stray.tmp",
    "tag/.tag-a.uuid.tmp",
    "branch/branch-dev/snapshot/unfinished",
    "schema/.schema-9.uuid.tmp",
    "consumer/.consumer-a.tmp",
    "changelog/stray",
    "other/file",
    "file",
]


def find_orphans(table: Table) -> list[str]:
    planned = orphans.plan(table, RemoveOrphanFilesRequest(older_than=int(time.time() * 1000)))
    return sorted(file.path for file in planned.files)


def add_strays(table: Table) -> None:
    for stray in STRAYS:
        path = Path(table.paths.root, stray)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"stray")
    backdate_files(table)


def test_a_listing_of_all_files_finds_the_same_orphans(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k INT, v INT", key=["p", "k"], partition_by=["p"])
    for number in range(3):
        table.upsert(table_of("p k v", [(number, 1, number)]))
    table.tags.create("t", 2)
    table.branches.create("dev", "t")
    add_strays(table)
    flat, io = in_flat_store(table)

    expected = find_orphans(table)
    assert find_orphans(flat) == expected
    assert len(expected) > 8
    assert f"{table.paths.root}/**" in io.listings
    assert not [path for path in io.listings if "bucket-" in path]


def test_a_small_table_is_listed_before_it_is_loaded(tmp_path: Path) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1), ("tag", 0), ("upsert", 2)])
    add_strays(table)
    shutil.rmtree(f"{table.paths.root}/branch")
    paging, io = in_flat_store(table, PagingFileIO)

    assert find_orphans(paging) == find_orphans(table)
    assert io.listings[0] == f"{table.paths.root}/*"
    assert io.names_read().count("snapshot-2") == 1
    assert table.paths.schema_dir not in io.listings


def test_files_of_another_snapshot_with_a_listed_id_are_kept(tmp_path: Path) -> None:
    """A rollback and a commit replace the newest snapshot after the listing."""
    table = new_table(tmp_path)
    for number in range(2):
        table.upsert(table_of("k v", [(number, "a")]))
    builder = WriteBuilder(table.load())
    planned = builder.plan()
    written = write_rows(planned, [convert_rows(table_of("k v", [(5, "slow")]), planned.schema)])
    backdate_files(table)

    class ReplacingFileIO(PagingFileIO):
        is_replaced = False

        def list_few(
            self, prefix: str, limit: int, *, with_directories: bool = False
        ) -> list[FileInfo] | None:
            entries = super().list_few(prefix, limit, with_directories=with_directories)
            if not self.is_replaced:
                self.is_replaced = True
                table.rollback(1)
                assert builder.commit(written)
            return entries

    paging, _ = in_flat_store(table, ReplacingFileIO)
    request = RemoveOrphanFilesRequest(older_than=int(time.time() * 1000))
    run_step(orphans.REMOVE_ORPHAN_FILES, paging, orphans.plan(paging, request))

    assert rows_of(table) == [(0, "a"), (5, "slow")]
    assert check(table, deep=True).findings == ()


def test_a_large_table_is_listed_by_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, "plain", [("upsert", 1), ("tag", 0), ("upsert", 2)])
    table.branches.create("dev", "t0")
    add_strays(table)
    monkeypatch.setattr(orphans, "_MAX_TREE_ENTRIES", 1)
    flat, io = in_flat_store(table)

    assert find_orphans(flat) == find_orphans(table)
    assert not [path for path in io.listings if path.endswith("**")]


class _Committing(FlatFileIO):
    """A slow writer commits old files after all files were listed."""

    table: Table | None = None

    def list_tree(self, path: str) -> list[FileInfo] | None:
        files = super().list_tree(path)
        if self.table is not None:
            table, self.table = self.table, None
            table.upsert(table_of("k v", [(9, "new")]))
            backdate_files(table)
        return files


def test_files_that_are_committed_during_the_listing_are_kept(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old")]))
    backdate_files(table)
    io = _Committing()
    flat = Table(table.identifier, io, table.paths)
    io.table = table
    request = RemoveOrphanFilesRequest(older_than=int(time.time() * 1000))

    planned = orphans.plan(flat, request)
    assert planned.files == ()
    table.upsert(table_of("k v", [(10, "newer")]))
    run_step(orphans.REMOVE_ORPHAN_FILES, flat, planned)

    assert rows_of(table) == [(1, "old"), (9, "new"), (10, "newer")]


def test_the_listing_of_all_files_shows_that_all_are_referenced(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "a")]))
    table.tags.create("t", 1)
    backdate_files(table)
    flat, io = in_flat_store(table)

    assert find_orphans(flat) == []
    assert io.listings == [table.paths.schema_dir, f"{table.paths.root}/**"]


def test_a_listed_file_that_is_committed_after_the_listing_is_kept(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old")]))
    builder = WriteBuilder(table.load())
    planned = builder.plan()
    written = write_rows(planned, [convert_rows(table_of("k v", [(2, "slow")]), planned.schema)])
    backdate_files(table)

    class CommittingFileIO(FlatFileIO):
        """A slow writer commits files that were listed."""

        def list_tree(self, path: str) -> list[FileInfo] | None:
            files = super().list_tree(path)
            assert builder.commit(written)
            return files

    flat = Table(table.identifier, CommittingFileIO(), table.paths)
    planned_removal = orphans.plan(
        flat, RemoveOrphanFilesRequest(older_than=int(time.time() * 1000))
    )

    assert planned_removal.files == ()
    assert rows_of(table) == [(1, "old"), (2, "slow")]


def make_old_snapshots(root: Path) -> Table:
    """Create a table whose oldest snapshot has a file that no newer manifest names."""
    table = new_table(root, manifest__merge_min_count="1")
    table.upsert(table_of("k v", [(1, "a")]))
    table.overwrite(table_of("k v", [(1, "b")]), partitions={})
    for number in range(4):
        table.upsert(table_of("k v", [(number, "c")]))
    return table


def list_lists(table: Table, snapshot_id: int) -> list[str]:
    snapshot = table.stores.snapshots.get(snapshot_id)
    return [snapshot.base_manifest_list, snapshot.delta_manifest_list]


def test_older_versions_are_not_read_if_newer_ones_reference_all_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(6):
        table.upsert(table_of("k v", [(number, "a")]))
    backdate_files(table)
    flat, io = in_flat_store(table)

    assert find_orphans(flat) == []
    assert set(list_lists(table, 6)) <= {*io.names_read()}
    assert not {name for number in range(1, 6) for name in list_lists(table, number)} & {
        *io.names_read()
    }


def test_a_file_that_only_the_oldest_snapshot_references_is_kept(tmp_path: Path) -> None:
    table = make_old_snapshots(tmp_path)
    backdate_files(table)
    flat, io = in_flat_store(table)

    assert find_orphans(flat) == []
    assert set(list_lists(table, 1)) <= {*io.names_read()}


def test_all_versions_are_read_once_if_there_is_an_orphan(tmp_path: Path) -> None:
    table = make_old_snapshots(tmp_path)
    Path(table.paths.manifest_dir, "manifest-stray").write_bytes(b"stray")
    backdate_files(table)
    flat, io = in_flat_store(table)

    assert find_orphans(flat) == [f"{table.paths.manifest_dir}/manifest-stray"]
    lists = [name for number in range(1, 7) for name in list_lists(table, number)]
    assert [name for name in io.names_read() if name in lists] == sorted(lists)


def test_an_unreadable_list_of_an_old_snapshot_ends_a_search_that_needs_it(tmp_path: Path) -> None:
    table = make_old_snapshots(tmp_path)
    Path(table.paths.manifest_dir, list_lists(table, 1)[1]).write_bytes(b"damaged")
    backdate_files(table)
    flat, _ = in_flat_store(table)

    with pytest.raises(CorruptFileError, match=list_lists(table, 1)[1]):
        find_orphans(flat)


def test_unfinished_files_are_found_if_all_other_files_are_new(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    stray = Path(table.paths.snapshot_dir, "unfinished")
    stray.write_bytes(b"stray")
    os.utime(stray, (0, 0))
    flat, _ = in_flat_store(table)

    planned = orphans.plan(flat, RemoveOrphanFilesRequest())

    assert [file.path for file in planned.files] == [str(stray)]
    run_step(orphans.REMOVE_ORPHAN_FILES, flat, planned)
    assert not stray.exists()
    assert rows_of(table) == [(1, "a")]
