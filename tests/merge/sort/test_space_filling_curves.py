"""Sort keys of several columns: order-preserving bytes, Z-order and the Hilbert curve."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.errors import InputError
from paimon_orch.merge.sort.space_filling_curves import (
    decode_leading_words,
    encode_hilbert,
    encode_order_bytes,
    encode_z_order,
)


def keys(column: pa.Array, width: int = 8) -> list[bytes]:
    return [row.tobytes() for row in encode_order_bytes(column, "c", width)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [None, -128, -1, 0, 1, 127]),
        (pa.int64(), [None, -(2**63) + 1, -1, 0, 1, 2**63 - 1]),
        (pa.float32(), [None, -math.inf, -1.5, 0.0, 1e-30, 2.0, math.inf, math.nan]),
        (pa.float64(), [None, -math.inf, -1e300, -5e-324, 0.0, 5e-324, 1.0, math.inf, math.nan]),
        (pa.bool_(), [None, False, True]),
        (pa.decimal128(10, 2), [None, Decimal("-1.25"), Decimal("0.00"), Decimal("99.99")]),
        (pa.string(), [None, "a", "ab", "b", "é", "😀"]),
        (pa.binary(), [None, b"\x01", b"\x7f", b"\x80", b"\xff"]),
        (pa.date32(), [None, date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)]),
        (pa.time32("ms"), [None, time(0), time(0, 0, 1), time(23, 59)]),
        (pa.timestamp("us"), [None, datetime(1960, 1, 1), datetime(2026, 1, 1)]),
        (pa.timestamp("ms", "UTC"), [None, datetime(1960, 1, 1, tzinfo=UTC)]),
    ],
    ids=str,
)
def test_packed_bytes_have_the_same_order_as_values(kind: pa.DataType, values: list[Any]) -> None:
    sort_keys = keys(pa.array(values, kind))

    assert all(key < next_key for key, next_key in pairwise(sort_keys))


def test_zeros_of_both_signs_are_equal() -> None:
    assert len(set(keys(pa.array([0.0, -0.0])))) == 1


def test_sliced_arrays_and_short_strings_are_packed() -> None:
    sliced = pa.array(["skipped", "ab", "", None, "abcdefghij"]).slice(1)

    assert keys(sliced, 4) == [b"ab\0\0", b"\0\0\0\0", b"\0\0\0\0", b"abcd"]


def test_nested_columns_are_refused_with_their_names() -> None:
    with pytest.raises(InputError, match="by column 'c', which is list"):
        keys(pa.array([[1]]))


@given(st.lists(st.floats(width=64), min_size=2, max_size=20))
def test_floating_point_numbers_keep_their_order(values: list[float]) -> None:
    ordered = sorted(values, key=lambda value: (math.isnan(value), value))

    sort_keys = keys(pa.array(ordered))

    assert sort_keys == sorted(sort_keys)


def test_z_order_interleaves_bits_and_short_columns_end_first() -> None:
    long = np.array([[0b11111111, 0b10000001]], np.uint8)
    short = np.array([[0b00000000]], np.uint8)

    assert encode_z_order([long, short]).tolist() == [[0b10101010, 0b10101010, 0b10000001]]


@pytest.mark.parametrize(("axes", "bits"), [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2), (5, 2)])
def test_the_hilbert_curve_visits_each_cell_once_in_steps_of_one(axes: int, bits: int) -> None:
    cells = np.array(list(product(range(1 << bits), repeat=axes)), np.uint64)

    places = encode_hilbert([cells[:, axis] for axis in range(axes)], bits)

    padding = places.shape[1] * 8 - axes * bits
    numbers = [int.from_bytes(row.tobytes()) >> padding for row in places]
    assert sorted(numbers) == list(range(len(cells)))
    walk = cells[np.argsort(numbers)].astype(np.int64)
    assert set(np.abs(np.diff(walk, axis=0)).sum(axis=1).tolist()) == {1}


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 3), min_size=1, max_size=20))
def test_hilbert_positions_of_different_wide_coordinates_differ(
    cells: list[tuple[int, int, int]],
) -> None:
    columns = [np.array([cell[axis] for cell in cells], np.uint64) for axis in range(3)]

    places = {row.tobytes() for row in encode_hilbert(columns)}

    assert len(places) == len(set(cells))


def test_integers_of_packed_bytes_have_the_same_order_as_the_bytes() -> None:
    rows = np.array([[0, 1, 2], [0, 2, 0], [255, 0, 0]], np.uint8)

    sort_keys = decode_leading_words(rows).tolist()

    assert sort_keys == [0x0001020000000000, 0x0002000000000000, 0xFF00000000000000]
