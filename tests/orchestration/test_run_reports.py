"""Reports of runs have the figures of a table or partition, and the plan."""

from __future__ import annotations

from collections.abc import Callable

from paimon_orch.orchestration.run_reports import (
    MAX_TABLE_ROWS,
    build_plan_table,
    build_table_report,
)
from paimon_orch.steps.compaction.compact import CompactRequest, plan
from paimon_orch.steps.inspection.inspect import inspect
from paimon_orch.table.table import Table


def test_the_state_of_a_partition_counts_only_its_files(
    orders: Table, upsert: Callable[..., None]
) -> None:
    upsert(orders, "2026-01-01", "2026-01-02")
    upsert(orders, "2026-01-02")
    report = inspect(orders)

    assert build_table_report(report).level0_files == 3
    assert build_table_report(report.select_partition("dt=2026-01-02")).level0_files == 2
    assert build_table_report(report.select_partition("dt=2026-01-09")).files == 0


def test_the_plan_table_has_a_row_for_each_unit(orders: Table, upsert: Callable[..., None]) -> None:
    upsert(orders, "2026-01-01")

    [row] = build_plan_table(plan(orders, CompactRequest()).units, partition=False).rows

    assert row["partition"] == "dt=2026-01-01"
    assert row["files"] == 1
    assert row["reason"]


def test_the_plan_table_is_truncated(orders: Table, upsert: Callable[..., None]) -> None:
    upsert(orders, "2026-01-01")
    units = plan(orders, CompactRequest()).units * (MAX_TABLE_ROWS + 1)

    assert len(build_plan_table(units, partition=True).rows) == MAX_TABLE_ROWS
