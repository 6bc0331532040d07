"""Values at paths of VARIANT columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch import variant_get
from paimon_orch.errors import InputError
from paimon_orch.files.variant_text import format_variants
from paimon_orch.format.types.arrow import VARIANT_TYPE
from paimon_orch.format.variant.value import encode_value, to_json_text

NAMES = st.sampled_from(["a", "b", "a b", "é", "$"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(max_size=70)
    | st.floats(allow_nan=False)
    | st.dates()
    | st.decimals(-(10**16), 10**16, places=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SEGMENTS = NAMES | st.integers(0, 2)
MISSING = object()


def column(values: list[Any]) -> pa.Array:
    rows = [
        None
        if value is MISSING
        else dict(zip(("value", "metadata"), encode_value(value), strict=True))
        for value in values
    ]
    return pa.array(rows, VARIANT_TYPE)


def find(value: Any, path: list[str | int]) -> Any:
    for segment in path:
        if isinstance(segment, str) and isinstance(value, dict):
            value = value.get(segment, MISSING)
        elif isinstance(segment, int) and isinstance(value, list):
            value = value[segment] if segment < len(value) else MISSING
        else:
            return MISSING
    return value


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(VALUES | st.just(MISSING), max_size=6),
    st.lists(SEGMENTS, max_size=3),
    st.integers(0, 2),
)
def test_values_are_found_at_their_paths(
    values: list[Any], path: list[str | int], start: int
) -> None:
    text = "$" + "".join(f"['{part}']" if isinstance(part, str) else f"[{part}]" for part in path)
    found = [find(value, path) for value in values[start:]]

    variants = variant_get(column(values).slice(start), text, "VARIANT").combine_chunks()

    expected = [None if item is MISSING else to_json_text(*encode_value(item)) for item in found]
    assert format_variants(variants, VARIANT_TYPE).to_pylist() == expected


MIXED = {
    "i": [1, 300, 70_000, 1 << 40, "12", None],
    "d": [Decimal("12.50"), Decimal("0.001"), 2, 0.5, "7.25", None],
    "s": ["text", True, 12, Decimal("12.50"), {"b": [1]}, None],
}
EXPECTED = [
    ("$.i", "BIGINT", [1, 300, 70_000, 1 << 40, 12, None]),
    ("$.i", "STRING", ["1", "300", "70000", str(1 << 40), "12", None]),
    ("$.d", "DOUBLE", [12.5, 0.001, 2.0, 0.5, 7.25, None]),
    (
        "$['d']",
        "DECIMAL(5, 2)",
        [
            Decimal("12.50"),
            Decimal("0.00"),
            Decimal("2.00"),
            Decimal("0.50"),
            Decimal("7.25"),
            None,
        ],
    ),
    ("$.s", "STRING", ["text", "true", "12", "12.5", '{"b":[1]}', None]),
]


@pytest.mark.parametrize(("path", "kind", "expected"), EXPECTED)
def test_values_of_several_types_are_cast(path: str, kind: str, expected: list[Any]) -> None:
    rows = [{name: MIXED[name][row] for name in MIXED} for row in range(6)]
    chunked = pa.chunked_array([column(rows[:2]), column(rows[2:])])

    assert variant_get(chunked, path, kind).to_pylist() == expected


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        ("text", "BIGINT", "STRING cannot be read as BIGINT"),
        ([1], "BIGINT", "object or array"),
        (b"x", "STRING", "only be read as VARIANT"),
        (1, "ARRAY<INT>", "nested"),
    ],
)
def test_values_that_cannot_be_cast_are_refused(value: Any, kind: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        variant_get(column([value]), "$", kind)


@pytest.mark.parametrize("path", ["", "a", "$a", "$.", "$[x]", "$['a'", "$.a[", "$..a"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(InputError, match="is not of the form"):
        variant_get(column([1]), path, "INT")


SAMPLE = column([{"a": {"b": [1, "text", Decimal("1.5")]}, "c": 0.5}] * 2).to_pylist()


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(["$", "$.a", "$.a.b", "$.a.b[1]", "$.a.b[2]", "$.c"]))
def test_damaged_bytes_raise_input_errors_only(data: st.DataObject, path: str) -> None:
    rows = [dict(row) for row in SAMPLE]
    name = data.draw(st.sampled_from(["value", "metadata"]))
    part = bytearray(rows[0][name])
    position, cut = data.draw(st.integers(0, len(part))), data.draw(st.integers(0, 4))
    part[position : position + cut] = data.draw(st.binary(max_size=4))
    rows[0][name] = bytes(part)
    for kind in ("VARIANT", "STRING", "DOUBLE"):
        try:
            found = variant_get(pa.array(rows, VARIANT_TYPE), path, kind)
        except InputError:
            continue
        assert len(found) == 2
