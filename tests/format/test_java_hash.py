"""Iteration order of integers in Java's hash tables, compared with the output of Java 17."""

from __future__ import annotations

import pytest

from paimon_orch.format.java_hash import compute_hash_map_order

# fmt: off
NUMBERS = [47, 52, 74, 104, 66, 5, 94, 11, 2, 81, 71, 63, 67, 0, 68, 10, 18, 55, 17, 57, 108, 48, 116, 1, 82, 20]
PUT = {
    12: [81, 66, 2, 52, 5, 71, 104, 74, 11, 94, 47, 63],
    13: [66, 2, 67, 5, 71, 104, 74, 11, 47, 81, 52, 94, 63],
    24: [0, 1, 66, 2, 67, 68, 5, 71, 104, 74, 10, 11, 108, 47, 48, 81, 17, 18, 52, 116, 55, 57, 94, 63],
    25: [0, 1, 66, 2, 67, 68, 5, 71, 74, 10, 11, 81, 17, 18, 82, 94, 104, 108, 47, 48, 52, 116, 55, 57, 63],
}
COMPUTED = {
    12: [81, 2, 66, 52, 5, 71, 104, 74, 11, 94, 63, 47],
    13: [81, 2, 66, 67, 52, 5, 71, 104, 74, 11, 94, 63, 47],
    14: [0, 2, 66, 67, 5, 71, 104, 74, 11, 47, 81, 52, 94, 63],
    25: [0, 1, 2, 66, 67, 68, 5, 71, 104, 10, 74, 11, 108, 47, 48, 17, 81, 82, 18, 116, 52, 55, 57, 94, 63],
    26: [0, 1, 2, 66, 67, 68, 5, 71, 10, 74, 11, 17, 81, 82, 18, 20, 94, 104, 108, 47, 48, 116, 52, 55, 57, 63],
}
# fmt: on


@pytest.mark.parametrize("count", PUT)
def test_entries_added_with_put_have_the_order_of_java(count: int) -> None:
    assert [NUMBERS[i] for i in compute_hash_map_order(NUMBERS[:count])] == PUT[count]


@pytest.mark.parametrize("count", COMPUTED)
def test_entries_added_with_compute_if_absent_have_the_order_of_java(count: int) -> None:
    order = compute_hash_map_order(NUMBERS[:count], computed=True)

    assert [NUMBERS[i] for i in order] == COMPUTED[count]
