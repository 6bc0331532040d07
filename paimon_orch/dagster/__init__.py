"""Paimon tables in Dagster: resources, and factories of assets, sensors and schedules.

>>> import dagster as dg
>>> from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource, build_compaction_asset
>>> defs = dg.Definitions(
...     assets=[build_compaction_asset("lake.orders")],
...     resources={
...         "paimon": PaimonCatalogResource(warehouse=dg.EnvVar("PAIMON_WAREHOUSE")),
...         "spark": SparkSessionResource(),
...     },
... )
"""

from paimon_orch.dagster.assets import build_compaction_asset, build_table_asset
from paimon_orch.dagster.partitions import PartitionKeys
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.schedules import build_compaction_schedule
from paimon_orch.dagster.sensors import build_latest_snapshot_sensor

__all__ = [
    "PaimonCatalogResource",
    "PartitionKeys",
    "SparkSessionResource",
    "build_compaction_asset",
    "build_compaction_schedule",
    "build_latest_snapshot_sensor",
    "build_table_asset",
]
