"""Bytes of single VARIANT values; PySpark's implementation wrote the expected bytes."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from paimon_orch.format.variant.value import (
    MAX_DEPTH,
    Single,
    Timestamp,
    decode_value,
    encode_value,
    parse_json,
    to_json_text,
)

# PySpark orders names by code points, and Java by UTF-16 code units
TEXTS = st.text(st.characters(codec="utf-8", max_codepoint=0xD7FF), max_size=70)
NUMBERS = (
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**38) + 1, 10**38 - 1)
)
JSON = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(JSON)
def test_json_is_encoded_as_pyspark_encodes_it(value: Any) -> None:
    text = json.dumps(value)
    expected = VariantVal.parseJson(text)

    assert parse_json(text) == (bytes(expected.value), bytes(expected.metadata))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("count", [0, 1, 255, 256, 70_000])
def test_long_arrays_and_objects_are_encoded_as_pyspark_encodes_them(count: int) -> None:
    for text in (json.dumps([7] * count), json.dumps({f"name {n}": n for n in range(count)})):
        expected = VariantVal.parseJson(text)
        assert parse_json(text) == (bytes(expected.value), bytes(expected.metadata))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"b":1,"a":[1.50,null,true]}', '{"a":[1.5,null,true],"b":1}'),
        ("1e300", "1.0E300"),
        ("12.5", "12.5"),
        ("-0.0", "0"),
        ("100.00", "100"),
        ("99999999999999999999", "99999999999999999999"),
        ("1" + "0" * 38, "1.0E38"),
        ('"日本 \\"q\\""', '"日本 \\"q\\""'),
    ],
)
def test_text_is_that_of_java(text: str, shown: str) -> None:
    assert to_json_text(*parse_json(text)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Single(0.5), "0.5"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        (b"\x00\xff", '"AP8="'),
        (date(2024, 2, 29), '"2024-02-29"'),
        (Timestamp(1_500_000, has_zone=True), '"1970-01-01 00:00:01.5+00:00"'),
        (Timestamp(-1, has_zone=False), '"1969-12-31 23:59:59.999999"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("-0.00000000000000000001"), "-0.00000000000000000001"),
    ],
)
def test_types_that_json_lacks_are_kept_and_shown_as_java_does(value: Any, shown: str) -> None:
    encoded = encode_value(value)

    assert to_json_text(*encoded) == shown
    assert repr(decode_value(*encoded)) == repr(value)


def test_a_float_has_the_text_of_32_bits() -> None:
    assert to_json_text(*encode_value(Single(0.1))) == "0.1"


def test_names_are_in_the_order_of_java() -> None:
    text = '{"\ue000":1,"\U00010000":2}'

    assert to_json_text(*parse_json(text)) == '{"\U00010000":2,"\ue000":1}'


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a":1,"a":2}', "[" * 1000 + "]" * 1000])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


SAMPLE = encode_value(
    {"a": [1, 300, 70_000, 1 << 40, 0.5, Single(2.5)], "b": {"c": "x" * 70, "d": b"12"},
     "e": [Decimal("1.5"), Decimal(10**17), Decimal(10**37), date(2020, 1, 1), True, None],
     "f": [Timestamp(5, has_zone=True), UUID(int=9)]}
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_bytes_raise_value_errors_only(data: st.DataObject) -> None:
    parts = [bytearray(part) for part in SAMPLE]
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(parts))
        position = data.draw(st.integers(0, max(0, len(part) - 1)))
        cut = data.draw(st.integers(0, 5))
        part[position : position + cut] = data.draw(st.binary(max_size=5))
    try:
        text = to_json_text(bytes(parts[0]), bytes(parts[1]))
    except ValueError:
        return
    assert isinstance(text, str)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes_raise_value_errors_only(value: bytes) -> None:
    try:
        to_json_text(value, SAMPLE[1])
    except ValueError:
        return


def test_offsets_that_repeat_bytes_do_not_need_exponential_time() -> None:
    # each array has two elements, which are the same inner array
    value = b"\x00"
    for _ in range(60):
        value = (
            b"\x0f\x02" + (0).to_bytes(4, "little") * 2 + len(value).to_bytes(4, "little") + value
        )
    with pytest.raises(ValueError, match="more values than bytes"):
        to_json_text(value, b"\x01\x00\x00")


def test_deep_values_are_refused() -> None:
    value = b"\x00"
    for _ in range(MAX_DEPTH + 1):
        value = b"\x0f\x01" + bytes(4) + len(value).to_bytes(4, "little") + value
    with pytest.raises(ValueError, match="nested more than"):
        to_json_text(value, b"\x01\x00\x00")
