"""A process of soak.py: a writer of this library, or a maintainer with Dagster or with Airflow.

python soak_worker.py writer|dagster|airflow WAREHOUSE STORAGE_OPTIONS

It answers the commands of its role, as the peers of the tests do; STORAGE_OPTIONS are JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.peers.protocol import serve

Record = dict[str, Any]
Commands = Mapping[str, Callable[..., Any]]


def make_writer(warehouse: str, storage_options: dict[str, Any]) -> Commands:
    """Return the commands that change a table."""
    import pyarrow as pa

    from paimon_orch import Catalog

    catalog = Catalog(warehouse, **storage_options)

    def write(warehouse: object, table: str, rows: list[Record]) -> None:  # noqa: ARG001 - of peers
        opened = catalog.table(table)
        opened.append(pa.Table.from_pylist(rows, schema=opened.scan().arrow_schema))

    def delete(warehouse: object, table: str, rows: list[Record]) -> None:  # noqa: ARG001 - of peers
        opened = catalog.table(table)
        if opened.load().schema.primary_keys:
            opened.delete(pa.Table.from_pylist(rows, schema=opened.scan().arrow_schema))
        else:
            opened.delete(f"k IN ({', '.join(str(row['k']) for row in rows)})")

    return {"write": write, "delete": delete}


def make_dagster_maintainer(warehouse: str, storage_options: dict[str, Any]) -> Commands:
    """Return the command that ticks the schedule of the warehouse component and runs its job."""
    import dagster as dg

    from paimon_orch.dagster import PaimonWarehouseComponent

    component = PaimonWarehouseComponent.from_attributes_dict(
        attributes={
            "warehouse": warehouse,
            "storage_options": storage_options,
            "spark": {"executor": "local"},
            "budgets": {"min_score": 0.2, "max_concurrent": 2},
            "visible_within": "10 s",
            "idle_for": "30 s",
        }
    )
    defs = component.definitions()
    job, schedule = (
        defs.resolve_job_def("paimon_maintenance"),
        defs.resolve_schedule_def("paimon_maintenance_schedule"),
    )

    instance = dg.DagsterInstance.get()
    status = dg.DagsterRunStatus
    unfinished = [status.NOT_STARTED, status.STARTING, status.STARTED]
    for run in instance.get_runs(dg.RunsFilter(statuses=unfinished)):
        instance.report_run_failed(run, "the process was killed")  # as Dagster's run monitor does

    def maintain(turn: int) -> Record:  # noqa: ARG001 - of the other maintainer
        tick = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))
        [request] = tick.run_requests or []
        result = job.execute_in_process(
            run_config=request.run_config, instance=instance, raise_on_error=False
        )
        return _read_dagster_run(result)

    return {"maintain": maintain}


def _read_dagster_run(result: Any) -> Record:
    """Return the number of actions of a run, and the errors of those that failed."""
    failures = [
        event.event_specific_data.error.to_string()
        for event in result.all_events
        if event.is_step_failure
    ]
    outcomes = [
        record.data
        for event in result.get_asset_materialization_events()
        for record in event.materialization.metadata["paimon/outcomes"].records
    ]
    errors = [f"{each['table']}: {each['error']}" for each in outcomes if each["error"]]
    return {"actions": len(outcomes), "errors": errors or failures}


def make_airflow_maintainer(warehouse: str, storage_options: dict[str, Any]) -> Commands:  # noqa: ARG001 - in the environment
    """Return the command that runs the operators of a maintenance DAG on one table.

    The connection is in the environment.
    """
    from paimon_orch.airflow.hooks import PaimonHook
    from paimon_orch.airflow.maintenance_dag import DEFAULT_STEPS
    from paimon_orch.airflow.operators import PaimonStepOperator

    def maintain(turn: int) -> Record:
        tables = sorted(PaimonHook().get_conn().find_tables())
        table = tables[turn % len(tables)]
        errors = []
        for step, arguments in DEFAULT_STEPS.items():
            operator = PaimonStepOperator(
                task_id=step, step=step, table=table, arguments=arguments, dry_run=False
            )
            try:
                operator.execute({})
            except Exception as error:  # noqa: BLE001 - reported by the soak
                errors.append(f"{table}: {error}")
        return {"actions": len(DEFAULT_STEPS), "errors": errors}

    return {"maintain": maintain}


ROLES = {
    "writer": make_writer,
    "dagster": make_dagster_maintainer,
    "airflow": make_airflow_maintainer,
}

if __name__ == "__main__":
    role, location, options = sys.argv[1:]
    serve(ROLES[role](location, json.loads(options)))
