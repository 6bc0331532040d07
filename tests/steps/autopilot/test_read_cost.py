"""The read cost that rewrites save, on examples that can be computed by hand."""

from __future__ import annotations

import numpy as np

from paimon_orch.steps.autopilot.read_cost import (
    ACTION_OVERHEAD_BYTES,
    PartitionLayout,
    compute_scores,
    estimate_savings,
)

TARGET, OPEN = 100, 10


def layout_of(**columns: float | bool) -> PartitionLayout:
    values = {
        "files": 1,
        "bytes": 100,
        "sorted_runs": 0,
        "deleted_ratio": 0.0,
        "rewrite_files": 0,
        "rewrite_bytes": 0,
        "rewrite_buckets": 1,
        "is_full": False,
        "remaining_runs": -1,
    } | columns
    return PartitionLayout(**{name: np.array([value]) for name, value in values.items()})


def savings_of(*, packs_files: bool = False, **columns: float | bool) -> float:
    layout = layout_of(**columns)
    savings = estimate_savings(
        layout, target_file_bytes=TARGET, open_file_bytes=OPEN, packs_files=packs_files
    )
    return float(savings.cost[0])


def test_what_a_read_saves_is_told_in_files_runs_and_bytes() -> None:
    full = {"is_full": True, "sorted_runs": 4, "deleted_ratio": 0.25, "rewrite_bytes": 200}
    savings = estimate_savings(
        layout_of(files=8, bytes=200, rewrite_files=8, **full),
        target_file_bytes=TARGET,
        open_file_bytes=OPEN,
        packs_files=False,
    )

    assert savings.describe(0) == "saves each read 6 files, 3 sorted runs, 50 B"


def test_merged_small_files_save_the_cost_of_opening_them() -> None:
    assert savings_of(files=8, bytes=80, rewrite_files=6, rewrite_bytes=60) == 5 * OPEN


def test_append_tables_merge_groups_of_files_with_twice_the_target_size() -> None:
    layout = {"files": 40, "bytes": 40, "rewrite_files": 40, "rewrite_bytes": 40}

    assert savings_of(**layout, packs_files=True) == 38 * OPEN


def test_a_full_compaction_saves_the_other_sorted_runs_and_the_deleted_rows() -> None:
    before, after = 200 * 4 + 8 * OPEN, 150 + 2 * OPEN

    assert before - after == savings_of(
        files=8,
        bytes=200,
        sorted_runs=4,
        deleted_ratio=0.25,
        rewrite_files=8,
        rewrite_bytes=200,
        is_full=True,
    )


def test_a_minor_compaction_leaves_one_run_for_those_that_it_merges() -> None:
    before, after = 200 * 4 + 4 * OPEN, 200 * 2 + 2 * OPEN

    assert before - after == savings_of(
        files=4, bytes=200, sorted_runs=4, rewrite_files=3, rewrite_bytes=30
    )


def test_each_bucket_keeps_a_file() -> None:
    assert savings_of(files=8, bytes=8, rewrite_files=8, rewrite_bytes=8, rewrite_buckets=8) == 0


def test_a_rewrite_never_saves_less_than_nothing() -> None:
    assert savings_of(files=1, bytes=100, rewrite_files=1, rewrite_bytes=1000) == 0


def test_a_score_counts_reads_and_charges_each_action() -> None:
    overhead = ACTION_OVERHEAD_BYTES
    savings, sizes = np.array([overhead, overhead], float), np.array([0, overhead])

    scores = compute_scores(savings, sizes, np.array([1.0, 4.0]))

    assert scores.tolist() == [1.0, 2.0]
