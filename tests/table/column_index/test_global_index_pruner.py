"""Scans with global indexes return the same rows as without, and read fewer of them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.data_evolution import RowChanges, change_an_indexed_table, evolving_table
from support.golden import GOLDEN, copy_warehouse
from support.tables import Row, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.types.data_types import parse_type
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance.create_global_index import create_global_index
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.scan import Scan
from paimon_orch.table.scan.split_generator import divide_splits
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import build_table_state


def golden(name: str, tmp_path: Path) -> Table:
    folder = GOLDEN / "java-2.0" / name
    return Catalog(str(copy_warehouse(folder, tmp_path / "w"))).table("db.t")


def read_without_indexes(table: Table, text: str) -> list[Row]:
    """Return the rows of a scan with ``global-index.enabled`` = ``false``."""
    scan = with_options(table.scan(filter=text), {"global-index.enabled": "false"})
    assert count_selected(scan.plan()) is None
    assert all(split.file_rows is None for split in scan.plan())
    return sorted_rows(scan)


def with_options(scan: Scan, options: dict[str, str]) -> Scan:
    schema = replace(scan.schema, options={**scan.schema.options, **options})
    return replace(scan, state=build_table_state(scan.state, schema, scan.snapshot))


def sorted_rows(scan: Scan) -> list[Row]:
    columns = scan.to_arrow().to_pydict().values()
    return sorted(zip(*columns, strict=True), key=str)


def count_selected(splits: list[BucketSplit]) -> int | None:
    """Return the number of rows to read, or None if they are not restricted."""
    if any(split.row_ids is None for split in splits):
        return None
    return sum(split.row_ids.count for split in splits if split.row_ids is not None)


# The golden table has 60 rows with btree indexes of id and name, and 40 rows without.
FILTERS = {
    "id = 5": 41,
    "id = 70": 40,
    "id IN (3, 77)": 41,
    "id >= 55 AND id < 62": 45,
    "id BETWEEN 4 AND 6 AND name IS NOT NULL": 43,
    "NOT (id > 3)": 44,
    "name IS NULL": 44,
    "name = '日本語' OR id = 4": 43,
    "name LIKE 'quote%'": 46,
    "name LIKE '%252%' OR id = 3": None,
    "v > 0 OR id = 3": None,
    "v > 0 AND id = 3": 41,
    "id = 200": 40,
}


@pytest.mark.parametrize("text", FILTERS)
def test_indexes_of_java_select_rows_and_rows_without_index_are_read(text: str) -> None:
    table = Catalog(str(GOLDEN / "java-2.0" / "global_index" / "warehouse")).table("db.t")
    scan = table.scan(filter=text)

    assert count_selected(scan.plan()) == FILTERS[text]
    assert sorted_rows(scan) == read_without_indexes(table, text)


def test_a_filtered_scan_reads_the_index_manifest_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Catalog(str(GOLDEN / "java-2.0" / "global_index" / "warehouse")).table("db.t")
    read, names = ManifestReader.index_manifest, list[str]()

    def record(reader: ManifestReader, name: str) -> list[IndexManifestEntry]:
        names.append(name)
        return read(reader, name)

    monkeypatch.setattr(ManifestReader, "index_manifest", record)

    assert count_selected(table.scan(filter="id = 5").plan()) == 41
    assert len(names) == 1


def test_a_file_without_a_matching_row_is_not_read_and_the_report_counts_it() -> None:
    table = Catalog(str(GOLDEN / "java-2.0" / "global_index" / "warehouse")).table("db.t")

    skipped = table.scan(filter="id = 200").explain()
    one = table.scan(filter="id = 5").explain()

    assert (skipped.files, skipped.files_skipped_in_planning) == (2, 1)
    assert skipped.indexes["btree(id)"].rows_selected == 40
    assert (one.files_skipped_in_planning, one.rows_selected) == (0, 41)


def test_updated_columns_are_read_although_updates_keep_indexes(tmp_path: Path) -> None:
    options = {"global_index__column_update_action": "IGNORE", "compaction__min__file_num": "2"}
    table = evolving_table(tmp_path, **options)
    for start in (0, 20):
        table.append(table_of("a b c", [(n, n, 0) for n in range(start, start + 20)]))
    create_global_index(table, "a")
    create_global_index(table, "b", index_type="bitmap")

    RowChanges(updated={3: {"a": 1000}}).commit(table)

    assert rows_of(table, filter="a = 1000") == [(1000, 3, 0)]
    assert rows_of(table, filter="a = 3") == []
    assert rows_of(table, filter="b = 3") == [(1000, 3, 0)]
    assert count_selected(table.scan(filter="a = 25").plan()) == 21  # only the other file
    assert count_selected(table.scan(filter="b = 25").plan()) == 1
    compact(table, InProcessExecutor(), strategy="full")
    assert rows_of(table, filter="a = 1000") == [(1000, 3, 0)]
    result = create_global_index(table, "a")
    assert (result.index_files, result.replaced_index_files) == (1, 1)
    assert count_selected(table.scan(filter="a = 1000").plan()) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("action", ["IGNORE", "DROP_PARTITION_INDEX"])
def test_filtered_reads_equal_filtered_rows_after_each_change(tmp_path: Path, action: str) -> None:
    changes = change_an_indexed_table(tmp_path, global_index__column_update_action=action)
    for change, table in changes:
        rows = rows_of(table)
        for value in (3, 4, 24):
            expected = [row for row in rows if row[1] == value]
            assert rows_of(table, filter=f"a = {value}") == expected, change
        for text in ("b1", "b3"):
            expected = [row for row in rows if row[2] == text]
            assert rows_of(table, filter=f"b = '{text}'") == expected, change
        expected = [row for row in rows if row[2] is None or row[1] == 3]
        assert rows_of(table, filter="b IS NULL OR a = 3") == expected, change
        if change in ("index again", "drop partitions"):
            assert check(table, deep=True), change


def test_a_compaction_keeps_indexes_in_use(tmp_path: Path) -> None:
    table = evolving_table(tmp_path, compaction__min__file_num="2")
    for start in (0, 20):
        table.append(table_of("a b c", [(n, n, 0) for n in range(start, start + 20)]))
    create_global_index(table, "a")
    RowChanges(updated={3: {"c": 7}}).commit(table)
    compact(table, InProcessExecutor(), strategy="full")

    assert count_selected(table.scan(filter="a = 3").plan()) == 1
    assert rows_of(table, filter="a = 3") == [(3, 3, 7)]


def test_selected_rows_of_several_files_and_partitions_are_joined(tmp_path: Path) -> None:
    table = evolving_table(
        tmp_path, "p INT, a BIGINT, b BIGINT", ["p"], deletion_vectors__enabled="true"
    )
    table.append(table_of("p a b", [(n % 2, n, n) for n in range(200)]))
    create_global_index(table, "a")
    RowChanges(updated={n: {"b": 1000 + n} for n in range(0, 200, 7)}, deleted=[50]).commit(table)

    for text in ("a = 43", "a IN (3, 4, 50, 120)", "a = 43 AND p = 1", "a < 5"):
        scan, expected = table.scan(filter=text), read_without_indexes(table, text)
        assert sorted_rows(scan) == expected
        parts = divide_splits(scan.plan(), scan)
        batches = [batch for part in parts for batch in scan.read_split(part)]
        assert pa.Table.from_batches(batches, scan.arrow_schema).num_rows == len(expected)
    assert count_selected(table.scan(filter="a = 43 AND p = 1").plan()) == 1


def test_a_damaged_or_missing_index_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = golden("global_index", tmp_path)
    expected = read_without_indexes(table, "id = 5")
    for path in Path(table.paths.root, "index").iterdir():
        path.write_bytes(b"x" * path.stat().st_size)

    with caplog.at_level(logging.WARNING):
        assert rows_of(table, filter="id = 5") == expected
    assert "its rows are read without the index" in caplog.text
    for path in Path(table.paths.root, "index").iterdir():
        path.unlink()
    assert rows_of(table, filter="id = 5") == expected


def test_an_index_of_another_type_of_the_column_is_not_used(tmp_path: Path) -> None:
    table = golden("global_index", tmp_path)
    expected = [(float(row[0]), *row[1:]) for row in rows_of(table, filter="id IN (5, 70)")]
    schema = table.load().schema
    fields = (replace(schema.field("id"), type=parse_type("FLOAT")), *schema.fields[1:])
    table.stores.schemas.create(replace(schema, id=1, fields=fields))  # as Java Paimon does

    altered = Catalog(str(tmp_path / "w")).table("db.t")

    assert count_selected(altered.scan(filter="id IN (5, 70)").plan()) is None
    assert rows_of(altered, filter="id IN (5, 70)") == expected
    with pytest.raises(UnsupportedError, match="it was another type before"):
        create_global_index(altered, "id")


@pytest.mark.parametrize(
    "text",
    [
        "name = 'alpha'",
        "name LIKE 'q%'",
        "c = 3",
        "name IS NULL AND c <> 1",
        "c IN (1, 2) OR v = 5",
    ],
)
def test_indexes_of_primary_key_tables_select_rows(text: str) -> None:
    table = Catalog(str(GOLDEN / "java-2.0" / "pk_indexes" / "warehouse")).table("db.t")
    scan, expected = table.scan(filter=text), read_without_indexes(table, text)

    assert sorted_rows(scan) == expected
    [split] = scan.plan()
    if " OR v" in text:
        assert split.file_rows is None
    else:
        assert split.file_rows is not None
        assert len(expected) <= sum(rows.count for rows in split.file_rows.values()) < 86


def test_files_of_primary_key_tables_without_a_matching_row_are_not_read(tmp_path: Path) -> None:
    table = golden("pk_indexes", tmp_path)
    rows = table_of("k name v c", [(1000 + n, "zulu", n, 9) for n in range(5)])
    table.upsert(rows.set_column(0, "k", rows["k"].cast("int32")))

    assert table.scan(filter="name = 'missing'").plan() == []
    assert rows_of(table, filter="name = 'zulu'") == []  # level 0 is not visible
    compact(table, InProcessExecutor(), strategy="full")
    assert len(rows_of(table, filter="name = 'zulu'")) == 5


def test_keys_that_must_be_merged_are_not_pruned(tmp_path: Path) -> None:
    table = golden("pk_indexes", tmp_path)
    [key, *_] = rows_of(table)[0]
    name = rows_of(table)[0][1]
    rows = table_of("k name v c", [(key, "zulu", 1, 1)])
    table.upsert(rows.set_column(0, "k", rows["k"].cast("int32")))
    scan = replace(table.scan(filter=f"name = '{name}'"), merge_level_0=True)
    assert key not in [row[0] for row in sorted_rows(scan)]
    scan = replace(table.scan(filter="name = 'zulu'"), merge_level_0=True)
    assert [row[0] for row in sorted_rows(scan)] == [key]
