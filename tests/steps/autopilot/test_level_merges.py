"""Candidates that merge the newest sorted runs, compared with what the step selects."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.merge.tree.levels import SortedRun
from paimon_orch.merge.tree.universal_compaction import select_levels
from paimon_orch.steps.autopilot.level_merges import LevelMerges, choose_candidates

LEVELS = 6
SIZES = st.lists(st.integers(1, 99), max_size=4)
NO_FILES: list[int] = []


def merges_of(*levels: list[int]) -> LevelMerges:
    """Return the merges of one bucket, given the sizes of the files of each level."""
    padded = [*levels, *[NO_FILES] * (LEVELS - len(levels))]
    return LevelMerges.compute(
        np.array([[len(sizes) for sizes in padded]]), np.array([[sum(sizes) for sizes in padded]])
    )


def test_each_level_adds_its_runs_to_the_merge() -> None:
    merges = merges_of([1, 2], NO_FILES, NO_FILES, [10], NO_FILES, [50, 50])

    assert merges.files.tolist() == [[2, 2, 2, 3, 3, 5]]
    assert merges.bytes.tolist() == [[3, 3, 3, 13, 13, 113]]
    assert merges.remaining_runs.tolist() == [[3, 3, 3, 2, 2, 1]]


def test_a_single_run_is_not_merged() -> None:
    assert merges_of([1]).files.tolist() == [[0] * LEVELS]
    assert merges_of([1], NO_FILES, NO_FILES, [9, 9]).files.tolist() == [[0, 0, 0, 3, 3, 3]]


@given(st.lists(SIZES, min_size=LEVELS, max_size=LEVELS))
def test_the_merges_are_those_that_the_step_selects(levels: list[list[int]]) -> None:
    merges = merges_of(*levels)
    groups = [(0, [size]) for size in levels[0]]
    groups += [(level, sizes) for level, sizes in enumerate(levels) if level and sizes]
    runs = [
        SortedRun(level, tuple(DataFileMeta(file_name="f", file_size=size, row_count=1) for size in sizes))
        for level, sizes in groups
    ]  # fmt: skip
    for level in range(LEVELS):
        selection = select_levels(LEVELS, runs, level)
        count = 0 if selection is None else selection.count
        selected = [file.file_size for run in runs[:count] for file in run.files]
        assert merges.files[0, level] == len(selected)
        assert merges.bytes[0, level] == sum(selected)
        assert merges.remaining_runs[0, level] == len(runs) - max(count - 1, 0)


def test_the_best_candidate_of_each_partition_is_chosen() -> None:
    partitions, scores = np.array([1, 0, 1, 0]), np.array([3.0, 1.0, 5.0, 2.0])
    is_full = np.array([True, False, False, False])

    assert choose_candidates(partitions, scores, is_full, 4.0).tolist() == [3, 2]
    assert choose_candidates(partitions, scores, is_full, 3.0).tolist() == [3, 0]
