"""Shredded VARIANT columns are assembled to the values that were shredded."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shredding import MISSING, SHAPES, VALUES, Shredder, arrow_type, shred

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.variant import shredding
from paimon_orch.format.variant.shredding import assemble_variants, check_variants
from paimon_orch.format.variant.value import (
    Single,
    Timestamp,
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


@pytest.mark.slow
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
        {"a": 1} | {f"n{n}": n for n in range(254)},
        {"a": 1} | {f"n{n}": n for n in range(255)},
        *({"a": 1, "b": "x" * (size - 7)} for size in (255, 256, 65_535, 65_536)),
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


@pytest.mark.parametrize(("count", "width"), [(255, 1), (256, 2), (65_536, 3)])
def test_ids_of_names_have_the_width_of_the_largest_id(count: int, width: int) -> None:
    names = [*(f"n{number}" for number in range(count)), "a"]
    column = shred([{"a": 1, "n0": 2}, {"n0": 3}], {"a": int}, names=names)

    assembled = assemble_variants(column)

    assert decoded(assembled) == [{"a": 1, "n0": 2}, {"n0": 3}]
    with_short_ids = encode_value({"a": 1, "n0": 2})[0]
    assert len(assembled[0]["value"].as_py()) == len(with_short_ids) + 2 * (width - 1)


def test_a_column_of_more_bytes_than_arrow_can_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    column = shred([1, 2, 3], int)  # a value has two bytes
    monkeypatch.setattr(shredding, "_MAX_COLUMN_BYTES", 6)
    assert decoded(assemble_variants(column)) == [1, 2, 3]

    monkeypatch.setattr(shredding, "_MAX_COLUMN_BYTES", 5)
    with pytest.raises(UnsupportedError, match="more than 2 GB; read fewer rows"):
        assemble_variants(column)


@pytest.mark.parametrize(
    ("metadata", "value", "reason"),
    [
        (b"\x02\0\0", b"\0", "no version 1"),
        (b"", b"\0", "no version 1"),
        (b"\x01\0\0", b"", "no bytes"),
    ],
)
def test_values_without_bytes_and_other_versions_are_refused(
    metadata: bytes, value: bytes, reason: str
) -> None:
    kind = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    valid = {"metadata": b"\x11\0\0", "value": b"\0"}
    check_variants(pa.array([valid, None], kind))

    with pytest.raises(ValueError, match=reason):
        check_variants(pa.array([valid, None, {"metadata": metadata, "value": value}], kind))


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


def test_null_rows_of_a_column_that_is_not_shredded_need_no_value() -> None:
    fields = [pa.field("metadata", pa.binary()), pa.field("value", pa.binary())]
    parts = [pa.array([part, None, part]) for part in (encode_names([]), encode_value(7)[0])]
    mask = pa.array([False, True, False])

    assembled = assemble_variants(pa.StructArray.from_arrays(parts, fields=fields, mask=mask))

    assert decoded(assembled) == [7, MISSING, 7]
    assert [assembled.field(number).null_count for number in (0, 1)] == [0, 0]


@pytest.mark.parametrize("missing", ["metadata", "value"])
def test_a_value_that_is_not_shredded_needs_metadata_and_a_value(missing: str) -> None:
    item = {"metadata": encode_names([]), "value": encode_value(7)[0], missing: None}
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])

    with pytest.raises(ValueError, match="a value or its metadata is missing"):
        assemble_variants(pa.array([None, item], kind))


UUIDS = [UUID(int=1), UUID("00112233-4455-6677-8899-aabbccddeeff")]
EDGES = [sign * (1 << bits) + more for bits in (0, 7, 15, 31) for sign in (1, -1) for more in (-1, 0)]  # fmt: skip
DIGITS = [10**digits - less for digits in (1, 9, 18) for less in (0, 1)]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([True, False]), [True, False]),
        (pa.array([-128, 127], pa.int8()), [-128, 127]),
        (pa.array([-32768, 127], pa.int16()), [-32768, 127]),
        (pa.array([-(1 << 31), 128], pa.int32()), [-(1 << 31), 128]),
        (pa.array(EDGES), EDGES),
        (pa.array([1.5, -0.0], pa.float32()), [Single(1.5), Single(-0.0)]),
        (pa.array([1.5, -0.0]), [1.5, -0.0]),
        (pa.array([-1, 20000], pa.date32()), [date(1969, 12, 31), date(2024, 10, 4)]),
        (pa.array([-1, 7], pa.timestamp("us")), [Timestamp(-1, False), Timestamp(7, False)]),
        (pa.array([-1, 7], pa.timestamp("us", "UTC")), [Timestamp(-1, True), Timestamp(7, True)]),
        (pa.array(["é" * 31 + "x", "x" * 64, ""]), ["é" * 31 + "x", "x" * 64, ""]),
        (pa.array([b"", b"\0x"]), [b"", b"\0x"]),
        (pa.array([each.bytes for each in UUIDS], pa.binary(16)), UUIDS),
        (pa.array([each.bytes for each in UUIDS], pa.uuid()), UUIDS),
        *(
            (pa.array(numbers, pa.decimal128(38, scale)), numbers)
            for scale in (0, 9, 10, 18, 19)
            for numbers in [[Decimal(sign * n).scaleb(-scale) for n in DIGITS for sign in (1, -1)]]
        ),
    ],
    ids=lambda item: str(item.type) if isinstance(item, pa.Array) else "",
)
def test_a_scalar_of_each_type_has_the_bytes_of_the_value(
    column: pa.Array, values: list[Any]
) -> None:
    metadata = pa.array([encode_names([])] * len(column))
    fields = [pa.field("metadata", pa.binary()), pa.field("typed_value", column.type)]
    shredded = pa.StructArray.from_arrays([metadata, column], fields=fields)

    assembled = assemble_variants(shredded).to_pylist()

    assert [item["value"] for item in assembled] == [encode_value(value)[0] for value in values]


def test_other_types_are_refused_by_name() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("typed_value", pa.duration("s"))])

    with pytest.raises(UnsupportedError, match="duration"):
        assemble_variants(pa.array([{"metadata": b"\x01\0\0", "typed_value": 1}], kind))


@pytest.mark.slow
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
