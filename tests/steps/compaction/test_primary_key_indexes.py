"""Index files of primary-key tables: kept while their data files live, dropped with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.damage import fail_to_write
from support.golden import GOLDEN, copy_warehouse
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, StorageError, UnsupportedError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import IndexSource, decode_index_source
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.compaction import key_indexes
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest, compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.schema_change.schema_changes import (
    DropColumn,
    RenameColumn,
    SetOption,
    UpdateType,
)
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

EXECUTOR = InProcessExecutor()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    folder = GOLDEN / "java-2.0" / "pk_indexes"
    return Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table("db.t")


def index_entries(table: Table) -> dict[str, IndexManifestEntry]:
    latest = table.stores.snapshots.latest()
    entries = table.stores.manifests.read_index_entries(latest)
    return {entry.file_name: entry for entry in entries if entry.source_meta is not None}


def index_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.paths.root, "index").iterdir()}


def append(table: Table, key: int) -> None:
    rows = table_of("k name v c", [(key, "new", 1, 1)])
    table.append(rows.set_column(0, "k", rows["k"].cast("int32")))


def assert_indexes_cover_compacted_files(table: Table, count: int = 2) -> None:
    live = [file for split in table.files() for file in split.files]
    compacted = [file for file in live if file.file_source and file.level]
    files = tuple(sorted((file.file_name, file.row_count) for file in compacted))
    sources = [decode_index_source(entry) for entry in index_entries(table).values()]
    assert sources == [IndexSource(level=compacted[0].level, files=files)] * count


def test_the_indexes_of_the_golden_table_cover_its_compacted_files(table: Table) -> None:
    assert_indexes_cover_compacted_files(table)


def test_an_append_keeps_indexes_and_a_compaction_replaces_those_of_its_input(
    table: Table,
) -> None:
    before = index_entries(table)
    assert {entry.index_type for entry in before.values()} == {"btree", "bitmap"}

    append(table, rows_of(table)[0][0])
    assert index_entries(table) == before
    compact(table, EXECUTOR, strategy="full")

    rows, after = rows_of(table), index_entries(table)
    assert not set(before) & set(after)
    assert_indexes_cover_compacted_files(table)
    assert set(before) | set(after) <= index_files(table)
    assert check(table, deep=True).findings == ()

    latest = table.stores.snapshots.latest()
    compact(table, EXECUTOR, strategy="full")
    assert table.stores.snapshots.latest() == latest

    expire_snapshots(table, retain_max=1, retain_min=1)
    assert not set(before) & index_files(table)
    assert set(after) <= index_files(table)
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


def test_a_commit_drops_the_indexes_of_the_files_that_it_removes(table: Table) -> None:
    append(table, rows_of(table)[0][0])
    request = CompactRequest(strategy="full")
    run_step(COMPACT, table, compact_step.plan(table, request), EXECUTOR)

    assert index_entries(table) == {}
    assert rows_of(table)


def test_a_failed_index_leaves_no_index_files(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact(table, EXECUTOR, strategy="full")
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table(table.identifier, [SetOption("pk-btree.index.columns", "name,v")])
    before = stored_files(table)
    fail_to_write(monkeypatch, "/index/")

    with pytest.raises(StorageError, match="the disk is full"):
        compact(catalog.table(table.identifier), EXECUTOR, strategy="full")

    assert stored_files(table) == before


def test_a_compaction_builds_missing_indexes_without_a_rewrite(table: Table) -> None:
    compact(table, EXECUTOR, strategy="full")
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    catalog.alter_table(table.identifier, [SetOption("pk-btree.index.columns", "name,v")])
    table = catalog.table(table.identifier)
    before, files = index_entries(table), table.files()

    compact(table, EXECUTOR, strategy="full")

    after = index_entries(table)
    assert table.files() == files
    assert before.items() <= after.items()
    [new] = [entry for name, entry in after.items() if name not in before]
    assert new.index_type == "btree"
    assert new.global_index is not None
    assert new.global_index.index_field_id == 2
    assert_indexes_cover_compacted_files(table, 3)


def test_indexes_of_files_that_another_commit_replaced_are_not_committed(table: Table) -> None:
    append(table, rows_of(table)[0][0])
    run_step(COMPACT, table, compact_step.plan(table, CompactRequest(strategy="full")), EXECUTOR)
    planned = key_indexes.plan(table, PartitionRequest())
    [unit] = planned.units
    message = CommitMessage.decode(key_indexes.run(planned.reader, unit))
    before = index_files(table)
    append(table, rows_of(table)[0][0])
    run_step(COMPACT, table, compact_step.plan(table, CompactRequest(strategy="full")), EXECUTOR)

    with pytest.raises(CommitConflictError):
        key_indexes.commit(table, planned, [message])

    assert index_entries(table) == {}
    written = {entry.file_name for entry in message.index}
    assert len(written & before) == 2
    assert not written & index_files(table)


def test_an_expiration_keeps_the_index_files_that_the_table_refers_to(table: Table) -> None:
    before = index_entries(table)

    expire_snapshots(table, retain_max=1, retain_min=1)

    assert index_entries(table) == before
    assert set(before) <= index_files(table)


@pytest.mark.parametrize("kind", ["full-text", "vector", "multivalue"])
def test_indexes_that_searches_need_are_kept_and_a_compaction_is_refused(
    table: Table, kind: str
) -> None:
    schema = Path(table.paths.root, "schema", "schema-0")
    schema.write_text(schema.read_text().replace("pk-btree.", f"pk-{kind}."))
    table = Catalog(str(Path(table.paths.root).parents[1])).table("db.t")
    before = index_entries(table)

    append(table, rows_of(table)[0][0])
    with pytest.raises(UnsupportedError, match=rf"pk-{kind}\.index\.columns.*skip files"):
        compact(table, EXECUTOR, strategy="full")
    expire_snapshots(table, retain_max=1, retain_min=1)

    assert index_entries(table) == before
    assert set(before) <= index_files(table)


def test_a_missing_index_file_is_found(table: Table) -> None:
    name = next(iter(index_entries(table)))
    Path(table.paths.root, "index", name).unlink()

    assert any(name in finding.text for finding in check(table).findings)


def test_an_unknown_list_of_data_files_is_refused(table: Table) -> None:
    entry = next(iter(index_entries(table).values()))
    assert entry.additional is not None
    assert entry.source_meta is not None
    for damaged in (b"\0\0\0\x02" + entry.source_meta[4:], entry.source_meta[:-1], b"\0"):
        entry.additional.values["_GLOBAL_INDEX._SOURCE_META"] = damaged  # type: ignore[index]
        with pytest.raises(UnsupportedError, match="list of its data files"):
            decode_index_source(entry)


@pytest.mark.parametrize(
    "change",
    [DropColumn("c"), RenameColumn("c", "d"), UpdateType("c", "BIGINT")],
    ids=lambda change: type(change).__name__,
)
@pytest.mark.parametrize("kind", ["bitmap", "vector"])
def test_columns_with_an_index_keep_their_name_and_type(
    table: Table, change: DropColumn | RenameColumn | UpdateType, kind: str
) -> None:
    schema = Path(table.paths.root, "schema", "schema-0")
    schema.write_text(schema.read_text().replace("pk-bitmap.", f"pk-{kind}."))
    catalog = Catalog(str(Path(table.paths.root).parents[1]))
    with pytest.raises(InputError, match=rf"pk-{kind}\.index\.columns"):
        catalog.alter_table(table.identifier, [change])


def test_a_stored_option_of_an_append_table_builds_no_index(tmp_path: Path) -> None:
    schema = new_table(tmp_path, "k INT, v INT", key=(), bucket="-1").load().schema
    options = {**schema.options, "pk-btree.index.columns": "v"}

    assert key_indexes.find_key_indexes(replace(schema, options=options)) == []
    assert key_indexes.find_key_indexes(replace(schema, options=options, primary_keys=("k",))) != []
