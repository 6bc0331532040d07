"""All ways to serialize a bitmap give equal bytes; readers do not read beyond the data."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from paimon_orch.format.bytes.roaring import (
    build_bitmap,
    build_bitmap_from_sorted,
    build_full_bitmap,
    deserialize_bitmap,
    read_containers,
    read_serialized_size,
    serialize_groups,
    serialize_mask,
    serialize_positions,
)

LIMIT = 200_000
RUNS = st.lists(
    st.tuples(st.integers(0, LIMIT - 1), st.sampled_from([1, 1, 2, 3, 9, 400, 70_000])), max_size=12
)


def rows_of(runs: list[tuple[int, int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    mask = np.zeros(LIMIT, bool)
    for start, length in runs:
        mask[start : start + length] = True
    return np.flatnonzero(mask)


@given(RUNS)
def test_a_mask_and_its_positions_have_the_same_bytes(runs: list[tuple[int, int]]) -> None:
    rows = rows_of(runs)
    mask = np.zeros(LIMIT, bool)
    mask[rows] = True

    data = serialize_positions(rows)

    assert serialize_mask(mask) == data
    assert read_serialized_size(b"xx" + data + b"behind", 2) == len(data)
    assert set(deserialize_bitmap(data, LIMIT)) == set(rows.tolist())


@pytest.mark.slow
@given(RUNS, st.integers(0, 400))
def test_a_bitmap_of_sorted_positions_has_equal_content_and_bytes(
    runs: list[tuple[int, int]], blocks_before: int
) -> None:
    rows = rows_of(runs) + (blocks_before << 16)

    bitmap = build_bitmap_from_sorted(rows)

    assert bitmap == BitMap(rows.tolist())
    bitmap.run_optimize()
    assert bitmap.serialize() == serialize_positions(rows)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.9])
def test_a_bitmap_of_many_sorted_positions_has_equal_content(share: float) -> None:
    rows = np.flatnonzero(np.random.default_rng(5).random(5_000_000) < share)
    rows = rows[(rows < 100_000) | (rows > 300_000)]  # some blocks are empty

    assert build_bitmap_from_sorted(rows) == build_bitmap(rows)


@pytest.mark.slow
@given(st.lists(RUNS.filter(bool), min_size=1, max_size=8))
def test_groups_are_serialized_in_the_same_way_as_single_bitmaps(
    groups: list[list[tuple[int, int]]],
) -> None:
    parts = [rows_of(runs) for runs in groups]
    counts = np.array([len(part) for part in parts])

    data, lengths = serialize_groups(np.concatenate(parts), np.cumsum(counts) - counts)

    single = [serialize_positions(part) for part in parts]
    assert data == b"".join(single)
    assert lengths.tolist() == [len(part) for part in single]


def test_an_empty_list_of_groups_has_no_bytes() -> None:
    data, lengths = serialize_groups(np.empty(0, np.int64), np.empty(0, np.int64))

    assert (data, len(lengths)) == (b"", 0)


def test_dense_random_bits_are_stored_as_a_bit_set() -> None:
    mask = np.random.default_rng(3).random(150_000) < 0.4

    assert serialize_mask(mask) == serialize_positions(np.flatnonzero(mask))


def test_positions_after_the_last_row_are_refused() -> None:
    with pytest.raises(ValueError, match="position 9, but there are 9 rows"):
        deserialize_bitmap(serialize_positions(np.array([1, 9])), 9)


def test_a_truncated_bitmap_is_refused() -> None:
    data = serialize_positions(np.array([1, 5, 9]))

    for end in range(len(data)):
        with pytest.raises(Exception, match=r"."):
            deserialize_bitmap(data[:end], 100)


# Bitmaps with runs have offsets only if they have at least four containers.
@pytest.mark.parametrize("blocks", [1, 3, 4, 8, 20])
def test_containers_of_a_truncated_bitmap_end_after_the_data(blocks: int) -> None:
    rows = np.concatenate([np.arange(7 + block) + (block << 16) for block in range(blocks)])
    data = serialize_positions(rows)

    assert [(c.block, c.cardinality) for c in read_containers(data)[0]] == [
        (block, 7 + block) for block in range(blocks)
    ]
    for end in range(len(data)):
        try:
            _, behind = read_containers(data[:end])
        except (struct.error, IndexError):
            continue
        assert behind > end


def test_a_full_bitmap_contains_every_row() -> None:
    assert build_full_bitmap(0) == BitMap()
    assert build_full_bitmap(3) == BitMap([0, 1, 2])
