"""Ranges of rows behave as sets of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.format.row_range_set import RowRanges, unite_row_ranges

SETS = st.sets(st.integers(0, 40))


def ranges_of(numbers: set[int]) -> RowRanges:
    return RowRanges.of_positions(np.array(sorted(numbers), np.int64))


def numbers_of(rows: RowRanges) -> set[int]:
    assert (rows.starts < rows.ends).all()
    assert (rows.starts[1:] > rows.ends[:-1]).all()
    return {n for start, end in zip(rows.starts, rows.ends, strict=True) for n in range(start, end)}


@settings(max_examples=100, deadline=None)
@given(SETS, SETS, st.integers(0, 45), st.integers(0, 10))
def test_ranges_behave_as_sets(one: set[int], other: set[int], start: int, length: int) -> None:
    a, b, span = ranges_of(one), ranges_of(other), set(range(start, start + length))

    assert numbers_of(a) == one
    assert a.count == len(one)
    assert bool(a) == bool(one)
    assert numbers_of(a | b) == one | other
    assert numbers_of(unite_row_ranges([b, a, a])) == one | other
    assert numbers_of(a & b) == one & other
    assert numbers_of(a - b) == one - other
    assert numbers_of(a.shift(-3)) == {n - 3 for n in one}
    assert numbers_of(a.clip(start, start + length)) == one & span
    assert a.overlaps(np.array([start]), np.array([start + length])).tolist() == [bool(one & span)]
    assert a.to_positions(start, start + length).tolist() == sorted(n - start for n in one & span)


def test_ranges_in_any_order_are_joined() -> None:
    rows = RowRanges.of(np.array([7, 0, 3, 5]), np.array([9, 3, 3, 8]))

    assert (rows.starts.tolist(), rows.ends.tolist()) == ([0, 5], [3, 9])
