"""Values in the forms of Iceberg metadata, as Java Paimon writes them."""

from __future__ import annotations

import io
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from support.iceberg_vectors import Vector, load_vectors, parse_schema

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.iceberg.iceberg_schema import build_partition_avro_fields
from paimon_orch.format.iceberg.single_value import (
    decode_partition_value,
    decode_single_value,
    encode_partition_value,
    encode_single_value,
)
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.text import decode_text
from paimon_orch.format.types.data_types import AtomicType, DataType, parse_type

PARTITIONED = load_vectors("iceberg_bounds", "partitions")
# DECIMAL and BYTES are refused as partition columns.
REFUSED_PARTITIONS = {"append_part_types", "part_bytes", "part_decimal", "pk_part_types"}
# The bytes are partition bounds of manifest lists that Java Paimon 2.0 wrote.
JAVA_BYTES: list[tuple[str, Any, str]] = [
    ("BOOLEAN", False, "00"),
    ("BOOLEAN", True, "01"),
    ("TINYINT", -5, "fbffffff"),
    ("SMALLINT", 5, "05000000"),
    ("INT", -5, "fbffffff"),
    ("BIGINT", 9007199254740993, "0100000000002000"),
    ("FLOAT", -0.5, "000000bf"),
    ("DOUBLE", 1e10, "000000205fa00242"),
    ("DECIMAL(10, 2)", Decimal("-0.01"), "ff"),
    ("DECIMAL(10, 2)", Decimal("12.30"), "04ce"),
    ("CHAR(3)", "abc", "616263"),
    ("STRING", "", ""),
    ("STRING", "a b/c=d%", "6120622f633d6425"),
    ("BYTES", b"\x0a\xff", "0aff"),
    ("DATE", -1, "ffffffff"),
    ("DATE", 19782, "464d0000"),
    ("TIME(3)", 3_723_004, "6088e8dd00000000"),
    ("TIMESTAMP(3)", -1, "18fcffffffffffff"),
    ("TIMESTAMP(3)", 1_704_164_645_123, "b8b34fc0ed0d0600"),
    ("TIMESTAMP(6)", 1_704_164_645_123_456, "80b54fc0ed0d0600"),
    ("TIMESTAMP_LTZ(6)", -1, "ffffffffffffffff"),
]


@pytest.mark.parametrize(("type_text", "value", "data"), JAVA_BYTES)
def test_bounds_have_the_bytes_of_java(type_text: str, value: Any, data: str) -> None:
    data_type = parse_type(type_text)

    assert encode_single_value(value, data_type).hex() == data
    assert decode_single_value(bytes.fromhex(data), data_type) == value


@pytest.mark.parametrize(
    ("type_text", "data", "value"),
    [("BIGINT", struct.pack("<i", -7), -7), ("DOUBLE", struct.pack("<f", 1.5), 1.5)],
)
def test_bounds_from_before_a_promotion_are_decoded(
    type_text: str, data: bytes, value: float
) -> None:
    assert decode_single_value(data, parse_type(type_text)) == value


@pytest.mark.parametrize("type_text", ["INT", "BIGINT", "FLOAT", "DOUBLE", "TIMESTAMP(3)", "DATE"])
def test_a_bound_of_another_size_is_refused(type_text: str) -> None:
    with pytest.raises(struct.error):
        decode_single_value(b"\0\0", parse_type(type_text))


def test_an_empty_decimal_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        decode_single_value(b"", parse_type("DECIMAL(10, 2)"))


@pytest.mark.parametrize("type_text", ["TIMESTAMP(9)", "TIMESTAMP_LTZ(7)", "ARRAY<INT>"])
def test_types_without_single_values_are_refused(type_text: str) -> None:
    with pytest.raises(UnsupportedError, match="Iceberg"):
        encode_single_value(1, parse_type(type_text))


def test_text_that_is_not_utf8_keeps_its_bytes() -> None:
    data_type = parse_type("STRING")

    assert encode_single_value(decode_text(b"\xff"), data_type) == b"\xff"


@pytest.mark.parametrize(
    ("type_text", "value", "expected"),
    [
        ("INT", None, None),
        ("INT", 5, 5),
        ("STRING", "a", "a"),
        ("DATE", 19782, 19782),
        ("TIMESTAMP(3)", -1, -1000),
        ("TIMESTAMP(6)", 17, 17),
    ],
)
def test_partition_values_are_what_the_avro_writer_stores(
    type_text: str, value: Any, expected: Any
) -> None:
    data_type = parse_type(type_text)

    assert encode_partition_value(value, data_type) == expected
    assert decode_partition_value(expected, data_type) == value


def test_a_partition_value_that_avro_cannot_store_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"b'a\\xff' is not valid UTF-8"):
        encode_partition_value(decode_text(b"a\xff"), parse_type("STRING"))


def decode_partitions(schema: TableSchema, rows: list[str]) -> list[tuple[Any, ...]]:
    types = [field.type for field in schema.partition_fields]
    return [deserialize_row(bytes.fromhex(row), types) for row in rows]


@pytest.mark.parametrize("table", PARTITIONED, ids=lambda table: str(table["table"]))
def test_summaries_of_partitions_equal_those_of_java(table: Vector) -> None:
    schema = parse_schema(table["schema"])

    for manifest in table["manifests"]:
        columns = zip(*decode_partitions(schema, manifest["partitions"]), strict=True)
        summaries = zip(schema.partition_fields, columns, manifest["summaries"], strict=True)
        for field, values, (contains_null, lower, upper) in summaries:
            known = [value for value in values if value is not None]
            assert contains_null is (None in values)
            assert encode_single_value(min(known), field.type).hex() == lower
            assert encode_single_value(max(known), field.type).hex() == upper
            assert decode_single_value(bytes.fromhex(lower), field.type) == min(known)
            assert decode_single_value(bytes.fromhex(upper), field.type) == max(known)


@pytest.mark.parametrize(
    "table",
    [table for table in PARTITIONED if table["table"] not in REFUSED_PARTITIONS],
    ids=lambda table: str(table["table"]),
)
def test_avro_readers_decode_the_values_that_were_written(table: Vector) -> None:
    schema = parse_schema(table["schema"])
    fields = schema.partition_fields
    record = {"type": "record", "name": "r102", "fields": build_partition_avro_fields(schema)}
    rows = [row for manifest in table["manifests"] for row in manifest["partitions"]]
    partitions = decode_partitions(schema, rows)
    stored = io.BytesIO()

    fastavro.writer(
        stored,
        record,
        [
            {f.name: encode_partition_value(v, f.type) for f, v in zip(fields, row, strict=True)}
            for row in partitions
        ],
    )

    stored.seek(0)
    assert list(fastavro.reader(stored)) == [
        {f.name: to_avro_value(v, f.type) for f, v in zip(fields, row, strict=True)}
        for row in partitions
    ]


def to_avro_value(value: Any, data_type: DataType) -> Any:
    """Return an internal value as an Avro reader returns it."""
    assert isinstance(data_type, AtomicType)
    if value is not None and data_type.name == "DATE":
        return date(1970, 1, 1) + timedelta(days=value)
    if value is not None and data_type.name == "TIMESTAMP":
        micros = value * (1_000 if data_type.params == (3,) else 1)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return value
