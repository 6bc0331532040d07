"""Maintains the table ``lake.orders`` until a file exists, with Airflow or with Dagster.

python two_orchestrators.py airflow|dagster WAREHOUSE STOP_FILE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

TABLE = "lake.orders"
RETENTION: dict[str, Any] = {"retain_max": 4, "retain_min": 2}


def make_airflow_turn() -> Callable[[int], object]:
    """Return a turn of the operators; the connection is in the environment."""
    from paimon_orch.airflow.due_partitions import due_partitions
    from paimon_orch.airflow.operators import PaimonCompactOperator, PaimonExpireSnapshotsOperator

    expire = PaimonExpireSnapshotsOperator(
        task_id="expire", table=TABLE, older_than="0 s", **RETENTION
    )

    def run(turn: int) -> object:
        for number, due in enumerate(due_partitions(TABLE)):
            PaimonCompactOperator(task_id=f"compact_{turn}_{number}", table=TABLE, **due).execute(
                {}
            )
        return expire.execute({})

    return run


def make_dagster_turn(warehouse: str) -> Callable[[int], object]:
    """Return a turn of the compaction asset and the job that expires snapshots."""
    import dagster as dg

    from paimon_orch.dagster import (
        PaimonCatalogResource,
        SparkSessionResource,
        build_compaction_asset,
        build_expire_snapshots_job,
    )

    resources = {
        "paimon": PaimonCatalogResource(warehouse=warehouse),
        "spark": SparkSessionResource(),
    }
    compaction = build_compaction_asset(TABLE)
    config = {**RETENTION, "retain_for": "0 s", "dry_run": False}
    expire = build_expire_snapshots_job(TABLE, config=config)

    def run(turn: int) -> object:
        with dg.DagsterInstance.ephemeral() as instance:
            assert dg.materialize([compaction], resources=resources, instance=instance).success
            return expire.execute_in_process(resources=resources, instance=instance)

    return run


if __name__ == "__main__":
    orchestrator, warehouse, stop = sys.argv[1:]
    take_turn = make_airflow_turn() if orchestrator == "airflow" else make_dagster_turn(warehouse)
    for turn in count(1):
        take_turn(turn)
        Path(f"{stop}.{orchestrator}").write_text(str(turn))
        if Path(stop).exists():
            sys.stdout.write("\n" + json.dumps({"turns": turn}) + "\n")
            break
