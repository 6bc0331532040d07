"""The link of a task to its plan and outcome."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paimon_orch.airflow.links import PaimonReportLink


@pytest.mark.parametrize(
    ("map_index", "task"), [(-1, "compact"), (0, "compact/mapped/0"), (3, "compact/mapped/3")]
)
def test_the_address_has_the_run_the_task_and_its_map_index(map_index: int, task: str) -> None:
    key = SimpleNamespace(dag_id="shop", run_id="r+1", task_id="compact", map_index=map_index)

    address = PaimonReportLink().get_link(None, ti_key=key)

    assert address.endswith(f"/dags/shop/runs/r%2B1/tasks/{task}/xcom")
