"""ANALYZE: statistics are correct, readable by other engines, and dropped when outdated."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.steps import run_units
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import CommitConflictError, InputError, NotFoundError
from paimon_orch.files.stats.analyze_columns import MAX_EXACT_DISTINCT, ColumnStatsBuilder
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.maintenance.analyze import ANALYZE, AnalyzeRequest, analyze, commit, plan
from paimon_orch.table.schema_change.schema_changes import AddColumn, RenameColumn, UpdateType
from paimon_orch.table.table import Table


def read_statistics(table: Table) -> dict[str, Any]:
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.statistics is not None
    path = Path(table.paths.statistics_dir) / snapshot.statistics
    value: dict[str, Any] = json.loads(path.read_bytes())
    return value


def test_visible_rows_are_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="2")
    table.upsert(table_of("k v", [(n, "a") for n in range(10)]))
    table.upsert(table_of("k v", [(n, "b") for n in range(5, 15)]))
    table.delete(table_of("k", [(0,)]))

    result = analyze(table, InProcessExecutor())

    snapshot = table.snapshot()
    assert snapshot is not None
    assert (result.snapshot_id, snapshot.commit_kind) == (4, CommitKind.ANALYZE)
    assert (snapshot.delta_record_count, snapshot.total_record_count) == (0, 21)
    statistics = read_statistics(table)
    size = sum(file.file_size for split in table.files() for file in split.files)
    assert statistics == {
        "snapshotId": 3,
        "schemaId": 0,
        "mergedRecordCount": 14,
        "mergedRecordSize": size * 14 // 21,
        "colStats": {},
    }
    assert len(rows_of(table)) == 14


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_row_counts_known_from_metadata_are_not_read(tmp_path: Path, vectors: str) -> None:
    table = new_table(tmp_path, deletion_vectors__enabled=vectors)
    table.upsert(table_of("k v", [(n, "a") for n in range(10)]))
    compact.compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(3, "b"), (20, "c")]))
    compact.compact(table, InProcessExecutor())

    planned = plan(table, AnalyzeRequest())

    assert (len(planned.units), planned.counted_rows) == ((0, 11) if vectors == "true" else (1, 0))
    result = analyze(table, InProcessExecutor())
    assert result.statistics is not None
    assert result.statistics.row_count == 11


def test_columns_have_statistics(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        "i INT, s STRING, d DECIMAL(20, 2), f DOUBLE, day DATE, at TIMESTAMP(9), b BOOLEAN, "
        "x VARBINARY(9), r ROW<y INT>, p STRING",
        partition_by=["p"],
    )
    nanos = pa.array([1_700_000_000_123_456_789, None, 5], pa.timestamp("ns"))
    rows = {
        "i": [3, None, 1],
        "s": ["bern", "zürich", None],
        "d": [Decimal("1.50"), Decimal("-2.00"), Decimal("1.50")],
        "f": [1.0, float("nan"), -0.5],
        "day": [dt.date(2024, 5, 14), dt.date(1969, 1, 1), None],
        "at": nanos,
        "b": [True, False, True],
        "x": [b"abc", b"\xff", b""],
        "r": [{"y": 1}] * 3,
        "p": ["a", "b", "a"],
    }
    table.append(pa.table(rows))

    analyze(table, InProcessExecutor(), columns=None)

    def figures(column: int, *values: object) -> dict[str, object]:
        names = ("distinctCount", "min", "max", "nullCount", "avgLen", "maxLen")
        pairs = zip(names, values, strict=True)
        return {"colId": column} | {name: value for name, value in pairs if value is not None}

    column_statistics = read_statistics(table)["colStats"]
    assert column_statistics == {
        "i": figures(0, 2, "1", "3", 1, 4, 4),
        "s": figures(1, 2, "bern", "zürich", 1, 5, 6),
        "d": figures(2, 2, "-2.00", "1.50", 0, 16, 16),
        "f": figures(3, 3, "-0.5", "NaN", 0, 8, 8),
        "day": figures(4, 2, "1969-01-01", "2024-05-14", 1, 4, 4),
        "at": figures(
            5, 2, "1970-01-01 00:00:00.000000005", "2023-11-14 22:13:20.123456789", 1, 8, 8
        ),
        "b": figures(6, 2, "false", "true", 0, 1, 1),
        "x": figures(7, 3, None, None, 0, 2, 3),
        "p": figures(10, 2, "a", "b", 0, 1, 1),
    }
    [shown] = table.system("statistics").scan().to_arrow().to_pylist()
    assert shown["mergedRecordCount"] == 3
    assert json.loads(shown["colstat"]) == column_statistics


FIXED_WIDTHS = {
    "BOOLEAN": 1,
    "TINYINT": 1,
    "SMALLINT": 2,
    "INT": 4,
    "BIGINT": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
    "DATE": 4,
    "TIME": 4,
    "TIMESTAMP(3)": 8,
    "TIMESTAMP_LTZ(6)": 8,
}


def test_columns_of_a_fixed_width_have_it_as_length(tmp_path: Path) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(FIXED_WIDTHS))
    table = new_table(tmp_path, columns, key=(), bucket="-1")
    table.append(pa.table({f"c{n}": pa.nulls(1) for n in range(len(FIXED_WIDTHS))}))

    planned = plan(table, AnalyzeRequest())
    analyze(table, InProcessExecutor(), columns=None)

    assert planned.to_dict()["snapshot_id"] == 1
    statistics = read_statistics(table)["colStats"]
    for n, width in enumerate(FIXED_WIDTHS.values()):
        assert (statistics[f"c{n}"]["avgLen"], statistics[f"c{n}"]["maxLen"]) == (width, width)


def test_only_the_named_columns_are_read(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v STRING, r ROW<x INT>")
    table.upsert(pa.table({"k": [1], "v": ["a"], "r": [{"x": 1}]}))

    statistics = analyze(table, InProcessExecutor(), columns=["v"]).statistics
    assert statistics is not None
    assert list(statistics.columns) == ["v"]
    with pytest.raises(InputError, match="'r' is ROW<x INT>: nested"):
        plan(table, AnalyzeRequest(columns=["r"]))
    with pytest.raises(NotFoundError, match="zz"):
        plan(table, AnalyzeRequest(columns=["zz"]))
    assert [column.name for column in plan(table, AnalyzeRequest(columns=None)).columns] == [
        "k",
        "v",
    ]


def test_a_table_without_rows_has_statistics_and_one_without_snapshot_has_none(
    tmp_path: Path,
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    assert analyze(table, InProcessExecutor(), columns=None).to_dict() == {
        "snapshot_id": None,
        "statistics": {},
    }
    table.append(table_of("k v", [(1, "a")]))
    table.truncate()
    analyze(table, InProcessExecutor(), columns=None)

    statistics = read_statistics(table)
    assert (statistics["mergedRecordCount"], statistics["mergedRecordSize"]) == (0, 0)
    empty = {"distinctCount": 0, "nullCount": 0}
    assert statistics["colStats"] == {
        "k": {"colId": 0, "avgLen": 8, "maxLen": 8} | empty,
        "v": {"colId": 1, "avgLen": 0, "maxLen": 0} | empty,
    }


def test_statistics_are_kept_until_the_schema_changes(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    analyze(table, InProcessExecutor())
    first = table.snapshot()
    assert first is not None
    appended = table.append(table_of("k v", [(2, "b")]))
    assert appended is not None
    assert appended.statistics == first.statistics

    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="n", type="INT")])
    dropped = table.append(table_of("k v n", [(3, "c", 1)]))

    assert dropped is not None
    assert dropped.statistics is None
    assert table.system("statistics").scan().to_arrow().num_rows == 0
    assert table.system("statistics").scan(snapshot_id=3).to_arrow().num_rows == 1


def test_statistics_have_the_columns_of_the_newest_schema(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, a INT, b INT", key=(), bucket="-1")
    table.append(table_of("k a b", [(1, 20, 300), (1, 40, 300)]))
    swap = [RenameColumn("a", "c"), RenameColumn("b", "a"), RenameColumn("c", "b")]
    added = AddColumn(column="n", type="INT")
    Catalog(str(tmp_path)).alter_table("db.t", [*swap, UpdateType("a", "STRING"), added])

    statistics = analyze(table, InProcessExecutor(), columns=None).statistics

    assert statistics is not None
    columns = statistics.columns
    assert (columns["a"].min, columns["a"].max) == ("300", "300")
    assert (columns["b"].min, columns["b"].max) == ("20", "40")
    assert columns["n"].null_count == 2


def test_a_concurrent_schema_change_is_a_conflict(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    planned = plan(table, AnalyzeRequest(columns=None))
    results = run_units(ANALYZE, table, planned)
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="n", type="INT")])
    before = stored_files(table)

    with pytest.raises(CommitConflictError, match="analyze again"):
        commit(table, planned, results)

    assert stored_files(table) == before


VALUES = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "STRING": st.text(max_size=4),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(38, 3)": st.decimals(-(10**30), 10**30, places=3),
    "TIMESTAMP(6)": st.datetimes(),
    "BYTES": st.binary(max_size=3),
}


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(sorted(VALUES)))
def test_merged_statistics_equal_the_statistics_of_all_rows(data: st.DataObject, kind: str) -> None:
    [column] = parse_columns(f"c {kind}")
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=20))
    cut = data.draw(st.integers(0, len(values)))
    target = to_arrow_type(column.type)
    of_all_rows, merged = ColumnStatsBuilder(column), ColumnStatsBuilder(column)
    of_all_rows.add(pa.array(values, target))
    for rows in (values[:cut], values[cut:]):
        part = ColumnStatsBuilder(column)
        part.add(pa.array(rows, target))
        merged.merge(ColumnStatsBuilder.decode(column, part.encode()))

    assert merged.build() == of_all_rows.build()
    not_null = [value for value in values if value is not None]
    assert of_all_rows.distinct_count == len(set(not_null))
    assert of_all_rows.null_count == len(values) - len(not_null)


def test_many_distinct_values_are_estimated_in_bounded_memory() -> None:
    [column] = parse_columns("c BIGINT")
    builder = ColumnStatsBuilder(column)
    for start in range(0, 1_000_000, 100_000):
        builder.add(pa.array(range(start, start + 100_000)))

    assert len(builder.encode()) < 8 * MAX_EXACT_DISTINCT * 4 / 3 + 2_000
    assert abs(builder.distinct_count - 1_000_000) < 20_000


@pytest.mark.parametrize("count", [1, 1_000, MAX_EXACT_DISTINCT])
def test_distinct_values_are_counted_exactly_up_to_the_limit(count: int) -> None:
    [column] = parse_columns("c BIGINT")
    builder = ColumnStatsBuilder(column)
    for start in range(0, count, 10_000):
        builder.add(pa.array(range(start, min(count, start + 10_000))))
    builder.add(pa.array([0, None], pa.int64()))

    assert builder.distinct_count == count
    assert ColumnStatsBuilder.decode(column, builder.encode()).distinct_count == count
