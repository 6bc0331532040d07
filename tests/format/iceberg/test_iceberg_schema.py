"""Schemas and partition specs of Iceberg metadata equal those that Java Paimon wrote."""

from __future__ import annotations

import json

import pytest
from support.golden import GOLDEN
from support.iceberg_vectors import Vector, load_vectors, parse_schema

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.iceberg.iceberg_schema import (
    build_iceberg_schema,
    build_partition_avro_fields,
    build_partition_spec,
    compute_last_column_id,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.data_types import AtomicType, Field, parse_columns, parse_type

GOLDEN_METADATA = sorted(GOLDEN.glob("java-2.0/iceberg_*/warehouse/*/*/metadata/v*.metadata.json"))
TABLES = {table["table"]: table for table in load_vectors("iceberg_schemas", "tables")}
REFUSED_PARTITIONS = {"append_part_types", "part_decimal", "pk_part_types"}
OUR_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}


def schema_of(columns: str, partition_by: tuple[str, ...] = ()) -> TableSchema:
    return build_table_schema(parse_columns(columns), partition_by=partition_by)


def read_schemas(table: Vector) -> list[TableSchema]:
    return [parse_schema(content) for content in table["paimon"]]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_schemas_equal_those_of_java(name: str) -> None:
    table = TABLES[name]

    schemas = read_schemas(table)

    for schema, expected in zip(schemas, table["iceberg"], strict=True):
        actual = build_iceberg_schema(schema, table["format_version"])
        assert json.dumps(actual) == json.dumps(expected)  # the keys have the order of Java
    assert build_partition_spec(schemas[-1]) == table["partition_fields"]


@pytest.mark.parametrize("name", sorted(set(TABLES) - REFUSED_PARTITIONS))
def test_partition_records_equal_those_of_java_except_for_timestamps(name: str) -> None:
    table = TABLES[name]
    schema = read_schemas(table)[-1]
    expected = [
        replace_timestamp(field, schema.field(field["name"])) for field in table["partition_record"]
    ]

    assert build_partition_avro_fields(schema) == expected


@pytest.mark.parametrize("name", sorted(REFUSED_PARTITIONS))
def test_partition_columns_that_java_publishes_and_readers_misread_are_refused(name: str) -> None:
    schema = read_schemas(TABLES[name])[-1]

    with pytest.raises(UnsupportedError, match=r"partition column '(de|p)' has type DECIMAL"):
        build_partition_avro_fields(schema)


def replace_timestamp(avro_field: Vector, column: Field) -> Vector:
    """Return a field of Java with our type of timestamps.

    Java writes ``timestamp-millis`` for TIMESTAMP(3), which readers of Iceberg other than Java
    refuse, and no ``adjust-to-utc``, which the specification of Iceberg requires.
    """
    assert isinstance(column.type, AtomicType)
    if column.type.name != "TIMESTAMP":
        return avro_field
    unit = "millis" if column.type.params == (3,) else "micros"
    java = {"type": "long", "logicalType": f"timestamp-{unit}"}
    assert avro_field["type"] in (java, ["null", java])
    nullable = isinstance(avro_field["type"], list)
    return {**avro_field, "type": ["null", OUR_TIMESTAMP] if nullable else OUR_TIMESTAMP}


def test_golden_schemas_and_specs_equal_those_of_java() -> None:
    assert len(GOLDEN_METADATA) >= 5
    for path in GOLDEN_METADATA:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        for expected in metadata["schemas"]:
            file = path.parents[1] / "schema" / f"schema-{expected['schema-id']}"
            schema = TableSchema.from_json(file.read_bytes(), str(file))
            actual = build_iceberg_schema(schema, metadata["format-version"])
            assert json.dumps(actual) == json.dumps(expected)
            assert build_partition_spec(schema) == metadata["partition-specs"][0]["fields"]
        assert compute_last_column_id(schema) == metadata["last-column-id"]


def test_the_last_column_id_counts_fields_of_rows_at_any_depth() -> None:
    assert compute_last_column_id(schema_of("a INT, b ARRAY<INT>, c MULTISET<INT>")) == 2
    assert compute_last_column_id(schema_of("a MAP<INT, ARRAY<ROW<b INT, c INT>>>")) == 2
    assert compute_last_column_id(schema_of("a MAP<ROW<b INT, c MULTISET<ROW<d INT>>>, INT>")) == 3


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("TIMESTAMP(2)", "less than millisecond precision"),
        ("TIMESTAMP_LTZ(0)", "less than millisecond precision"),
        ("TIMESTAMP(7)", "nanosecond"),
        ("TIMESTAMP_LTZ(9)", "nanosecond"),
        ("TIME(4)", "TIME in milliseconds"),
    ],
)
def test_types_that_iceberg_lacks_are_refused_by_name(
    column: str, reason: str, format_version: int
) -> None:
    with pytest.raises(UnsupportedError, match=rf"column 'c' has type .*{reason}"):
        build_iceberg_schema(schema_of(f"id INT, c {column}"), format_version)


@pytest.mark.parametrize(
    ("column", "path"),
    [
        ("ARRAY<TIMESTAMP(9)>", "c.element"),
        ("MAP<TIME(9), INT>", "c.key"),
        ("MAP<INT, TIME(9)>", "c.value"),
        ("MULTISET<TIME(9)>", "c.key"),
        ("ROW<a INT, b ARRAY<ROW<d TIME(9)>>>", "c.b.element.d"),
    ],
)
def test_nested_types_that_iceberg_lacks_are_refused_by_their_path(column: str, path: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"column '{path}' has type "):
        build_iceberg_schema(schema_of(f"id INT, c {column}"), 2)


def test_field_ids_too_large_for_nested_ids_are_refused() -> None:
    field = Field(id=524288, name="c", type=parse_type("MAP<INT, INT>"))
    schema = TableSchema(
        id=0,
        fields=(field,),
        highest_field_id=field.id,
        partition_keys=(),
        primary_keys=(),
        options={},
    )

    with pytest.raises(UnsupportedError, match=r"column 'c' has the field id 524288"):
        build_iceberg_schema(schema, 2)


@pytest.mark.parametrize(
    "column",
    [
        "TIMESTAMP_LTZ(3)",
        "TIMESTAMP_LTZ(6)",
        "TIME(0)",
        "TIMESTAMP(9)",
        "DECIMAL(9, 2)",
        "BINARY(3)",
        "BYTES",
    ],
)
def test_partition_columns_that_readers_cannot_decode_are_refused(column: str) -> None:
    with pytest.raises(UnsupportedError, match=r"partition column 'p' has type "):
        build_partition_avro_fields(schema_of(f"id INT, p {column}", ("p",)))
