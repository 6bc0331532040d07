"""New bitmap indexes keep the version of the table, so that Java Paimon 0.9 can read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import GOLDEN, copy_warehouse
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.file_index_reader import read_bitmap_version
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.maintenance.rescale import rescale
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import ResetOption, SetOption
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
OF_0_9 = ["t_emb", "t_ext"]


def golden_table(folder: str, name: str, target: Path) -> Table:
    return Catalog(str(copy_warehouse(GOLDEN / folder, target))).table(f"db.{name}")


def versions(table: Table) -> set[int | None]:
    reader = table.stores.reader()
    return {
        read_bitmap_version(
            table.io, reader.path(BucketFile(split.partition, split.bucket, file)), file
        )
        for split in table.files()
        for file in split.files
    }


def with_option(table: Table, key: str, text: str) -> Table:
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table(table.identifier, [SetOption(key, text)])
    return catalog.table(table.identifier)


def keyed_table(tmp_path: Path) -> Table:
    """Return a table with a primary key and indexes of version 1, whose options name none."""
    columns = {"file_index__bitmap__columns": "v", "file_index__in_manifest_threshold": "1 mb"}
    table = new_table(tmp_path / "w", **columns, file_index__bitmap__v__version="1")
    for value in ("a", "b"):
        table.upsert(table_of("k v", [(key, value) for key in range(9)]))
    catalog = Catalog(str(tmp_path / "w"))
    catalog.alter_table("db.t", [ResetOption("file-index.bitmap.v.version")])
    return catalog.table("db.t")


@pytest.mark.parametrize("name", OF_0_9)
def test_files_of_compaction_and_of_writers_keep_version_1(name: str, tmp_path: Path) -> None:
    table = golden_table("java-0.9/fileindex_bitmap", name, tmp_path / "w")
    rows = rows_of(table)
    table.append(table.scan(limit=3).to_arrow())
    compact(table, EXECUTOR, strategy="full")

    assert versions(table) == {1}
    assert len(rows_of(table)) == len(rows) + 3


def test_merged_files_keep_version_1(tmp_path: Path) -> None:
    table = keyed_table(tmp_path)
    assert versions(table) == {1}
    compact(table, EXECUTOR, strategy="full")
    assert versions(table) == {1}


@pytest.mark.parametrize("name", OF_0_9)
def test_rewritten_indexes_keep_version_1(name: str, tmp_path: Path) -> None:
    table = golden_table("java-0.9/fileindex_bitmap", name, tmp_path / "w")
    table = with_option(table, "file-index.bitmap.columns", "s,b,ti,d,ts,v")
    rewrite_file_index(table, EXECUTOR)
    assert versions(table) == {1}

    table = with_option(table, "file-index.bitmap.s.version", "2")
    for column in ("b", "ti", "d", "ts", "v"):
        table = with_option(table, f"file-index.bitmap.{column}.version", "2")
    rewrite_file_index(table, EXECUTOR)
    assert versions(table) == {2}


def test_a_file_without_index_gets_the_version_of_the_others(tmp_path: Path) -> None:
    table = golden_table("java-0.9/fileindex_bitmap", "t_ext", tmp_path / "w")
    columns = "file-index.bitmap.columns"
    catalog = Catalog(str(tmp_path / "w"))
    catalog.alter_table("db.t_ext", [ResetOption(columns)])
    catalog.table("db.t_ext").append(table.scan(limit=3).to_arrow())
    catalog.alter_table("db.t_ext", [SetOption(columns, "s,b,ti,d,ts")])
    assert versions(table) == {None, 1}
    rewrite_file_index(table, EXECUTOR)
    assert versions(table) == {1}


def test_delete_records_keep_version_1(tmp_path: Path) -> None:
    table = keyed_table(tmp_path)
    delete(table, EXECUTOR, "k = 3")
    assert versions(table) == {1}


def test_rescaled_files_keep_version_1(tmp_path: Path) -> None:
    table = keyed_table(tmp_path)
    rescale(table, 2, EXECUTOR)
    assert versions(table) == {1}


def test_tables_of_newer_releases_keep_version_2(tmp_path: Path) -> None:
    table = golden_table("java-2.0/file_indexes", "t_emb", tmp_path / "w")
    table.append(table.scan(limit=3).to_arrow())
    compact(table, EXECUTOR, strategy="full")
    assert versions(table) == {2}


def test_a_new_table_gets_version_2(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, file_index__bitmap__columns="v", file_index__in_manifest_threshold="1 mb"
    )
    table.upsert(table_of("k v", [(1, "a")]))
    assert versions(table) == {2}
