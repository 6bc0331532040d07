"""Parquet files have the same physical types, repetition and field ids as those of Java."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_orch.files.parquet.int96 import encode_int96
from paimon_orch.files.parquet.parquet import ParquetFileWriter
from paimon_orch.format.schema_definition import assign_field_ids
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import parse_columns

NANOS = [0, 1, -1, None, 1_700_000_000_123_456_789, -(2**63), 2**63 - 1]


def write_file(columns: str, *tables: list[Any]) -> pq.ParquetFile:
    fields, _ = assign_field_ids(parse_columns(columns))
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, fields, "zstd", 1)
    for table in tables:
        writer.write(pa.table(table, schema=to_arrow_schema(fields)))
    writer.close()
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def physical_types(file: pq.ParquetFile) -> dict[str, str]:
    schema = file.schema
    return {schema.column(i).path: schema.column(i).physical_type for i in range(len(schema))}


def test_each_timestamp_has_the_physical_type_of_its_precision() -> None:
    file = write_file(
        "a TIMESTAMP(3), b TIMESTAMP(6), c TIMESTAMP(9), d TIMESTAMP(9) WITH LOCAL TIME ZONE",
        [
            [value and value // 10**6 for value in NANOS],
            [value and value // 10**3 for value in NANOS],
            NANOS,
            NANOS,
        ],
    )
    assert physical_types(file) == {"a": "INT64", "b": "INT64", "c": "INT96", "d": "INT96"}
    table = file.read()
    assert table.column("c").cast(pa.int64()).to_pylist() == NANOS
    assert table.column("d").cast(pa.int64()).to_pylist() == NANOS


def test_nested_nanosecond_timestamps_are_int96_and_long_decimals_are_fixed_length_bytes() -> None:
    columns = "a ARRAY<TIMESTAMP(9)>, m MAP<STRING, ROW<x TIMESTAMP(9)>>, d DECIMAL(28, 0), i INT"
    rows: list[Any] = [[[1, None], None], [[("k", {"x": -1})], [("k", None)]], [1, None], [1, 2]]
    file = write_file(columns, rows, rows)
    assert physical_types(file) == {
        "a.list.element": "INT96",
        "m.key_value.key": "BYTE_ARRAY",
        "m.key_value.value.x": "INT96",
        "d": "FIXED_LEN_BYTE_ARRAY",
        "i": "INT32",
    }
    assert file.metadata.num_row_groups == 2
    types = [file.metadata.row_group(1).column(i).physical_type for i in range(5)]
    assert types == ["INT96", "BYTE_ARRAY", "INT96", "FIXED_LEN_BYTE_ARRAY", "INT32"]
    assert file.read().column("a").cast(pa.list_(pa.int64())).to_pylist() == [[1, None], None] * 2


def test_int96_columns_have_no_statistics_and_other_columns_have_statistics() -> None:
    file = write_file("a TIMESTAMP(9), b ARRAY<INT>", [[1, 2], [[1], [2, 3]]])
    statistics = [file.metadata.row_group(0).column(i).statistics for i in range(2)]
    assert statistics[0] is None
    assert (statistics[1].min, statistics[1].max) == (1, 3)


def test_int96_consists_of_nanoseconds_of_the_day_and_the_julian_day() -> None:
    encoded = encode_int96(pa.array([0, -1, None], pa.timestamp("ns"))).to_pylist()
    day = 86_400 * 10**9
    assert encoded == [
        (0).to_bytes(8, "little") + (2_440_588).to_bytes(4, "little"),
        (day - 1).to_bytes(8, "little") + (2_440_587).to_bytes(4, "little"),
        None,
    ]


def test_elements_and_map_values_are_optional_even_if_not_null() -> None:
    file = write_file(
        "a ARRAY<INT NOT NULL> NOT NULL, m MULTISET<STRING>", [[[1], []], [[("k", 1)], None]]
    )
    text = str(file.schema)
    assert "required group field_id=0 a (List)" in text
    assert "optional int32 field_id=536870912 element" in text
    assert "optional int32 field_id=536871936 value" in text


def test_short_decimals_are_integers_and_long_decimals_have_no_dictionary() -> None:
    columns = "a DECIMAL(9, 2), b DECIMAL(18, 2), c DECIMAL(20, 2), s STRING"
    file = write_file(columns, [[None] * 50, [1] * 50, [1] * 50, ["x"] * 50])
    assert list(physical_types(file).values())[:3] == ["INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"]
    group = file.metadata.row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(1, 4)] == [True, False, True]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_fields_have_the_ids_of_the_schema(rows: int) -> None:
    file = write_file("a INT, r ROW<x INT, y STRING>", [[1] * rows, [{"x": 1, "y": "a"}] * rows])
    text = str(file.schema)
    for part in ("field_id=0 a", "field_id=1 r", "field_id=2 x", "field_id=3 y"):
        assert part in text


def test_files_for_iceberg_have_no_bounds_and_dictionaries_of_milliseconds() -> None:
    fields, _ = assign_field_ids(
        parse_columns("a TIMESTAMP(3), b TIMESTAMP(6), r ROW<x TIMESTAMP_LTZ(3), y INT>")
    )
    sink = io.BytesIO()
    writer = ParquetFileWriter(sink, fields, "zstd", 1, for_iceberg=True)
    rows: list[Any] = [[1_000] * 100, [1_000] * 100, [{"x": 1_000, "y": 1}] * 100]
    writer.write(pa.table(rows, schema=to_arrow_schema(fields)))
    writer.close()
    group = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema: column.is_stats_set for column in columns} == {
        "a": False,
        "b": True,
        "r.x": False,
        "r.y": True,
    }
    dictionaries = [c.path_in_schema for c in columns if c.has_dictionary_page]
    assert dictionaries == ["b"]
