"""Null counts and bounds of data files in Iceberg manifests."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_file_stats import FileBounds, build_bounds
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.format.schema import TableSchema, build_table_schema
from paimon_orch.format.text import decode_text
from paimon_orch.format.types.data_types import parse_columns

NO_BOUNDS = FileBounds({}, {}, {})


def file_with(
    schema: TableSchema, *stats: ColumnStats, name: str = "data-1.parquet", **values: Any
) -> DataFileMeta:
    names = values.get("value_stats_cols") or schema.names
    types = [schema.field(column).type for column in names]
    value_stats = SimpleStats.of(stats, types)
    return DataFileMeta(file_name=name, file_size=1, row_count=9, value_stats=value_stats, **values)


def schema_of(columns: str) -> TableSchema:
    return build_table_schema(parse_columns(columns))


def test_columns_have_their_counts_and_bounds_by_field_id() -> None:
    schema = schema_of("a INT, b STRING, c BIGINT, d DATE")
    stats = [ColumnStats(1, 2, 0), ColumnStats("x", "y", None), ColumnStats(None, None, 9)]

    bounds = build_bounds(file_with(schema, *stats, ColumnStats(None, 3, 1)), schema)

    assert bounds.null_value_counts == {0: 0, 2: 9, 3: 1}
    assert bounds.lower_bounds == {0: b"\1\0\0\0", 1: b"x"}
    assert bounds.upper_bounds == {0: b"\2\0\0\0", 1: b"y"}


def test_only_the_named_columns_have_statistics() -> None:
    schema = schema_of("a INT, b INT")
    dense = file_with(schema, ColumnStats(1, 2, 0), value_stats_cols=("b",))

    assert build_bounds(dense, schema) == FileBounds({1: 0}, {1: b"\1\0\0\0"}, {1: b"\2\0\0\0"})
    assert (
        build_bounds(
            DataFileMeta(file_name="f.parquet", file_size=1, row_count=1, value_stats_cols=()),
            schema,
        )
        == NO_BOUNDS
    )


@pytest.mark.parametrize("column", ["FLOAT", "DOUBLE"])
def test_bounds_are_never_nan_and_include_both_zeros(column: str) -> None:
    schema = schema_of(f"a {column}, b {column}")
    zeros, nan = ColumnStats(0.0, -0.0, 0), ColumnStats(1.0, float("nan"), 3)

    bounds = build_bounds(file_with(schema, zeros, nan), schema)

    size = 4 if column == "FLOAT" else 8
    assert bounds.lower_bounds == {0: bytes(size - 1) + b"\x80"}
    assert bounds.upper_bounds == {0: bytes(size)}
    assert bounds.null_value_counts == {0: 0, 1: 3}


@pytest.mark.parametrize(
    ("low", "high"), [("a", "b?"), (decode_text(b"\xff"), decode_text(b"\xff"))]
)
def test_text_bounds_that_readers_cannot_trust_are_omitted(low: str, high: str) -> None:
    schema = schema_of("a STRING")

    assert build_bounds(file_with(schema, ColumnStats(low, high, 1)), schema) == FileBounds(
        {0: 1}, {}, {}
    )


def test_char_has_no_bounds_in_orc_files() -> None:
    schema = schema_of("a CHAR(3)")
    stats = ColumnStats("a", "b", 0)

    assert build_bounds(file_with(schema, stats), schema).lower_bounds == {0: b"a"}
    assert build_bounds(file_with(schema, stats, name="d.orc"), schema).lower_bounds == {}


def test_statistics_of_another_number_of_columns_are_unknown() -> None:
    schema = schema_of("a INT, b INT")
    file = file_with(schema, ColumnStats(1, 2, 0), value_stats_cols=("b",))

    short = DataFileMeta(
        file_name="f.parquet", file_size=1, row_count=1, value_stats=file.value_stats
    )
    assert build_bounds(short, schema) == NO_BOUNDS


def test_damaged_statistics_name_the_file() -> None:
    schema = schema_of("a INT")
    stats = SimpleStats(b"\0\0\0\1", b"\0\0\0\1", (0,))
    file = DataFileMeta(file_name="f.parquet", file_size=1, row_count=1, value_stats=stats)

    with pytest.raises(CorruptFileError, match=r"f\.parquet: the statistics cannot be decoded"):
        build_bounds(file, schema)
