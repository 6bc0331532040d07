"""Values are equal if a simple implementation in Python says so, for types three levels deep."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.format.java_equality import (
    UNKNOWN_CODE,
    build_value_codes,
    find_changed_rows,
    find_differences,
)

NAN_OF_OTHER_BITS = np.array([0x7FF8000000000001]).view(np.float64)
SIMPLE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [0.0, -0.0, 1.5, float("nan"), -float("nan"), float("inf")]),
    (pa.float32(), [0.0, -0.0, float("nan")]),
    (pa.string(), ["", "a", "ab"]),
    (pa.binary(), [b"", b"a"]),
    (pa.bool_(), [True, False]),
    (pa.int64(), [0, 1, -1]),
    (pa.decimal128(9, 2), [0, 1]),
    (pa.timestamp("ns"), [0, 1]),
]


def types_of(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Return types with their values; they are nested up to ``depth`` times."""
    simple = st.sampled_from([(kind, st.none() | st.sampled_from(v)) for kind, v in SIMPLE])
    if not depth:
        return simple
    inner = types_of(depth - 1)
    return (
        simple
        | inner.map(lambda t: (pa.list_(t[0]), st.none() | st.lists(t[1], max_size=2)))
        | inner.map(
            lambda t: (
                pa.list_(t[0], 2),
                st.none() | st.lists(t[1], min_size=2, max_size=2),
            )
        )
        | st.tuples(inner, inner).map(
            lambda ts: (
                pa.struct([("x", ts[0][0]), ("y", ts[1][0])]),
                st.none() | st.fixed_dictionaries({"x": ts[0][1], "y": ts[1][1]}),
            )
        )
        | st.tuples(inner, inner).map(
            lambda ts: (
                pa.map_(ts[0][0], ts[1][0]),
                st.none()
                | st.lists(
                    st.tuples(ts[0][1].filter(lambda key: key is not None), ts[1][1]),
                    max_size=2,
                    unique_by=lambda entry: repr(entry[0]),
                ),
            )
        )
    )


def canonical(value: Any) -> Any:
    """Return a text that is equal for values that are equal in Java."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, dict):
        return repr([canonical(item) for item in value.values()])
    if isinstance(value, list):
        is_map = any(isinstance(item, tuple) for item in value)
        items = [canonical(item) for item in value]
        return repr(sorted(items) if is_map else items)
    return repr(tuple(map(canonical, value)) if isinstance(value, tuple) else value)


@pytest.mark.slow
@given(st.data())
def test_codes_are_equal_if_and_only_if_values_are_equal(data: st.DataObject) -> None:
    kind, values = data.draw(types_of(3))
    learned = pa.array([None, *data.draw(st.lists(values, max_size=8))], kind).slice(1)
    other_rows = pa.array([None, None, *data.draw(st.lists(values, max_size=8))], kind).slice(2)
    codes = build_value_codes(kind)

    learned_codes, other_codes = codes.learn(learned), codes.encode(other_rows)

    texts = [canonical(value) for value in learned.to_pylist()]
    numbers = dict(zip(texts, learned_codes.tolist(), strict=True))
    assert [numbers[text] for text in texts] == learned_codes.tolist()
    assert len(set(learned_codes)) == len(numbers)
    expected = [numbers.get(canonical(value), UNKNOWN_CODE) for value in other_rows.to_pylist()]
    assert other_codes.tolist() == expected


@pytest.mark.slow
@given(st.data())
def test_differences_are_those_of_single_values(data: st.DataObject) -> None:
    kind, values = data.draw(types_of(3))
    pairs = data.draw(st.lists(st.tuples(values, values), max_size=8))
    old, new = (pa.array([pair[side] for pair in pairs], kind) for side in (0, 1))

    differs = find_differences(old, new)

    expected = [
        canonical(a) != canonical(b) for a, b in zip(old.to_pylist(), new.to_pylist(), strict=True)
    ]
    assert differs.tolist() == expected
    tables = [pa.table({"v": pa.chunked_array([side])}) for side in (old, new)]
    assert find_changed_rows(*tables).tolist() == expected


@pytest.mark.parametrize("kind", [pa.float64(), pa.struct([("x", pa.float64())])], ids=str)
def test_all_bit_patterns_of_nan_are_equal(kind: pa.DataType) -> None:
    nans = pa.array(np.append(NAN_OF_OTHER_BITS, np.nan))
    values = nans if kind == pa.float64() else pa.StructArray.from_arrays([nans], ["x"])

    assert not find_differences(values[:1], values[1:]).any()
