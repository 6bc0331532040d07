"""Orphan files are the same whether directories are listed one by one or all files at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.flat_store import FlatFileIO, in_flat_store
from support.histories import backdate_files, make_table
from support.tables import new_table, rows_of, table_of

from paimon_orch.steps.cleanup import remove_orphan_files as orphans
from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest
from paimon_orch.steps.common.step import run_step
from paimon_orch.storage import FileInfo
from paimon_orch.table.table import Table

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
