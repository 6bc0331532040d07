"""The code location of the live tests: compactions without Spark that wait for a gate."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compaction_asset,
    build_latest_snapshot_sensor,
)
from paimon_orch.steps.common.executor import InProcessExecutor

U = TypeVar("U")
MONTHS = [f"2026-{month:02d}" for month in range(1, 13)]
SENSOR_TABLES = ("lake.orders", "lake.events")


class GatedExecutor(InProcessExecutor):
    """Creates a file named after the process, and waits while the file ``shut`` exists."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def map(
        self, run: Callable[[U], bytes], units: Sequence[U], *, label: str, **options: Any
    ) -> list[bytes]:
        (self._folder / f"{os.getpid()} {label}").touch()
        while (self._folder / "shut").exists():
            time.sleep(0.05)
        return super().map(run, units, label=label, **options)


class GatedSparkResource(SparkSessionResource):
    # Dagster would use a global with the name Executor
    def build_executor(self, choice: object = None) -> GatedExecutor:  # noqa: ARG002
        return GatedExecutor(Path(os.environ["LIVE_GATE"]))


days = {table: dg.DynamicPartitionsDefinition(name=f"paimon/{table}") for table in SENSOR_TABLES}
defs = dg.Definitions(
    assets=[
        *(build_compaction_asset(table, partitions_def=days[table]) for table in SENSOR_TABLES),
        build_compaction_asset("lake.months", partitions_def=dg.StaticPartitionsDefinition(MONTHS)),
    ],
    sensors=[
        build_latest_snapshot_sensor(
            table,
            partitions_def=days[table],
            max_partitions_per_run=2,
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
        for table in SENSOR_TABLES
    ],
    resources={
        "paimon": PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")),
        "spark": GatedSparkResource(),
    },
    executor=dg.in_process_executor,
)
