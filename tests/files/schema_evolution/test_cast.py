"""Casts of columns with a changed type have the same results as in Java.

`cast_vectors.json` contains the results of Java Paimon 0.9 in the time zone UTC. It omits:

- wrong results that newer releases corrected (dates and times of timestamps before 1970, integer
  overflows);
- strings of floating-point numbers that newer releases of Java print with fewer digits;
- timestamps outside the range of Arrow's nanoseconds.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.schema_evolution.cast import cast
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, TypeRoot, parse_type

VECTORS = json.loads(Path(__file__).with_name("cast_vectors.json").read_text(encoding="utf-8"))
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def test_a_fraction_needs_seconds_in_text_that_becomes_a_time() -> None:
    with pytest.raises(InputError, match=r"'10:30\.5' is not a TIME"):
        cast(
            pa.array(["10:30.5"]), parse_type("STRING"), AtomicType(name=TypeRoot.TIME, params=(3,))
        )


def build_column(values: list[Any], data_type: AtomicType) -> pa.Array:
    target = to_arrow_type(data_type)
    if not pa.types.is_temporal(target):
        return pa.array(values, target)
    return pa.array(values, pa.int32() if data_type.name in ("DATE", "TIME") else pa.int64()).view(
        target
    )


def internal_values(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int32())
    values = array.to_pylist()
    return [repr(value) for value in values] if pa.types.is_floating(kind) else values


def decode_value(text: str | None, data_type: AtomicType) -> Any:
    if text is None:
        return None
    match data_type.name:
        case "BOOLEAN":
            return text == "true"
        case "FLOAT" | "DOUBLE":
            return float(text)
        case "DECIMAL":
            return Decimal(text)
        case "CHAR" | "VARCHAR":
            return text
        case "BINARY" | "VARBINARY":
            return bytes.fromhex(text[2:])
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            millis, nanos = (int(part) for part in text.split("+"))
            return (millis * 10**6 + nanos) * PER_SECOND[to_arrow_type(data_type).unit] // 10**9
    return int(text)


def parse_atomic_type(text: str) -> AtomicType:
    parsed = parse_type(text)
    assert isinstance(parsed, AtomicType)
    return parsed


@pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda vector: f"{vector['from']} to {vector['to']}"
)
def test_cast_values_equal_those_of_java(vector: dict[str, Any]) -> None:
    old, new = parse_atomic_type(vector["from"]), parse_atomic_type(vector["to"])
    old_values = [None, *(decode_value(value, old) for value, _ in vector["values"])]
    new_values = [None, *(decode_value(value, new) for _, value in vector["values"])]
    result = cast(build_column(old_values, old), old, new)
    assert result.type == to_arrow_type(new)
    assert internal_values(result) == internal_values(build_column(new_values, new))
    assert (
        internal_values(cast(build_column(old_values, old).slice(1), old, new))
        == internal_values(build_column(new_values, new))[1:]
    )


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS if vector["errors"]],
    ids=lambda vector: f"{vector['from']} to {vector['to']}",
)
def test_values_that_java_refuses_are_refused(vector: dict[str, Any]) -> None:
    old, new = parse_atomic_type(vector["from"]), parse_atomic_type(vector["to"])
    for text in vector["errors"]:
        with pytest.raises(InputError, match="cannot be converted"):
            cast(build_column([decode_value(text, old)], old), old, new)


@pytest.mark.parametrize(
    ("old", "values", "texts"),
    [
        ("ARRAY<INT>", [[1, None], [], None], ["[1, null]", "[]", None]),
        ("MAP<STRING, DOUBLE>", [[("a", 1.0)], None], ["{a -> 1.0}", None]),
        ("ROW<a INT, b ROW<c DATE>>", [{"a": 1, "b": {"c": 0}}], ["{1, {1970-01-01}}"]),
        ("MULTISET<STRING>", [[("a", 2), ("b", 1)]], ["{a -> 2, b -> 1}"]),
    ],
)
def test_nested_values_are_cast_to_text(
    old: str, values: list[Any], texts: list[str | None]
) -> None:
    old_type = parse_type(old)
    array = pa.array(values, to_arrow_type(old_type))
    assert cast(array, old_type, parse_atomic_type("STRING")).to_pylist() == texts


@pytest.mark.parametrize("precision", [0, 3, 6, 9])
def test_timestamps_are_truncated_to_the_length_of_varchar(precision: int) -> None:
    old = parse_atomic_type(f"TIMESTAMP({precision})")
    result = cast(build_column([0, None], old), old, parse_atomic_type("VARCHAR(10)"))
    assert result.to_pylist() == ["1970-01-01", None]


def test_the_error_of_a_missing_cast_contains_both_types() -> None:
    with pytest.raises(UnsupportedError, match="type DATE cannot be read as BIGINT"):
        cast(pa.array([0], pa.date32()), parse_atomic_type("DATE"), parse_atomic_type("BIGINT"))
