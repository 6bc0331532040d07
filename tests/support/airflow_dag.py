"""Runs DAGs of files as ``dag.test()`` does, in one process that has imported Airflow, in its environment."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from support.peers.protocol import serve


def run(file: str, dag: str, variables: dict[str, str]) -> dict[str, Any]:
    """Run a DAG with environment variables, and return its state and its tasks."""
    os.environ.update(variables)
    dags = {
        value.dag_id: value
        for value in runpy.run_path(file).values()
        if hasattr(value, "dag_id") and hasattr(value, "test")
    }
    ended = dags[dag].test()
    tasks = [(each.task_id, each.map_index, each.state) for each in ended.get_task_instances()]
    return {"state": ended.state, "tasks": sorted(tasks)}


if __name__ == "__main__":
    serve({"run": run})
