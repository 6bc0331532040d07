"""System tables have the columns of Paimon's, and rows that agree with the table."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from support.damage import edit_index
from support.data_evolution import evolving_table
from support.golden import golden_tables, table_name
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact as step
from paimon_orch.steps.maintenance.create_global_index import create_global_index
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.system_table import SYSTEM_TABLE_NAMES
from paimon_orch.table.table import Table

EXECUTOR = InProcessExecutor()
COLUMNS = {
    "snapshots": "snapshot_id schema_id commit_user commit_identifier commit_kind commit_time base_manifest_list"
    " delta_manifest_list changelog_manifest_list total_record_count delta_record_count "
    "changelog_record_count watermark",
    "schemas": "schema_id fields partition_keys primary_keys options comment update_time",
    "options": "key value",
    "tags": "tag_name snapshot_id schema_id commit_time record_count create_time time_retained",
    "manifests": "file_name file_size num_added_files num_deleted_files schema_id min_partition_stats"
    " max_partition_stats min_row_id max_row_id",
    "files": "partition bucket file_path file_format schema_id level record_count file_size_in_bytes min_key max_key"
    " null_value_counts min_value_stats max_value_stats min_sequence_number max_sequence_number "
    "creation_time deleteRowCount file_source first_row_id write_cols",
    "partitions": "partition record_count file_size_in_bytes file_count last_update_time created_at created_by"
    " updated_by options total_buckets done",
    "buckets": "partition bucket record_count file_size_in_bytes file_count last_update_time",
    "statistics": "snapshot_id schema_id mergedRecordCount mergedRecordSize colstat",
    "branches": "branch_name create_time",
    "consumers": "consumer_id next_snapshot_id",
    "aggregation_fields": "field_name field_type function function_options comment",
    "file_key_ranges": "partition bucket file_path file_format schema_id level record_count file_size_in_bytes min_key"
    " max_key first_row_id",
    "table_indexes": "partition bucket index_type file_name file_size row_count dv_ranges row_range_start"
    " row_range_end index_field_id index_field_name",
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with two snapshots, two partitions and one tag."""
    table = new_table(
        tmp_path, "p STRING, k BIGINT, v STRING", key=("p", "k"), partition_by=("p",), bucket="2"
    )
    table.upsert(table_of("p k v", [("a", k, "x") for k in range(8)] + [("b=/", 1, None)]))
    snapshot = table.snapshot()
    assert snapshot is not None
    values = json.loads(snapshot.to_json())
    values |= {"tagCreateTime": [2026, 1, 31, 12, 30], "tagTimeRetained": 86400.0}
    table.io.create(f"{table.paths.tag_dir}/tag-first", json.dumps(values).encode())
    table.delete(table_of("p k", [("a", 3)]))
    return table


def _rows(table: Table, name: str, **scan: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.system(name).scan(**scan).to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("name", COLUMNS)
def test_system_tables_have_the_columns_of_the_format(
    table: Table, name: str, tmp_path: Path
) -> None:
    assert table.system(name).scan().arrow_schema.names == COLUMNS[name].split()
    empty = Catalog(str(tmp_path)).create_table("db.empty", "k BIGINT").system(name).scan()
    assert empty.to_arrow().schema == table.system(name).scan().to_arrow().schema


def test_snapshots_are_listed_from_the_oldest(table: Table) -> None:
    rows = _rows(table, "snapshots")
    assert [(row["snapshot_id"], row["commit_kind"]) for row in rows] == [
        (1, "APPEND"),
        (2, "APPEND"),
    ]
    assert [row["total_record_count"] for row in rows] == [9, 10]
    times = [table.stores.snapshots.get(number).time_millis for number in (1, 2)]
    assert [row["commit_time"].astimezone().timestamp() * 1000 for row in rows] == pytest.approx(
        times
    )


def test_schemas_options_and_tags_equal_the_files(table: Table) -> None:
    (schema,) = _rows(table, "schemas")
    assert json.loads(schema["fields"])[1] == {"id": 1, "name": "k", "type": "BIGINT NOT NULL"}
    assert json.loads(schema["primary_keys"]) == ["p", "k"]
    assert {"key": "bucket", "value": "2"} in _rows(table, "options")
    (tag,) = _rows(table, "tags")
    assert (tag["tag_name"], tag["snapshot_id"], tag["record_count"]) == ("first", 1, 9)
    assert tag["create_time"] == datetime(2026, 1, 31, 12, 30)
    assert tag["time_retained"] == "PT24H"


def test_files_add_up_to_the_table(table: Table) -> None:
    files = _rows(table, "files")
    assert all(Path(row["file_path"]).stat().st_size == row["file_size_in_bytes"] for row in files)
    assert {row["partition"] for row in files} == {"{a}", "{b=/}"}
    assert sum(row["record_count"] for row in files) == 10
    assert {row["level"] for row in files} == {0}
    (file,) = [row for row in files if row["partition"] == "{b=/}"]
    assert (file["min_key"], file["max_key"]) == ("[1]", "[1]")
    assert file["null_value_counts"] == "{k=0, p=0, v=1}"
    assert file["min_value_stats"] == "{k=1, p=b=/, v=null}"
    assert (file["file_format"], file["file_source"], file["deleteRowCount"]) == (
        "parquet",
        "APPEND",
        0,
    )


def test_files_count_nulls_of_a_later_column(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT")
    table.upsert(table_of("k", [(1,), (2,)]))
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="late", type="INT")])
    (row,) = _rows(table, "files")
    assert row["null_value_counts"] == "{k=0, late=2}"


def test_partitions_and_buckets_aggregate_the_files(table: Table) -> None:
    files = _rows(table, "files")
    first, second = _rows(table, "partitions")
    assert [first["partition"], second["partition"]] == ["p=a", "p=b=/"]
    assert (first["record_count"], second["record_count"]) == (9, 1)
    assert first["file_count"] + second["file_count"] == len(files)
    assert first["total_buckets"] == 2
    buckets = _rows(table, "buckets")
    assert sum(row["file_size_in_bytes"] for row in buckets) == sum(
        row["file_size_in_bytes"] for row in files
    )
    assert [(row["partition"], row["bucket"]) for row in buckets[:2]] == [("p=a", 0), ("p=a", 1)]


def test_manifests_have_the_bounds_of_their_partitions(table: Table) -> None:
    rows = _rows(table, "manifests")
    assert [(row["min_partition_stats"], row["max_partition_stats"]) for row in rows] == [
        ("{a}", "{b=/}"),
        ("{a}", "{a}"),
    ]
    assert sum(row["num_added_files"] for row in rows) == len(_rows(table, "files"))


def test_branches_and_consumers_are_listed(table: Table) -> None:
    assert _rows(table, "branches") == []
    assert _rows(table, "consumers") == []
    table.branches.create("empty")
    table.branches.create("dev", tag="first")
    table.stores.open_consumers().record("reader", 2)
    names = [row["branch_name"] for row in _rows(table, "branches")]
    assert names == ["dev", "empty"]
    assert _rows(table, "consumers") == [{"consumer_id": "reader", "next_snapshot_id": 2}]


def test_consumers_include_expired_ones(tmp_path: Path) -> None:
    table = new_table(tmp_path, consumer__expiration_time="1 h")
    table.stores.open_consumers().record("old", 7)
    (file,) = (tmp_path / "db.db" / "t" / "consumer").iterdir()
    os.utime(file, (0, 0))
    assert table.stores.open_consumers().read_next_snapshots() == {}
    assert _rows(table, "consumers") == [{"consumer_id": "old", "next_snapshot_id": 7}]


def test_file_key_ranges_equal_the_files(table: Table) -> None:
    ranges = _rows(table, "file_key_ranges")
    columns = COLUMNS["file_key_ranges"].split()
    assert ranges == _rows(table, "files", columns=columns)
    assert {"[1]", "[7]"} <= {row["max_key"] for row in ranges}


def test_table_indexes_show_deletion_vectors(tmp_path: Path) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled="true")
    table.upsert(table_of("k v", [(k, "old") for k in range(9)]))
    step.compact(table, EXECUTOR, strategy="full")
    table.upsert(table_of("k v", [(1, "new"), (4, "new")]))
    step.compact(table, EXECUTOR, strategy="minor")
    (row,) = _rows(table, "table_indexes")
    assert (row["index_type"], row["row_count"], row["partition"]) == ("DELETION_VECTORS", 1, "{}")
    (item,) = row["dv_ranges"]
    files = {Path(file["file_path"]).name for file in _rows(table, "files")}
    assert item["f0"] in files
    assert item["_CARDINALITY"] == 2
    assert row["index_field_name"] is None


def test_table_indexes_show_all_columns_of_an_index(tmp_path: Path) -> None:
    table = evolving_table(tmp_path)
    table.append(table_of("a b c", [(1, 2, 3)]))
    create_global_index(table, "a")
    [plain] = _rows(table, "table_indexes")

    def add_columns(entries: list[IndexManifestEntry]) -> list[IndexManifestEntry]:
        [entry] = entries
        assert entry.global_index is not None
        index = replace(entry.global_index, extra_field_ids=(2, 1))
        return [replace(entry, global_index=index)]

    edit_index(table, 2, add_columns)
    [row] = _rows(table, "table_indexes")

    assert (plain["index_field_id"], plain["index_field_name"]) == (0, "a")
    assert (row["index_field_id"], row["index_field_name"]) == (0, "a,c,b")


def test_binlog_has_arrays_of_the_audit_log(table: Table) -> None:
    rows = _rows(table, "binlog", filter="rowkind = '-D'")
    assert rows == [{"rowkind": "-D", "p": ["a"], "k": [3], "v": [None]}]
    assert len(_rows(table, "binlog")) == len(_rows(table, "audit_log")) == 9
    assert _rows(table, "binlog", columns=["k"], limit=1, snapshot_id=1)[0].keys() == {"k"}
    with pytest.raises(InputError):
        _rows(table, "binlog", filter="k = 3")


def test_system_tables_support_time_travel(table: Table) -> None:
    assert sum(row["record_count"] for row in _rows(table, "files", tag="first")) == 9
    assert len(_rows(table, "manifests", snapshot_id=1)) == 1


def test_system_tables_support_columns_filter_and_limit(table: Table) -> None:
    request = {"columns": ["bucket"], "filter": "partition = '{a}' and level < 1", "limit": 1}
    assert _rows(table, "files", **request) in ([{"bucket": 0}], [{"bucket": 1}])
    with pytest.raises(NotFoundError):
        table.system("files").scan(["nothing"])


def test_audit_log_keeps_the_last_change_of_deleted_keys(table: Table) -> None:
    rows = _rows(table, "audit_log", filter="k >= 2 and k < 5")
    assert sorted((row["rowkind"], row["k"]) for row in rows) == [("+I", 2), ("+I", 4), ("-D", 3)]
    assert list(rows[0]) == ["rowkind", "p", "k", "v"]
    deleted = _rows(table, "audit_log", columns=["k"], filter="rowkind = '-D'")
    assert deleted == [{"k": 3}]


def test_audit_log_of_append_tables_has_inserts(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    assert _rows(table, "audit_log") == [{"rowkind": "+I", "k": 1, "v": "a"}]


def test_the_read_optimized_table_has_the_rows_of_the_last_full_compaction(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "old"), (2, "old")]))
    assert _rows(table, "ro") == []
    step.compact(table, EXECUTOR, strategy="full")
    table.upsert(table_of("k v", [(1, "new")]))
    assert _rows(table, "ro") == [{"k": 1, "v": "old"}, {"k": 2, "v": "old"}]
    assert _rows(table, "ro", filter="v = 'new'") == []


def test_the_catalog_opens_system_tables_by_name(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    assert catalog.open("db.t$snapshots").scan(["snapshot_id"]).to_arrow().num_rows == 2
    assert catalog.open("db.t").scan(["k"]).to_arrow().num_rows == 8
    with pytest.raises(NotFoundError, match="system table 'nothing'"):
        catalog.open("db.t$nothing")
    with pytest.raises(InputError):
        catalog.open("db.t$branch_x$files$files")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    ["alltypes_pk", "append_part_types", "branches", "tags", "pk_dv", "expired", "stats_modes"],
)
def test_every_system_table_of_golden_tables_is_read(name: str) -> None:
    for _, folder, entry in golden_tables():
        if folder.name == name:
            table = Catalog(str(folder / "warehouse")).open(table_name(entry))
            assert isinstance(table, Table)
            # The system table row_tracking requires a table option.
            for system in set(SYSTEM_TABLE_NAMES) - {"row_tracking"}:
                scan = table.system(system).scan()
                assert scan.to_arrow().schema == scan.arrow_schema


def test_polars_reads_a_scan(table: Table) -> None:
    frame = pl.DataFrame(pl.from_arrow(table.scan().to_reader()))
    assert frame.height == 8
    assert frame.filter(pl.col("k") > 5).height == 2


def test_duckdb_reads_a_scan(table: Table) -> None:
    rows = table.scan().to_reader()
    result = duckdb.from_arrow(rows).aggregate("count(*), max(k)").fetchall()
    assert result == [(8, 7)]


def test_pandas_reads_a_system_table(table: Table) -> None:
    frame = table.system("partitions").scan().to_pandas()
    assert list(frame["partition"]) == ["p=a", "p=b=/"]
    assert isinstance(table.system("files").scan().to_reader(), pa.RecordBatchReader)
