"""Runs of declared steps, and their plans as tables of a report."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.orchestration.step_runs import run_declared_step, tabulate_plan
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step_report import PlanReport

ACTION = "delete 2 files"


@pytest.mark.parametrize(
    ("report", "columns", "rows"),
    [
        (
            PlanReport(
                action=ACTION, lines=["a", "b"], columns={"size": "int"}, items=[{"size": 1}]
            ),
            {"size": "int"},
            [{"size": 1}],
        ),
        (
            PlanReport(
                action=ACTION, lines=["a", "b"], header=["file", "size"], rows=[["a", "1 B"]]
            ),
            {"file": "string", "size": "string"},
            [{"file": "a", "size": "1 B"}],
        ),
        (
            PlanReport(action=ACTION, lines=["a", "b"]),
            {"item": "string"},
            [{"item": "a"}, {"item": "b"}],
        ),
        (PlanReport(action=ACTION), {}, []),
    ],
    ids=["items", "units", "lines", "nothing"],
)
def test_a_plan_is_a_table_of_its_items_or_units_or_lines(
    report: PlanReport, columns: dict[str, str], rows: list[dict[str, object]]
) -> None:
    table = tabulate_plan(report)

    assert dict(table.columns) == columns
    assert [dict(row) for row in table.rows] == rows


def test_rows_are_deleted_by_a_filter(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    values = {"where": "v = 'a'"}

    with pytest.raises(InputError, match="missing arguments: where"):
        run_declared_step("delete", table, {}, InProcessExecutor(), dry_run=False)
    planned = run_declared_step("delete", table, values, InProcessExecutor(), dry_run=True)
    assert (planned["outcome"], rows_of(table)) == (None, [(1, "a"), (2, "b")])
    report = run_declared_step("delete", table, values, InProcessExecutor(), dry_run=False)

    assert report["outcome"]["deleted"] == 1  # type: ignore[index]
    assert rows_of(table) == [(2, "b")]


def test_rows_are_updated_by_a_filter(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "b")]))
    values = {"assignments": {"v": "'c'"}, "where": "k = 1"}

    spark = {"assignments": {"v": "upper(v)"}}
    with pytest.raises(UnsupportedError, match=r"UPPER\(v\)' needs Spark"):
        run_declared_step("update", table, spark, InProcessExecutor(), dry_run=True)
    report = run_declared_step("update", table, values, InProcessExecutor(), dry_run=False)

    assert report["outcome"]["updated"] == 1  # type: ignore[index]
    assert rows_of(table) == [(1, "c"), (2, "b")]
