"""Null counts and bounds of data files in Iceberg manifests."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from support.iceberg_vectors import Vector, load_vectors, parse_schema

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.iceberg.iceberg_file_stats import FileBounds, FileBoundsBuilder
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.text import decode_text
from paimon_orch.format.types.data_types import AtomicType, TypeRoot, parse_columns

VECTORS = load_vectors("iceberg_bounds", "tables")
FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
NO_BOUNDS = FileBounds({}, {}, {})


def file_with(
    schema: TableSchema, *stats: ColumnStats, name: str = "data-1.parquet", **values: Any
) -> DataFileMeta:
    names = values.get("value_stats_cols") or schema.names
    types = [schema.field(column).type for column in names]
    value_stats = SimpleStats.of(stats, types)
    return DataFileMeta(file_name=name, file_size=1, row_count=9, value_stats=value_stats, **values)


def build_bounds(file: DataFileMeta, schema: TableSchema) -> FileBounds:
    return FileBoundsBuilder(schema).build(file)


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


def java_file(entry: Vector) -> DataFileMeta:
    """Return the metadata of a file that Java wrote."""
    columns = entry["value_stats_cols"]
    return DataFileMeta(
        file_name=entry["file_name"],
        file_size=1,
        row_count=entry["row_count"],
        schema_id=entry["schema_id"],
        value_stats=SimpleStats(
            bytes.fromhex(entry["min_values"]),
            bytes.fromhex(entry["max_values"]),
            tuple(entry["null_counts"]),
        ),
        value_stats_cols=None if columns is None else tuple(columns),
    )


def expected_bounds(entry: Vector, schema: TableSchema) -> FileBounds:
    """Return the bounds of Java without NaN, and with the signs of zeros that Iceberg requires."""
    java = entry["iceberg"]
    lower, upper = (
        {int(key): bytes.fromhex(value) for key, value in java[kind].items()}
        for kind in ("lower_bounds", "upper_bounds")
    )
    for field in schema.fields:
        is_float = isinstance(field.type, AtomicType) and field.type.name in FLOATS
        if not is_float or field.id not in lower:
            continue
        code = "<f" if len(lower[field.id]) == 4 else "<d"
        low, high = struct.unpack(code, lower[field.id])[0], struct.unpack(code, upper[field.id])[0]
        if math.isnan(low) or math.isnan(high):
            del lower[field.id], upper[field.id]
            continue
        lower[field.id] = struct.pack(code, low or -0.0)
        upper[field.id] = struct.pack(code, high or 0.0)
    counts = {int(key): count for key, count in java["null_value_counts"].items()}
    return FileBounds(counts, lower, upper)


@pytest.mark.parametrize("table", VECTORS, ids=lambda table: str(table["table"]))
def test_bounds_equal_those_of_java_except_for_nan_and_zeros(table: Vector) -> None:
    schemas = {schema.id: schema for schema in map(parse_schema, table["schemas"])}
    builders = {id_: FileBoundsBuilder(schema) for id_, schema in schemas.items()}
    assert table["files"]

    for entry in table["files"]:
        file, schema = java_file(entry), schemas[entry["schema_id"]]
        expected = expected_bounds(entry, schema)
        assert build_bounds(file, schema) == expected
        assert builders[schema.id].build(file) == expected


def test_the_vectors_contain_all_types_with_bounds_and_both_kinds_of_differences() -> None:
    types, differing = set(), 0
    for table in VECTORS:
        schemas = {schema.id: schema for schema in map(parse_schema, table["schemas"])}
        for entry in table["files"]:
            schema = schemas[entry["schema_id"]]
            ids = entry["iceberg"]["lower_bounds"]
            bounded = [field.type for field in schema.fields if str(field.id) in ids]
            types |= {kind.name for kind in bounded if isinstance(kind, AtomicType)}
            java = {int(k): bytes.fromhex(v) for k, v in ids.items()}
            differing += expected_bounds(entry, schema).lower_bounds != java

    assert types == set(TypeRoot) - {TypeRoot.BLOB}
    assert differing >= 3
