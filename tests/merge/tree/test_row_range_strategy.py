"""File selection in data-evolution tables: adjacent ranges of row ids, up to the target size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.live_files import live_files_of

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options import Options
from paimon_orch.merge.tree.row_range_strategy import RowRangeStrategy

TARGET, COST, MIN_FILES = 100, 10, 3
OPTIONS = {
    "target-file-size": f"{TARGET} b",
    "source.split.open-file-cost": f"{COST} b",
    "compaction.min.file-num": str(MIN_FILES),
}

# The first row id, the row count and the size of a file.
Range = tuple[int, int, int]


def file_of(first: int | None, count: int, size: int, number: int = 0) -> DataFileMeta:
    name = f"{first}-{number}"
    return DataFileMeta(file_name=name, file_size=size, row_count=count, first_row_id=first)


def select(files: Sequence[DataFileMeta], *, full: bool = False) -> list[list[str]]:
    """Return the names of the files of each bin."""
    live = live_files_of([files])
    strategy = RowRangeStrategy.of(Options(OPTIONS))
    bins = strategy.select(live, np.arange(len(live)), full=full)
    return [[files[index].file_name for index in chosen.tolist()] for chosen in bins]


@pytest.mark.parametrize(
    ("ranges", "minor", "full"),
    [
        ([], [], []),
        ([(0, 5, 1), (5, 5, 1)], [], [["0-0", "5-1"]]),
        ([(5, 5, 1), (10, 1, 1), (0, 5, 1)], [["0-2", "5-0", "10-1"]], [["0-2", "5-0", "10-1"]]),
        # a gap of row ids
        ([(0, 5, 1), (5, 5, 1), (11, 1, 1)], [], [["0-0", "5-1"]]),
        # the columns of one range, which is larger than a file
        ([(0, 5, 90), (0, 5, 90), (0, 5, 1)], [["0-0", "0-1", "0-2"]], [["0-0", "0-1", "0-2"]]),
        # a large range between small ones
        ([(0, 1, 1), (1, 1, 1), (2, 1, 101), (3, 1, 1)], [], [["0-0", "1-1"]]),
        # each file counts at least 10 bytes; a bin ends above 100 bytes
        (
            [(n, 1, 1) for n in range(13)],
            [[f"{n}-{n}" for n in range(11)]],
            [[f"{n}-{n}" for n in range(11)], ["11-11", "12-12"]],
        ),
        # a bin has more than 100 bytes; the second and the third bin begin at 0 again
        (
            [(n, 1, size) for n, size in enumerate([40, 61, 40, 60, 10, 40, 61])],
            [["2-2", "3-3", "4-4"]],
            [["0-0", "1-1"], ["2-2", "3-3", "4-4"], ["5-5", "6-6"]],
        ),
        # a range of 100 bytes is not large
        ([(0, 1, 100), (1, 1, 10)], [], [["0-0", "1-1"]]),
        ([(0, 1, 101), (1, 1, 10)], [], []),
    ],
)
def test_adjacent_ranges_are_packed(
    ranges: list[Range], minor: list[list[str]], full: list[list[str]]
) -> None:
    files = [file_of(*each, number) for number, each in enumerate(ranges)]

    assert select(files) == minor
    assert select(files, full=True) == full


groups = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(1, 120), min_size=1, max_size=4)), max_size=30
)


def expected_bins(sizes: Sequence[tuple[bool, Sequence[int]]], min_files: int) -> list[int]:
    """Return the numbers of files of the bins, from ranges that follow a gap or not."""
    bins, files, weight = [], 0, 0
    for has_gap, of_range in sizes:
        of_group = sum(max(size, COST) for size in of_range)
        if has_gap or of_group > TARGET:
            bins.append(files)
            files = weight = 0
        files, weight = files + len(of_range), weight + of_group
        if weight > TARGET:
            bins.append(files)
            files = weight = 0
    return [count for count in [*bins, files] if count >= min_files]


@pytest.mark.slow
@given(groups, st.booleans(), st.randoms())
def test_bins_are_those_of_a_loop_over_the_ranges(
    sizes: list[tuple[bool, list[int]]], full: bool, random: object
) -> None:
    files, first = [], 0
    for has_gap, of_range in sizes:
        first += 7 if has_gap else 0
        files += [file_of(first, 5, size, n) for n, size in enumerate(of_range)]
        first += 5
    shuffled = sorted(files, key=lambda _: random.random())  # type: ignore[attr-defined]

    bins = select(shuffled, full=full)

    assert [len(names) for names in bins] == expected_bins(sizes, 2 if full else MIN_FILES)
    starts = [int(name.split("-")[0]) for names in bins for name in names]
    assert starts == sorted(starts)


def test_ranges_of_different_partitions_are_independent() -> None:
    """The second one follows the first, and the third one has smaller row ids."""
    files = [file_of(10, 5, 1), file_of(15, 5, 1), file_of(20, 5, 1), file_of(0, 12, 1)]
    live = replace(
        live_files_of([files]),
        partitions=[b"a", b"b", b"c"],
        partition_codes=np.array([0, 0, 1, 2], np.int32),
    )

    bins = RowRangeStrategy.of(Options(OPTIONS)).select(live, np.arange(4), full=True)

    assert [chosen.tolist() for chosen in bins] == [[0, 1]]
    alone = RowRangeStrategy.of(Options(OPTIONS)).pack(live, np.arange(4))
    assert [chosen.tolist() for chosen in alone] == [[0, 1], [2], [3]]


def test_files_without_row_ids_are_not_compacted() -> None:
    assert select([file_of(None, 5, 1), file_of(0, 5, 1)], full=True) == []


@pytest.mark.parametrize("other", [(0, 4, 1), (3, 5, 1), (0, 6, 1)])
def test_ranges_that_overlap_in_part_are_refused(other: Range) -> None:
    with pytest.raises(UnsupportedError, match="only a part of their rows in common"):
        select([file_of(0, 5, 1), file_of(*other), file_of(5, 5, 1)])
