"""Compacts tables of catalogs with Spark and Dagster; all that it shows is searched for secrets.

Started by `tests/storage/test_rest_secrets.py` in a process of its own, because only a new Spark
session can write an event log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from paimon_orch import Catalog
from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compaction_asset,
    build_latest_snapshot_sensor,
)
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.spark import spark_session
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest, run_compaction
from paimon_orch.table.table import Table

_FULL = CompactRequest(strategy="full")


def write_files(table: Table) -> None:
    """Commit two files with the same keys."""
    for text in "ab":
        table.upsert(pa.table({"k": pa.array([1, 2], pa.int32()), "v": [text, text]}))


def compact_and_show(options: dict[str, Any], folder: Path) -> bool:
    """Compact `db.t` of a catalog, show all objects and errors; return whether it succeeded."""
    spark = spark_session(
        "local[2]",
        config={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": folder.as_uri(),
            "spark.eventLog.compress": "false",
        },
    )
    catalog = Catalog(**options)
    table = catalog.table("db.t")
    show(catalog, catalog.backend, table, table.io, table.environment, table.stores)
    show(table.stores.snapshots, table.stores.manifests, table.stores.reader())
    try:
        write_files(table)
        planned = COMPACT.plan(table, _FULL)
        show(planned, planned.to_dict())
        result = run_compaction(table, planned, SparkExecutor(spark))
        show(result, table.scan().to_arrow(), table.snapshot())
    except Exception as error:
        show(error)
        traceback.print_exc()
        logging.getLogger("paimon_orch").exception("failed")
        return False
    return True


def show(*objects: object) -> None:
    """Write objects in all forms."""
    for shown in objects:
        sys.stdout.write(f"{shown!r} {shown}\n")


def compact_in_dagster(options: dict[str, Any], folder: Path) -> bool:
    """Run the asset and the sensor of `db.t` with secrets of the environment."""
    secrets = {"token", "dlf.access-key-secret", "dlf.security-token"}
    variables = {name: f"SECRET_{number}" for number, name in enumerate(sorted(secrets))}
    for name in secrets & set(options):
        os.environ[variables[name]] = options[name]
    fields: dict[str, Any] = {
        name: dg.EnvVar(variables[name]) if name in secrets else value
        for name, value in options.items()
    }
    own = {
        name: fields.pop(name)
        for name in ("metastore", "uri", "warehouse", "token")
        if name in fields
    }
    paimon = PaimonCatalogResource(**own, catalog_options=fields)
    write_files(Catalog(**options).table("db.t"))
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        result = dg.materialize(
            [build_compaction_asset("db.t", retry_policy=dg.RetryPolicy(max_retries=0))],
            resources={
                "paimon": paimon,
                "spark": SparkSessionResource(master="local[2]", executor=ExecutorChoice.spark),
            },
            instance=instance,
            raise_on_error=False,
        )
        show(paimon, *instance.all_logs(result.run_id), instance.get_run_by_id(result.run_id))
        sensor = build_latest_snapshot_sensor("db.t")
        try:
            with dg.build_sensor_context(
                instance=instance, resources={"paimon": paimon}
            ) as context:
                show(sensor(context))
        except Exception as error:  # noqa: BLE001 - what it shows is searched
            show(error)
            traceback.print_exc()
        return result.success


def main() -> None:
    """Read runs from stdin; write whether each succeeded to a file."""
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("botocore").setLevel(logging.INFO)  # it logs session tokens
    folder = Path(sys.argv[1])
    outcomes = list[bool]()
    for run in json.load(sys.stdin):
        home = folder / f"dagster-{len(outcomes)}"
        home.mkdir()
        compact = {"steps": compact_and_show, "dagster": compact_in_dagster}[run["with"]]
        outcomes.append(compact(run["options"], home if run["with"] == "dagster" else folder))
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
