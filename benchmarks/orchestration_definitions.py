"""The code location that ``orchestration.py`` measures: one table, default intervals."""

import dagster as dg

from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compaction_asset,
    build_latest_snapshot_sensor,
)

TABLE = "lake.orders"
days = dg.StaticPartitionsDefinition([f"2026-01-{day:02d}" for day in range(1, 31)])

defs = dg.Definitions(
    assets=[build_compaction_asset(TABLE, partitions_def=days)],
    sensors=[
        build_latest_snapshot_sensor(
            TABLE, partitions_def=days, default_status=dg.DefaultSensorStatus.RUNNING
        )
    ],
    resources={
        "paimon": PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")),
        "spark": SparkSessionResource(),
    },
    executor=dg.in_process_executor,
)
