"""The default limits of the health of a table."""

from __future__ import annotations

import pytest

from paimon_orch.errors import InputError
from paimon_orch.orchestration.health_limits import (
    DEFAULT_LIMITS,
    describe_check,
    reject_unknown_checks,
)
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.health_metrics import HEALTH_METRICS


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("level0_backlog", TableHealth(level0_files=100), TableHealth(level0_files=101)),
        ("sorted_runs", TableHealth(max_sorted_runs=10), TableHealth(max_sorted_runs=11)),
        (
            "small_files",
            TableHealth(files=40, small_files=20),
            TableHealth(files=40, small_files=21),
        ),
        ("deletion_vector_ratio", TableHealth(deleted_ratio=0.3), TableHealth(deleted_ratio=0.31)),
        ("file_index_coverage", TableHealth(index_coverage=0.9), TableHealth(index_coverage=0.5)),
        ("snapshot_count", TableHealth(snapshots=1000), TableHealth(snapshots=1001)),
        (
            "snapshot_age_days",
            TableHealth(oldest_snapshot_age=86400),
            TableHealth(oldest_snapshot_age=1e6),
        ),
        ("manifest_count", TableHealth(manifests=500), TableHealth(manifests=501)),
    ],
)
def test_a_value_equal_to_the_default_limit_passes_and_the_next_value_fails(
    name: str, good: TableHealth, bad: TableHealth
) -> None:
    metric, limit = HEALTH_METRICS[name], DEFAULT_LIMITS[name]

    for health, passes in ((good, True), (bad, False)):
        value = metric.read(health)
        assert value is not None
        assert metric.is_within_limit(value, limit) is passes


def test_an_empty_table_passes() -> None:
    for name in DEFAULT_LIMITS.keys() & HEALTH_METRICS.keys():
        metric, limit = HEALTH_METRICS[name], DEFAULT_LIMITS[name]
        value = metric.read(TableHealth())
        assert value is None or metric.is_within_limit(value, limit)


def test_a_limit_of_an_unknown_check_is_refused() -> None:
    reject_unknown_checks("db.t", {"sorted_runs": 1})
    with pytest.raises(InputError, match=r"unknown checks for db\.t: sorted_run; .*small_files"):
        reject_unknown_checks("db.t", {"sorted_run": 1})


def test_a_description_says_on_which_side_of_the_limit_a_value_passes() -> None:
    assert describe_check("sorted_runs", 10).endswith("Passes if at most 10.")
    assert describe_check("file_index_coverage", 0.5).endswith("Passes if at least 0.5.")
