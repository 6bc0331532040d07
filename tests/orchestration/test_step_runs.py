"""Plans of declared steps as tables of a report."""

from __future__ import annotations

import pytest

from paimon_orch.orchestration.step_runs import tabulate_plan
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
