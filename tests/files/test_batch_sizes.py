"""The batch sizes of merges."""

from __future__ import annotations

import pytest

from paimon_orch.files.batch_sizes import BatchSizes

SIZES = BatchSizes(batch_rows=1_000, min_merge_batch_rows=10)


@pytest.mark.parametrize(
    ("run_rows", "batch_rows"),
    [
        ([], []),
        ([0, 0], [10, 10]),
        ([5_000], [1_000]),
        ([5_000, 2_500, 1], [1_000, 500, 10]),
        ([3, 3], [1_000, 1_000]),
    ],
    ids=str,
)
def test_small_runs_are_merged_in_small_batches(run_rows: list[int], batch_rows: list[int]) -> None:
    assert SIZES.plan_merge(run_rows) == batch_rows
