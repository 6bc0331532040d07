"""BinaryRow and bucket vectors, computed by an independent implementation and matched against Java."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.binary_row import deserialize_row, encode_row, serialize_row
from paimon_orch.format.bucket import buckets, hash_rows
from paimon_orch.format.statistics import truncate_max, truncate_min
from paimon_orch.format.types import AtomicType, DataType, MapType, parse_type

VECTORS = Path(__file__).parents[3] / "shared/format/vectors/binary_row.json"
pytestmark = pytest.mark.skipif(
    not VECTORS.exists(), reason=f"no vectors: ../{VECTORS.name} is missing"
)
DATA = json.loads(VECTORS.read_text()) if VECTORS.exists() else {"vectors": [], "truncateStats": []}
ROWS = [pytest.param(vector, id=vector["id"]) for vector in DATA["vectors"]]
TRUNCATED = [pytest.param(vector, id=vector["id"]) for vector in DATA["truncateStats"]]


def internal(value: Any, data_type: DataType) -> Any:
    """Turn a vector's JSON value into the internal value of the encoder."""
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


def decoded(vector: dict[str, Any]) -> tuple[list[DataType], list[Any]]:
    types = [parse_type(text) for text in vector["types"]]
    return types, [internal(v, t) for v, t in zip(vector["values"], types, strict=True)]


def arrow_column(value: Any, data_type: DataType) -> pa.Array:
    arrow = arrow_type(data_type)
    if isinstance(arrow, pa.TimestampType):
        return pa.array([value], pa.int64()).cast(arrow)
    if pa.types.is_date32(arrow) or pa.types.is_time32(arrow):
        return pa.array([value], pa.int32()).cast(arrow)
    return pa.array([value], arrow)


@pytest.mark.parametrize("vector", ROWS)
def test_rows_are_encoded_to_the_byte(vector: dict[str, Any]) -> None:
    types, values = decoded(vector)

    assert vector["rowHex"] == encode_row(values, types, vector["rowKind"]).hex()
    if vector["rowKind"] == 0:
        assert vector["serializedHex"] == serialize_row(values, types).hex()


@pytest.mark.parametrize(
    "vector", [row for row in ROWS if "<" not in "".join(row.values[0]["types"])]
)
def test_rows_of_simple_types_are_decoded(vector: dict[str, Any]) -> None:
    types, values = decoded(vector)

    assert tuple(values) == deserialize_row(bytes.fromhex(vector["serializedHex"]), types)


@pytest.mark.parametrize(
    "vector",
    [
        row
        for row in ROWS
        if row.values[0]["types"]
        and "<" not in "".join(row.values[0]["types"])
        and row.values[0]["rowKind"] == 0
    ],
)
def test_columns_hash_like_rows(vector: dict[str, Any]) -> None:
    types, values = decoded(vector)
    # a longer neighbour shows that rows of different length do not disturb each other
    columns = [
        pa.concat_arrays([arrow_column(v, t), arrow_column(None, t), arrow_column(v, t)])
        for v, t in zip(values, types, strict=True)
    ]

    hashes = hash_rows(columns, types)

    assert vector["murmurHash"] == hashes[0] == hashes[2]
    for count, bucket in vector["bucketDefault"].items():
        assert bucket == buckets(columns, types, int(count))[0]
    for count, bucket in vector.get("bucketMod", {}).items():
        assert bucket == buckets([columns[0].drop_null()], types, int(count), "mod")[0]


def test_long_and_short_strings_hash_together_as_alone() -> None:
    texts = ["", "a" * 7, "b" * 8, "c" * 9, None, "ü" * 40, "d" * 16]
    string = parse_type("STRING")

    together = hash_rows(
        [pa.array(texts), pa.array(range(7), pa.int32())], [string, parse_type("INT")]
    )

    alone = [
        hash_rows(
            [pa.array([text], pa.string()), pa.array([i], pa.int32())], [string, parse_type("INT")]
        )
        for i, text in enumerate(texts)
    ]
    np.testing.assert_array_equal(np.concatenate(alone), together)


@pytest.mark.parametrize("vector", TRUNCATED)
def test_statistics_are_truncated_as_java_does(vector: dict[str, Any]) -> None:
    source, length = bytes.fromhex(vector["sourceHex"]), vector["truncateLength"]
    value = source.decode() if vector["kind"] == "STRING" else source

    high = truncate_max(value, length)
    low = truncate_min(value, length) if high is not None else None

    as_bytes = [text.encode() if isinstance(text, str) else text for text in (low, high)]
    if vector["id"] == "last_cp_d7ff":  # Java stores "?", which is below the column's maximum
        assert (as_bytes[1] or b"") > source
        return
    assert [vector["min"], vector["max"]] == [b.hex() if b is not None else None for b in as_bytes]
