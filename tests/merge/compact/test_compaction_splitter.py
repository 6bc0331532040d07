"""Parts of a bucket's compaction: together they are complete, and they do not overlap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import read_field, serialize_row
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.merge.compact.bucket_compaction import CompactionTask
from paimon_orch.merge.compact.compaction_splitter import split_task
from paimon_orch.merge.tree.key_range import KeyRange

BIGINT = parse_type("BIGINT NOT NULL")
KEY = [Field(id=0, name="k", type=BIGINT)]

files_of_level_0 = st.lists(
    st.tuples(st.integers(-40, 40), st.integers(0, 60), st.integers(1, 300)), min_size=1, max_size=9
)
cuts_of_a_level = st.lists(st.integers(-40, 60), unique=True, max_size=9).map(sorted)


def file_of(name: str, low: int, high: int, size: int, level: int) -> DataFileMeta:
    first, last = (serialize_row([key], [BIGINT]) for key in (low, high))
    return DataFileMeta(
        file_name=name, file_size=size, row_count=1, min_key=first, max_key=last, level=level
    )


def starts(file: DataFileMeta) -> list[object]:
    """Return the keys at which a file may be split: its first key and a key in its middle."""
    low, high = number(file.min_key), number(file.max_key)
    return [low, (low + high) // 2]


def number(key: bytes) -> int:
    value = read_field(key, 0, BIGINT)
    assert isinstance(value, int)
    return value


def task_of(new: list[tuple[int, int, int]], cuts: list[int]) -> CompactionTask:
    files = [
        file_of(f"n{i}", low, high=low + width, size=size, level=0)
        for i, (low, width, size) in enumerate(new)
    ]
    level = [
        file_of(f"o{i}", low, high=high - 1, size=200, level=5)
        for i, (low, high) in enumerate(zip(cuts, [*cuts[1:], 100], strict=False))
    ]
    return CompactionTask(
        partition_bucket=PartitionBucket(b"", 0),
        files=(*files, *level),
        higher_level_files=(),
        output_level=5,
        max_level=5,
        drop_delete=True,
    )


def keys_of(part: CompactionTask, file: DataFileMeta) -> set[int]:
    """Return the keys of a part in a file that has every key between its bounds."""
    keys = part.keys or KeyRange(None, None)
    numbers = set(range(number(file.min_key), number(file.max_key) + 1))
    if keys.low is not None:
        numbers -= set(range(-100, number(keys.low)))
    if keys.high is not None:
        numbers -= set(range(number(keys.high), 201))
    return numbers


@given(files_of_level_0, cuts_of_a_level, st.integers(1, 500))
def test_every_key_of_every_file_belongs_to_exactly_one_part(
    new: list[tuple[int, int, int]], cuts: list[int], part_bytes: int
) -> None:
    task = task_of(new, cuts)
    parts = split_task(task, KEY, part_bytes, starts)

    for file in task.files:
        key_sets = [keys_of(part, file) for part in parts if file in part.files]
        assert sum(map(len, key_sets)) == len(set().union(*key_sets))
        assert set().union(*key_sets) == keys_of(task, file)
    assert all(part.is_partial for part in parts) == (len(parts) > 1)


@given(files_of_level_0, cuts_of_a_level, st.integers(1, 500))
def test_key_ranges_of_parts_do_not_overlap(
    new: list[tuple[int, int, int]], cuts: list[int], part_bytes: int
) -> None:
    parts = split_task(task_of(new, cuts), KEY, part_bytes, starts)

    key_sets = [set().union(*(keys_of(part, file) for file in part.files)) for part in parts]
    ranges = sorted((min(keys), max(keys)) for keys in key_sets if keys)
    assert all(lower[1] < upper[0] for lower, upper in pairwise(ranges))


def test_a_large_section_is_split_at_boundaries_of_its_largest_run() -> None:
    task = task_of([(0, 59, 100)], [0, 20, 40])
    parts = split_task(task, KEY, 175, starts)

    assert [sorted(file.file_name for file in part.files) for part in parts] == [
        ["n0", "o0"],
        ["n0", "o1"],
        ["n0", "o1"],
        ["n0", "o2"],
    ]


def test_small_compactions_and_file_upgrades_are_not_split() -> None:
    task = task_of([(0, 59, 100)], [0, 20, 40])

    assert split_task(task, KEY, 1000, starts) == [task]
    with_standalone_file = replace(task, standalone_files=task.files[:1])
    assert split_task(with_standalone_file, KEY, 1, starts) == [with_standalone_file]
