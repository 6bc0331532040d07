"""Row codes are equal if the values have the same `repr`."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.table.scan.row_codes import UNKNOWN_CODE, build_value_codes

FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), -float("nan"), float("inf")])
TEXTS = st.sampled_from([None, "", "a", "ab"])
STRUCT = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])
STRUCTS = st.none() | st.fixed_dictionaries(
    {"x": FLOATS, "y": st.none() | st.lists(TEXTS, max_size=2)}
)
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.string(), TEXTS),
    (pa.bool_(), st.sampled_from([None, True, False])),
    (STRUCT, STRUCTS),
    (pa.list_(pa.float64()), st.none() | st.lists(FLOATS, max_size=3)),
    (pa.list_(STRUCT), st.none() | st.lists(STRUCTS, max_size=2)),
    (
        pa.map_(pa.string(), pa.int32()),
        st.none()
        | st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([None, 1])), max_size=2),
    ),
]


@pytest.mark.parametrize(("data_type", "values"), TYPES, ids=str)
@given(data=st.data())
def test_codes_are_equal_if_and_only_if_values_are_equal(
    data_type: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    learned = pa.array([None, *data.draw(st.lists(values, max_size=8))], data_type).slice(1)
    other_rows = pa.array([None, None, *data.draw(st.lists(values, max_size=8))], data_type).slice(
        2
    )
    codes = build_value_codes(data_type)

    learned_codes, other_codes = codes.learn(learned), codes.encode(other_rows)

    numbers = {
        repr(value): code for value, code in zip(learned.to_pylist(), learned_codes, strict=True)
    }
    assert [numbers[repr(value)] for value in learned.to_pylist()] == learned_codes.tolist()
    assert len(set(learned_codes)) == len(numbers)
    expected = [numbers.get(repr(value), UNKNOWN_CODE) for value in other_rows.to_pylist()]
    assert other_codes.tolist() == expected
