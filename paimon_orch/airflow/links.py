"""The link of a task in the UI."""

from typing import Any
from urllib.parse import quote

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink


class PaimonReportLink(BaseOperatorLink):
    """Opens the plan and the outcome of a step: the values of the task in XCom."""

    name = "Plan and outcome"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address of the page."""
        base = conf.get("api", "base_url", fallback="/").rstrip("/")
        task = "/".join(
            quote(part, safe="")
            for part in ("dags", ti_key.dag_id, "runs", ti_key.run_id, "tasks", ti_key.task_id)
        )
        mapped = f"/mapped/{ti_key.map_index}" if ti_key.map_index >= 0 else ""
        return f"{base}/{task}{mapped}/xcom"
