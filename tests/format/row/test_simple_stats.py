"""Null counts of files, of which some writers know only that they are unknown."""

from __future__ import annotations

import pytest

from paimon_orch.format.row.simple_stats import SimpleStats


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((3,), 3), ((0,), 0), ((-1,), None), ((None,), None), ((), None), (None, None)],
)
def test_a_negative_null_count_is_unknown(
    counts: tuple[int | None, ...] | None, expected: int | None
) -> None:
    assert SimpleStats(null_counts=counts).find_null_count(0) == expected
