"""Runs a DAG of the DAGs folder in one process, as ``dag.test()`` does, and prints its tasks.

python airflow_dag.py FILE DAG_ID
"""

from __future__ import annotations

import json
import runpy
import sys

if __name__ == "__main__":
    file, dag_id = sys.argv[1:]
    dags = {
        value.dag_id: value
        for value in runpy.run_path(file).values()
        if hasattr(value, "dag_id") and hasattr(value, "test")
    }
    run = dags[dag_id].test()
    tasks = [(each.task_id, each.map_index, each.state) for each in run.get_task_instances()]
    sys.stdout.write("\n" + json.dumps({"state": run.state, "tasks": sorted(tasks)}) + "\n")
