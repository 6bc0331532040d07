"""Avro files: the schema of Java Paimon, its root types, and the encoding of values."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.avro_reader import AvroFileReader, build_decimals
from paimon_orch.files.avro_writer import AvroFileWriter, build_avro_schema
from paimon_orch.format.row.binary_row import encode_minimal_int
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.format.types.data_types import parse_columns

ROOT = "org.apache.paimon.avro.generated.record"


def file_of(schema: Any, records: list[Any], codec: str = "null") -> io.BytesIO:
    data = io.BytesIO()
    fastavro.writer(data, schema, records, codec=codec)
    data.seek(0)
    return data


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("SMALLINT NOT NULL", "int"),
        ("INT", ["null", "int"]),
        ("CHAR(3)", ["null", "string"]),
        (
            "DECIMAL(9, 2) NOT NULL",
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        ),
        ("TIME(3) NOT NULL", {"type": "int", "logicalType": "time-millis"}),
        ("TIMESTAMP(3) NOT NULL", {"type": "long", "logicalType": "timestamp-millis"}),
        ("TIMESTAMP(6) NOT NULL", {"type": "long", "logicalType": "timestamp-micros"}),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE NOT NULL",
            {"type": "long", "logicalType": "local-timestamp-micros"},
        ),
        ("ARRAY<INT> NOT NULL", {"type": "array", "items": ["null", "int"]}),
        ("MAP<STRING, INT> NOT NULL", {"type": "map", "values": ["null", "int"]}),
    ],
)
def test_avro_types_equal_those_of_java(column: str, expected: Any) -> None:
    [field] = build_avro_schema(parse_columns(f"c {column}"))["fields"]
    assert field["type"] == expected
    assert ("default" in field) == isinstance(expected, list)


def test_records_are_named_after_their_column() -> None:
    schema = build_avro_schema(parse_columns("r ROW<x ROW<y INT>>, m MAP<INT, ROW<z INT>>"))
    row, mapping = (field["type"][1] for field in schema["fields"])
    assert schema["name"] == ROOT
    assert row["name"] == f"{ROOT}_r"
    assert row["fields"][0]["type"][1]["name"] == f"{ROOT}_r_x"
    assert (mapping["type"], mapping["logicalType"]) == ("array", "map")
    assert [field["name"] for field in mapping["items"]["fields"]] == ["key", "value"]


@pytest.mark.parametrize("nullable_root", [False, True])
def test_files_with_and_without_a_nullable_root_are_read(nullable_root: bool) -> None:
    fields = parse_columns("a INT, b STRING, r ROW<x TIMESTAMP(3)>")
    schema = build_avro_schema(fields)
    records = [{"a": i, "b": None, "r": {"x": i}} for i in range(5)]
    data = file_of(["null", schema] if nullable_root else schema, records)
    [batch] = AvroFileReader(data, fields).batches(["r", "a"], 100)
    assert batch.column("a").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.column("r").field("x").cast(pa.int64()).to_pylist() == [0, 1, 2, 3, 4]


def test_timestamps_keep_the_unit_of_the_file() -> None:
    fields = parse_columns("t TIMESTAMP(6)")
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    data = file_of(
        {"type": "record", "name": "r", "fields": [{"name": "t", "type": millis}]}, [{"t": 5}]
    )
    [batch] = AvroFileReader(data, fields).batches(["t"], 100)
    assert batch.column("t").type == pa.timestamp("ms")


def test_texts_keep_bytes_that_are_not_utf8() -> None:
    fields = parse_columns("s STRING")
    data = file_of(build_avro_schema(fields), [{"s": "a-valid"}, {"s": None}, {"s": "b-wrong"}])
    damaged = io.BytesIO(data.getvalue().replace(b"b-wrong", b"b-wr\xffng"))
    [batch] = AvroFileReader(damaged, fields).batches(["s"], 100)
    assert batch.column("s").type == pa.string()
    assert batch.column("s").view(pa.binary()).to_pylist() == [b"a-valid", None, b"b-wr\xffng"]


@pytest.mark.parametrize("batch_rows", [1, 7, 10_000])
def test_batches_can_span_several_blocks(batch_rows: int) -> None:
    fields = parse_columns("id INT NOT NULL, s STRING")
    table = pa.table([range(5000), ["x" * 40] * 5000], schema=to_arrow_schema(fields))
    sink = io.BytesIO()
    writer = AvroFileWriter(sink, fields, "none", 1)
    writer.write(table)
    writer.close()
    sink.seek(0)
    batches = list(AvroFileReader(sink, fields).batches(["id"], batch_rows))
    assert all(batch.num_rows == batch_rows for batch in batches[:-1])
    assert pa.Table.from_batches(batches).column("id").to_pylist() == list(range(5000))


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1)))
def test_decimals_of_any_length_are_decoded(numbers: list[int | None]) -> None:
    encoded = [None if number is None else encode_minimal_int(number) for number in numbers]
    decimals = build_decimals(encoded, pa.decimal128(38, 0))
    assert decimals.to_pylist() == [
        None if number is None else Decimal(number) for number in numbers
    ]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\0\x80"), (-128, b"\x80"), (-129, b"\xff\x7f")],
)
def test_decimals_are_encoded_in_the_fewest_bytes(number: int, expected: bytes) -> None:
    assert encode_minimal_int(number) == expected


@pytest.mark.parametrize("kind", ["TIMESTAMP(9)", "TIMESTAMP(7) WITH LOCAL TIME ZONE", "TIME(6)"])
def test_unsupported_time_precisions_are_refused_with_the_column(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=r"column 'r_x'.*Avro supports TIME with up to 3"):
        build_avro_schema(parse_columns(f"r ROW<x {kind}>"))


def test_blocks_without_selected_rows_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "record", "name": ROOT, "fields": [{"name": "k", "type": "int"}]}
    data = io.BytesIO()
    fastavro.writer(data, schema, [{"k": 2 * n} for n in range(3_000)], sync_interval=100)
    decoded = list[int]()
    decode: Any = fastavro.schemaless_reader

    def counted(*arguments: Any, **options: Any) -> Any:
        rows = decode(*arguments, **options)
        decoded.append(len(rows))
        return rows

    monkeypatch.setattr(fastavro, "schemaless_reader", counted)
    selected = np.array([5, 6, 1_000, 2_400, 2_401])
    reader = AvroFileReader(io.BytesIO(data.getvalue()), parse_columns("k INT"))

    results = list(reader.read_selected(["k"], 2, selected))

    assert [positions.tolist() for positions, _ in results] == [[5, 6], [1_000, 2_400], [2_401]]
    rows = [k for _, batch in results for k in batch.column("k").to_pylist()]
    assert rows == [10, 12, 2_000, 4_800, 4_802]
    assert 0 < sum(decoded) < 600
