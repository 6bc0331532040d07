"""Runs and sections of a bucket: sections do not overlap, and runs are ordered by age."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import serialize_row
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.merge.tree.levels import (
    build_sorted_runs,
    has_ascending_sequences,
    sort_newest_first,
    sort_oldest_first,
    split_into_sections,
)

BIGINT = parse_type("BIGINT NOT NULL")
KEY = [Field(id=0, name="k", type=BIGINT)]
Range = tuple[int, int]

ranges = st.lists(
    st.tuples(st.integers(-40, 40), st.integers(0, 12)).map(
        lambda low_and_size: (low_and_size[0], low_and_size[0] + low_and_size[1])
    ),
    max_size=25,
)


def file_of(
    low: int, high: int, name: str = "f", level: int = 0, sequence: int = 0
) -> DataFileMeta:
    return DataFileMeta(
        file_name=name,
        file_size=100,
        row_count=1,
        min_key=serialize_row([low], [BIGINT]),
        max_key=serialize_row([high], [BIGINT]),
        level=level,
        min_sequence_number=sequence,
        max_sequence_number=sequence,
    )


@given(ranges)
def test_sections_are_disjoint_and_contain_every_file_once(drawn: list[Range]) -> None:
    files = [file_of(low, high, f"f{ranges}") for ranges, (low, high) in enumerate(drawn)]
    ranges = {file.file_name: keys for file, keys in zip(files, drawn, strict=True)}

    result = split_into_sections(files, KEY)

    names = [file.file_name for section in result for run in section for file in run]
    assert sorted(names) == sorted(ranges)
    bounds = [
        (
            min(ranges[file.file_name][0] for run in section for file in run),
            max(ranges[file.file_name][1] for run in section for file in run),
        )
        for section in result
    ]
    assert all(lower[1] < upper[0] for lower, upper in pairwise(bounds)), (
        "in key order, not touching"
    )
    for section in result:
        for run in section:
            assert all(
                ranges[lower.file_name][1] < ranges[upper.file_name][0]
                for lower, upper in pairwise(run)
            ), "the files of a run are in key order and do not touch"


@given(ranges)
def test_the_number_of_runs_in_a_section_equals_its_maximum_overlap(
    drawn: list[Range],
) -> None:
    files = [file_of(low, high, f"f{ranges}", level=2) for ranges, (low, high) in enumerate(drawn)]
    ranges = {file.file_name: keys for file, keys in zip(files, drawn, strict=True)}

    for section in split_into_sections(files, KEY):
        members = [ranges[file.file_name] for run in section for file in run]
        deepest = max(
            sum(low <= key <= high for low, high in members) for key in (low for low, _ in members)
        )
        assert len(section) == deepest


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=15))
def test_all_files_of_a_run_have_one_level_and_runs_of_level_0_have_one_file(
    drawn: list[Range],
) -> None:
    files = [file_of(low, low + 3, f"f{low}.{n}", level) for n, (low, level) in enumerate(drawn)]

    for section in split_into_sections(files, KEY):
        for run in section:
            assert len({file.level for file in run}) == 1
            assert len(run) == 1 or run[0].level > 0


def test_equal_rows_are_ordered_by_level_and_then_by_file_age() -> None:
    def file(name: str, level: int, created: int, sequence: int = 3) -> DataFileMeta:
        return DataFileMeta(
            file_name=name,
            file_size=1,
            row_count=1,
            level=level,
            creation_time=created,
            max_sequence_number=sequence,
        )

    ordered = [
        file("a", 5, 900),
        file("b", 4, 950),
        file("z", 0, 990, sequence=1),
        file("c", 0, 1),
        file("d", 0, 2),
        file("e", 0, 2),
    ]

    assert sort_oldest_first([file] for file in reversed(ordered)) == [[file] for file in ordered]


@given(ranges)
def test_a_section_cannot_be_split_further(drawn: list[Range]) -> None:
    files = [file_of(low, high, f"f{ranges}") for ranges, (low, high) in enumerate(drawn)]
    ranges = {file.file_name: keys for file, keys in zip(files, drawn, strict=True)}

    for section in split_into_sections(files, KEY):
        members = sorted(ranges[file.file_name] for run in section for file in run)
        end = members[0][1]
        for low, high in members[1:]:
            assert low <= end
            end = max(end, high)


def test_files_that_share_a_key_are_in_one_section() -> None:
    assert len(split_into_sections([file_of(1, 5, "a"), file_of(5, 9, "b")], KEY)) == 1
    assert len(split_into_sections([file_of(1, 5, "a"), file_of(6, 9, "b")], KEY)) == 2


def test_each_level_0_file_is_a_run_newest_first_and_each_other_level_is_one_run() -> None:
    files = [
        file_of(50, 60, "upper-2", level=5),
        file_of(0, 100, "old", sequence=1),
        file_of(0, 10, "upper-1", level=5),
        file_of(0, 100, "new", sequence=7),
        file_of(3, 4, "middle", level=2),
    ]

    runs = build_sorted_runs(files, KEY)

    names = [[file.file_name for file in run.files] for run in runs]
    assert names == [["new"], ["old"], ["middle"], ["upper-1", "upper-2"]]
    assert [run.level for run in runs] == [0, 0, 2, 5]
    assert runs[-1].size == 200


def test_level_0_files_with_equal_sequence_numbers_have_the_specified_order() -> None:
    def file(name: str, low: int, high: int, created: int) -> DataFileMeta:
        return DataFileMeta(
            file_name=name,
            file_size=1,
            row_count=1,
            min_sequence_number=low,
            max_sequence_number=high,
            creation_time=created,
        )

    ordered = [
        file("a", 0, 9, 5),
        file("z", 3, 8, 1),
        file("b", 4, 8, 1),
        file("c", 4, 8, 2),
        file("d", 4, 8, 2),
    ]

    assert sort_newest_first(reversed(ordered)) == ordered


def test_overlapping_files_of_a_level_are_refused_with_their_names() -> None:
    with pytest.raises(CorruptFileError, match="b: its keys overlap those of a on level 3"):
        build_sorted_runs([file_of(0, 5, "a", level=3), file_of(5, 9, "b", level=3)], KEY)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([[1]], True),
        ([[1, 3], [4]], True),
        ([[3, 1], [5, 4]], True),
        ([[1, 3], [3]], False),  # both writers started from the same snapshot
        ([[1, 3], [2]], False),
        ([[2], [1]], False),
    ],
)
def test_runs_are_consecutive_if_every_row_is_newer_than_the_previous_run(
    numbers: list[list[int]], expected: bool
) -> None:
    runs = [[file_of(0, 9, sequence=number) for number in run] for run in numbers]

    assert has_ascending_sequences(runs) is expected
