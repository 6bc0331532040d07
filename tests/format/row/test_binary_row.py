"""BinaryRow and bucket vectors of an independent implementation, checked against Java."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.packed_data import data_file

from paimon_orch.errors import InputError
from paimon_orch.format.bucket.bucket_function import compute_buckets, hash_rows
from paimon_orch.format.bucket.hive_hash import hash_rows_hive
from paimon_orch.format.row.binary_row import deserialize_row, encode_row, serialize_row
from paimon_orch.format.row.stats_mode import truncate_max, truncate_min
from paimon_orch.format.schema_definition import build_table_schema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import (
    AtomicType,
    DataType,
    MapType,
    parse_columns,
    parse_type,
)

DATA = json.loads(data_file("vectors/binary_row.json"))
VECTOR_ROWS: list[dict[str, Any]] = DATA["vectors"]
TRUNCATED = [pytest.param(vector, id=vector["id"]) for vector in DATA["truncateStats"]]


def name_of(vector: dict[str, Any]) -> str:
    return str(vector["id"])


def internal(value: Any, data_type: DataType) -> Any:
    """Convert a JSON value of a vector into an internal value."""
    if isinstance(data_type, MapType) and value is not None:
        return list(zip(value["keys"], value["values"], strict=True))
    if not isinstance(value, dict):
        return value
    if "epochMillis" in value:
        assert isinstance(data_type, AtomicType)
        precision = data_type.params[0]
        nanos = value["epochMillis"] * 10**6 + value["nanoOfMillisecond"]
        return (
            nanos // {3: 10**6, 6: 10**3, 9: 1}[3 if precision <= 3 else 6 if precision <= 6 else 9]
        )
    if "decimal" in value:
        return Decimal(value["decimal"])
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    return next(iter(value.values()))


def decode_vector(vector: dict[str, Any]) -> tuple[list[DataType], list[Any]]:
    types = [parse_type(text) for text in vector["types"]]
    return types, [internal(v, t) for v, t in zip(vector["values"], types, strict=True)]


def arrow_column(value: Any, data_type: DataType) -> pa.Array:
    arrow = to_arrow_type(data_type)
    if isinstance(arrow, pa.TimestampType):
        return pa.array([value], pa.int64()).cast(arrow)
    if pa.types.is_date32(arrow) or pa.types.is_time32(arrow):
        return pa.array([value], pa.int32()).cast(arrow)
    return pa.array([value], arrow)


@pytest.mark.parametrize("vector", VECTOR_ROWS, ids=name_of)
def test_rows_are_encoded_byte_for_byte(vector: dict[str, Any]) -> None:
    types, values = decode_vector(vector)

    assert vector["rowHex"] == encode_row(values, types, vector["rowKind"]).hex()
    if vector["rowKind"] == 0:
        assert vector["serializedHex"] == serialize_row(values, types).hex()


@pytest.mark.parametrize(
    "vector", [row for row in VECTOR_ROWS if "<" not in "".join(row["types"])], ids=name_of
)
def test_rows_of_simple_types_are_decoded(vector: dict[str, Any]) -> None:
    types, values = decode_vector(vector)

    assert tuple(values) == deserialize_row(bytes.fromhex(vector["serializedHex"]), types)


@pytest.mark.parametrize(
    "vector",
    [
        row
        for row in VECTOR_ROWS
        if row["types"] and "<" not in "".join(row["types"]) and row["rowKind"] == 0
    ],
    ids=name_of,
)
def test_columns_have_the_same_hashes_as_rows(vector: dict[str, Any]) -> None:
    types, values = decode_vector(vector)
    # A null between the two values makes the lengths of the rows differ.
    columns = [
        pa.concat_arrays([arrow_column(v, t), arrow_column(None, t), arrow_column(v, t)])
        for v, t in zip(values, types, strict=True)
    ]

    hashes = hash_rows(columns, types)

    assert vector["murmurHash"] == hashes[0] == hashes[2]
    for count, bucket in vector["bucketDefault"].items():
        assert bucket == compute_buckets(columns, types, int(count))[0]
    for count, bucket in vector.get("bucketMod", {}).items():
        assert bucket == compute_buckets([columns[0].drop_null()], types, int(count), "mod")[0]


@pytest.mark.parametrize(
    "vector",
    [row for row in VECTOR_ROWS if row.get("bucketHive") is not None and row["types"]],
    ids=name_of,
)
def test_columns_have_the_same_bucket_as_in_hive(vector: dict[str, Any]) -> None:
    types, values = decode_vector(vector)
    columns = [
        pa.concat_arrays([arrow_column(None, t), arrow_column(v, t), arrow_column(v, t)]).slice(1)
        for v, t in zip(values, types, strict=True)
    ]

    for count, bucket in vector["bucketHive"].items():
        assert compute_buckets(columns, types, int(count), "hive").tolist() == [bucket, bucket]


def test_timestamps_have_no_hive_bucket() -> None:
    moment = parse_type("TIMESTAMP(3)")

    with pytest.raises(InputError, match="timestamp"):
        compute_buckets([arrow_column(1, moment)], [moment], 4, "hive")
    with pytest.raises(InputError, match="timestamp"):
        build_table_schema(
            parse_columns("k TIMESTAMP(3)"),
            primary_key=["k"],
            options={"bucket": "4", "bucket-function.type": "hive"},
        )


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=9)), min_size=1),
    st.lists(st.one_of(st.none(), st.decimals(-(10**14) + 1, 10**14 - 1, places=4)), min_size=1),
)
def test_hive_hashes_of_a_batch_equal_hashes_of_single_rows(
    texts: list[str | None], numbers: list[Decimal | None]
) -> None:
    string, short, long = (parse_type(t) for t in ("STRING", "DECIMAL(18, 4)", "DECIMAL(38, 4)"))
    length = min(len(texts), len(numbers))
    columns = [
        pa.array(values[:length], to_arrow_type(kind))
        for values, kind in ((texts, string), (numbers, short))
    ]

    together = hash_rows_hive(columns, [string, short])

    single = [
        hash_rows_hive([column.slice(i, 1) for column in columns], [string, short])[0]
        for i in range(length)
    ]
    assert together.tolist() == single
    wide = [columns[0], pa.array(numbers[:length], to_arrow_type(long))]
    assert together.tolist() == hash_rows_hive(wide, [string, long]).tolist()


def test_hashes_do_not_depend_on_other_strings_of_the_batch() -> None:
    texts = ["", "a" * 7, "b" * 8, "c" * 9, None, "ü" * 40, "d" * 16]
    string = parse_type("STRING")

    together = hash_rows(
        [pa.array(texts), pa.array(range(7), pa.int32())], [string, parse_type("INT")]
    )

    single = [
        hash_rows(
            [pa.array([text], pa.string()), pa.array([i], pa.int32())], [string, parse_type("INT")]
        )
        for i, text in enumerate(texts)
    ]
    np.testing.assert_array_equal(np.concatenate(single), together)


@pytest.mark.parametrize("vector", TRUNCATED)
def test_statistics_are_truncated_as_in_java(vector: dict[str, Any]) -> None:
    source, length = bytes.fromhex(vector["sourceHex"]), vector["truncateLength"]
    value: Any = source.decode() if vector["kind"] == "STRING" else source

    high = truncate_max(value, length)
    low = truncate_min(value, length) if high is not None else None

    as_bytes = [text.encode() if isinstance(text, str) else text for text in (low, high)]
    if vector["id"] == "last_cp_d7ff":  # Java stores "?", which is below the column's maximum
        assert (as_bytes[1] or b"") > source
        return
    assert [vector["min"], vector["max"]] == [b.hex() if b is not None else None for b in as_bytes]
