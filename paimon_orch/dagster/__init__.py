"""Paimon tables in Dagster: resources, and factories of assets, sensors and schedules.

>>> import dagster as dg
>>> from paimon_orch.dagster import (
...     PaimonCatalogResource,
...     SparkSessionResource,
...     build_compaction_asset,
... )
>>> defs = dg.Definitions(
...     assets=[build_compaction_asset("lake.orders")],
...     resources={
...         "paimon": PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")),
...         "spark": SparkSessionResource(),
...     },
... )
"""
# ruff: noqa: E402 - the modules below import Dagster

from paimon_orch.optional_packages import require_package

require_package("dagster", __name__, install="paimon-orch[dagster]")

from paimon_orch.dagster.asset_runs.asset_run import MaintenanceAssetRun
from paimon_orch.dagster.components.database_component import PaimonDatabaseComponent
from paimon_orch.dagster.components.table_component import PaimonTableComponent
from paimon_orch.dagster.components.warehouse_component import PaimonWarehouseComponent
from paimon_orch.dagster.health_checks import Limit, build_paimon_table_checks
from paimon_orch.dagster.io_manager import PaimonIOManager
from paimon_orch.dagster.jobs import (
    build_compact_manifests_job,
    build_expire_partitions_job,
    build_expire_snapshots_job,
    build_mark_done_job,
    build_remove_orphan_files_job,
    build_step_job,
    build_sync_iceberg_job,
    build_sync_partitions_job,
)
from paimon_orch.dagster.lake.lake_report_asset import build_lake_report_asset
from paimon_orch.dagster.maintenance_assets import build_compaction_asset, build_file_index_asset
from paimon_orch.dagster.names import TableAssetKind
from paimon_orch.dagster.quality_checks import build_paimon_quality_checks
from paimon_orch.dagster.remote_runs import RunOn
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.schedules import build_compaction_schedule, build_maintenance_schedules
from paimon_orch.dagster.sensor import build_latest_snapshot_sensor
from paimon_orch.dagster.spark_io_manager import PaimonPySparkIOManager
from paimon_orch.dagster.table_asset import build_table_asset
from paimon_orch.orchestration.openlineage import emit_lineage
from paimon_orch.orchestration.partition_keys import PartitionKeys
from paimon_orch.steps.compaction.policy import CompactionPolicy

__all__ = [
    "CompactionPolicy",
    "Limit",
    "MaintenanceAssetRun",
    "PaimonCatalogResource",
    "PaimonDatabaseComponent",
    "PaimonIOManager",
    "PaimonPySparkIOManager",
    "PaimonTableComponent",
    "PaimonWarehouseComponent",
    "PartitionKeys",
    "RunOn",
    "SparkSessionResource",
    "TableAssetKind",
    "build_compact_manifests_job",
    "build_compaction_asset",
    "build_compaction_schedule",
    "build_expire_partitions_job",
    "build_expire_snapshots_job",
    "build_file_index_asset",
    "build_lake_report_asset",
    "build_latest_snapshot_sensor",
    "build_maintenance_schedules",
    "build_mark_done_job",
    "build_paimon_quality_checks",
    "build_paimon_table_checks",
    "build_remove_orphan_files_job",
    "build_step_job",
    "build_sync_iceberg_job",
    "build_sync_partitions_job",
    "build_table_asset",
]

emit_lineage()  # a run is a process that imports its definitions
