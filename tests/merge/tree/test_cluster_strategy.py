"""Which runs of an append table with incremental clustering are sorted, and to which level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.live_files import live_files_of

from paimon_orch.format.manifest.live_files import NO_TIME
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import parse_columns
from paimon_orch.merge.tree.cluster_strategy import ClusterStrategy, build_clustered_runs

TOP = 3
"""The highest level of the options."""
File = tuple[int, int]
"""The level and the schema id of a file."""


def schema_of(schema_id: int, columns: str, **options: str) -> TableSchema:
    defaults = {
        "bucket": "-1",
        "clustering.incremental": "true",
        "clustering.columns": columns,
        "num-levels": str(TOP + 1),
        "num-sorted-run.compaction-trigger": "3",
    }
    return TableSchema(
        id=schema_id,
        fields=tuple(parse_columns("a INT, b INT")),
        highest_field_id=1,
        partition_keys=(),
        primary_keys=(),
        options=defaults | options,
    )


SCHEMAS = {0: schema_of(0, "b"), 1: schema_of(1, "a"), 2: schema_of(2, "a")}
UNAWARE = ClusterStrategy.of(SCHEMAS[2])
BUCKETED = ClusterStrategy.of(schema_of(2, "a", bucket="1"))


def files_of(files: Sequence[File]) -> list[DataFileMeta]:
    return [
        DataFileMeta(
            file_name=f"f{number}",
            file_size=100,
            row_count=1,
            level=level,
            schema_id=schema_id,
            min_sequence_number=number,
        )
        for number, (level, schema_id) in enumerate(files)
    ]


def is_candidate(strategy: ClusterStrategy, files: Sequence[File], *, deleted: bool = False, full: bool = True) -> bool:  # fmt: skip
    groups = live_files_of([files_of(files)]).group_by_bucket()
    return bool(strategy.find_candidates(groups, np.array([deleted]), full=full)[0])


def select(
    strategy: ClusterStrategy,
    files: Sequence[File],
    *,
    deleted: Sequence[str] = (),
    full: bool = True,
) -> tuple[list[str], int] | None:
    """Return the names of the selected files and the output level."""
    selected = strategy.select(files_of(files), SCHEMAS, deleted, full=full)
    if selected is None:
        return None
    return sorted(file.file_name for file in selected[0]), selected[1].output_level


@pytest.mark.parametrize(
    ("files", "unaware", "bucketed"),
    [
        ([(TOP, 2)], None, None),
        ([(TOP, 2), (TOP, 2)], None, None),
        ([(TOP - 1, 2)], TOP, TOP),
        ([(0, 2)], TOP, TOP),
        ([(TOP, 2), (0, 2)], TOP, TOP),
        ([(TOP, 2), (TOP - 1, 2)], TOP, TOP),
        # only buckets keep levels above those of the options
        ([(TOP + 2, 2)], TOP, None),
        ([(TOP + 2, 2), (0, 2)], TOP, TOP + 2),
        ([(TOP + 2, 2), (TOP, 2)], TOP, TOP + 2),
    ],
)
def test_a_full_compaction_sorts_everything_that_is_not_one_run_of_the_highest_level(
    files: list[File], unaware: int | None, bucketed: int | None
) -> None:
    names = [f"f{number}" for number in range(len(files))]
    for strategy, level in ((UNAWARE, unaware), (BUCKETED, bucketed)):
        assert select(strategy, files) == (None if level is None else (names, level))
        assert is_candidate(strategy, files) is (level is not None)


@pytest.mark.parametrize(
    ("schema_ids", "is_candidate_", "is_selected"),
    [([2], False, False), ([1], True, False), ([2, 1], True, False), ([2, 0], True, True), ([0], True, True)],
)  # fmt: skip
def test_rows_that_are_sorted_by_other_columns_are_sorted_again(
    schema_ids: list[int], is_candidate_: bool, is_selected: bool
) -> None:
    """Schema 1 has the columns of today, and schema 0 has others."""
    files = [(TOP, schema_id) for schema_id in schema_ids]
    assert is_candidate(UNAWARE, files) is is_candidate_
    assert (select(UNAWARE, files) is not None) is is_selected


def test_only_the_files_with_deleted_rows_of_sorted_rows_are_rewritten() -> None:
    files = [(TOP, 2), (TOP, 2), (TOP, 2)]
    assert is_candidate(UNAWARE, files, deleted=True)
    assert select(UNAWARE, files, deleted=["f1", "other"]) == (["f1"], TOP)
    assert select(UNAWARE, files, deleted=["other"]) is None
    assert select(UNAWARE, [*files, (0, 2)], deleted=["f1"]) == (["f0", "f1", "f2", "f3"], TOP)


@given(
    st.sampled_from([UNAWARE, BUCKETED]),
    st.lists(st.tuples(st.integers(0, TOP + 2), st.sampled_from(list(SCHEMAS))), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_runs_are_selected_only_from_candidates(
    strategy: ClusterStrategy, files: list[File], deleted: bool, full: bool
) -> None:
    if select(strategy, files, deleted=["f0"] if deleted else [], full=full) is not None:
        assert is_candidate(strategy, files, deleted=deleted, full=full)


def test_a_minor_compaction_needs_the_number_of_runs_of_the_trigger() -> None:
    two, three = [(0, 2), (0, 2)], [(0, 2), (0, 2), (0, 2)]
    assert not is_candidate(UNAWARE, two, full=False)
    assert select(UNAWARE, two, full=False) is None
    assert is_candidate(UNAWARE, three, full=False)
    assert select(UNAWARE, three, full=False) == (["f0", "f1", "f2"], TOP)


@pytest.mark.parametrize(
    ("times", "newest"),
    [
        ([(0, 5), (1, 7), (TOP - 1, 6), (TOP, 9)], 7),
        ([(TOP, 9)], None),
        ([(0, None), (1, 7)], 7),
        ([(0, None)], None),
        ([(TOP + 1, 9), (TOP - 1, 4)], 4),
    ],
)
def test_a_bucket_is_idle_if_its_files_below_the_highest_level_are_old(
    times: list[tuple[int, int | None]], newest: int | None
) -> None:
    files = [
        replace(file, creation_time=time)
        for file, (_, time) in zip(files_of([(level, 2) for level, _ in times]), times, strict=True)
    ]
    groups = live_files_of([files]).group_by_bucket()
    no_vectors = np.zeros(1, bool)

    assert UNAWARE.find_newest_files(groups).tolist() == [NO_TIME if newest is None else newest]
    for idle_before in (4, 5, 7, 8, 9, 10):
        is_idle = newest is not None and newest < idle_before
        assert UNAWARE.is_idle(files, idle_before) is is_idle
        found = UNAWARE.find_candidates(groups, no_vectors, full=False, idle_before=idle_before)
        assert found.tolist() == [is_idle or len(build_clustered_runs(files)) >= 3]
    assert not UNAWARE.is_idle(files, None)
