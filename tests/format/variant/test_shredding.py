"""Shredded VARIANT columns are assembled to the values that were shredded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shredding import MISSING, SHAPES, VALUES, Shredder, arrow_type, shred

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.variant.shredding import assemble_variants
from paimon_orch.format.variant.value import (
    decode_value,
    encode_names,
    encode_value,
    to_json_text,
)


def decoded(column: pa.StructArray) -> list[Any]:
    return [
        MISSING if item is None else decode_value(item["value"], item["metadata"])
        for item in column.to_pylist()
    ]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(VALUES | st.just(MISSING), max_size=6), SHAPES, st.integers(0, 2))
def test_the_shredded_values_are_assembled(values: list[Any], shape: Any, start: int) -> None:
    column = shred(values, shape).slice(start)

    assert repr(decoded(assemble_variants(column))) == repr(in_order(values[start:]))


def in_order(value: Any) -> Any:
    """Return a value whose objects are sorted by name."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": "x"},
        {"a": -129, "z": {"y": [1, 2]}, "b": None},
        {"a": "x" * 64, "b": "y" * 63},
        {"b": {f"n{n}": n for n in range(300)}},
        {"a": [1] * 300},
    ],
)
def test_the_bytes_are_those_of_the_value_that_was_shredded(value: dict[str, Any]) -> None:
    shape = {"a": int, "b": str}
    encoded = encode_value(value)
    column = shred([value], shape, names=list(_names(value)))
    [item] = assemble_variants(column).to_pylist()

    # the values of an object follow each other in another order
    assert to_json_text(item["value"], item["metadata"]) == to_json_text(*encoded)
    assert len(item["value"]) == len(encoded[0])


def _names(value: Any) -> dict[str, None]:
    shredder = Shredder()
    shredder.writer.encode(value, 0)
    return dict.fromkeys(shredder.writer.ids)


def test_names_that_the_metadata_lacks_are_added() -> None:
    values = [{"a": 1, "b": "x"}, {"b": "y"}, {"a": 300}]
    column = shred(values, {"a": int, "b": str}, names=["other"])

    assembled = assemble_variants(column)

    assert decoded(assembled) == values
    assert [item["metadata"] for item in assembled.to_pylist()] == [
        encode_names(["other", "a", "b"])
    ] * 3


@pytest.mark.parametrize(
    ("row", "shape", "reason"),
    [
        ({"metadata": None, "value": b"\0", "typed_value": None}, int, "no metadata"),
        ({"metadata": b"\x01\0\0", "value": None, "typed_value": None}, int, "missing"),
        ({"metadata": b"\x02\0\0", "value": b"\0", "typed_value": None}, int, "version"),
        (
            {"metadata": b"\x01\0\0", "value": b"\0\0", "typed_value": {"a": {"typed_value": 1}}},
            {"a": int},
            "no object",
        ),
        (
            {
                "metadata": encode_names(["a"]),
                "value": encode_value({"a": 2})[0],
                "typed_value": {"a": {"typed_value": 1}},
            },
            {"a": int},
            "twice",
        ),
        (
            {
                "metadata": encode_names([]),
                "value": encode_value({"a": 2})[0],
                "typed_value": {"b": {"typed_value": None}},
            },
            {"b": int},
            "name that its metadata",
        ),
        ({"metadata": b"\x01\0\0", "value": None, "typed_value": [{}]}, [int], "element"),
    ],
)
def test_columns_that_are_no_variants_are_refused(
    row: dict[str, Any], shape: Any, reason: str
) -> None:
    fields = [pa.field("metadata", pa.binary()), *arrow_type(shape)]

    with pytest.raises(ValueError, match=reason):
        assemble_variants(pa.array([row], pa.struct(fields)))


def test_other_types_are_refused_by_name() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("typed_value", pa.duration("s"))])

    with pytest.raises(UnsupportedError, match="duration"):
        assemble_variants(pa.array([{"metadata": b"\x01\0\0", "typed_value": 1}], kind))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_bytes_raise_value_errors_only(data: st.DataObject) -> None:
    values = [{"a": 5, "z": {"y": 1}, "é": [1]}, {"a": "no integer", "b": "x", "z": 1.5}]
    rows = shred(values, {"a": int, "b": str}).to_pylist()
    row = data.draw(st.sampled_from(rows))
    name = data.draw(st.sampled_from(["metadata", "value"]))
    part = bytearray(row[name] or b"")
    position, cut = data.draw(st.integers(0, len(part))), data.draw(st.integers(0, 4))
    part[position : position + cut] = data.draw(st.binary(max_size=4))
    row[name] = bytes(part)
    column = pa.array(rows, shred(values, {"a": int, "b": str}).type)
    try:
        assembled = assemble_variants(column)
        for item in assembled.to_pylist():
            to_json_text(item["value"], item["metadata"])
    except ValueError:
        return
