"""The code location of ``compose.yaml``: compaction of the table shop.orders of the catalog lake."""

import dagster as dg

from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compaction_asset,
    build_expire_snapshots_job,
    build_latest_snapshot_sensor,
    build_maintenance_schedules,
    build_paimon_table_checks,
)

TABLE = "shop.orders"

expire_snapshots = build_expire_snapshots_job(TABLE)
defs = dg.Definitions(
    assets=[build_compaction_asset(TABLE)],
    asset_checks=[build_paimon_table_checks(TABLE)],
    jobs=[expire_snapshots],
    schedules=build_maintenance_schedules([expire_snapshots]),
    sensors=[build_latest_snapshot_sensor(TABLE)],
    resources={
        "paimon": PaimonCatalogResource(catalog="lake"),
        "spark": SparkSessionResource(master=dg.EnvVar("SPARK_MASTER")),
    },
)
