"""A factory of assets for tables that Dagster loads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import dagster as dg
from dagster.components.resolved.core_models import OpSpec

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.external_reports import report_iceberg_snapshot, report_missing_partitions
from paimon_orch.dagster.maintenance_assets import asset_decorator, build_shared_attributes
from paimon_orch.dagster.names import compaction_asset_key, table_asset_key
from paimon_orch.dagster.op_specs import take_settings
from paimon_orch.dagster.partitions_definitions import build_partition_keys
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_metadata import (
    Metadata,
    build_column_schema,
    build_row_count_metadata,
    to_metadata,
)
from paimon_orch.dagster.spark_links import build_spark_link_metadata
from paimon_orch.format.display import format_count
from paimon_orch.orchestration.run_reports import RunReport, build_table_report
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.table.table_stores import TableStores

if TYPE_CHECKING:  # Spark is imported by the run that needs it
    from pyspark.sql import SparkSession

    from paimon_orch.steps.inspection.inspect import TableReport

IngestFunction = Callable[[Catalog, "SparkSession", Sequence[str]], Iterable[IngestResult]]
"""Loads the partitions with the given keys (no keys for an unpartitioned asset).

The function must create the table if it does not exist, and yield one result per committed
snapshot. A repeated run must load the same rows again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAssetSettings:
    """The asset of a table that Dagster loads."""

    table: str = field(kw_only=False)
    ingest: IngestFunction = field(kw_only=False)
    partitions_def: dg.PartitionsDefinition[str] | None = None
    key_prefix: Sequence[str] = ()
    deps: Iterable[dg.AssetDep | dg.AssetKey | dg.AssetSpec] = ()
    description: str | None = None
    owners: Sequence[str] = ()
    freshness_policy: dg.FreshnessPolicy | None = None
    column_lineage: dg.TableColumnLineage | None = None
    op: OpSpec = field(default_factory=OpSpec)


@take_settings(TableAssetSettings)
def build_table_asset(settings: TableAssetSettings) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table]`` of a table that Dagster loads with Spark.

    The data version of the asset is the newest snapshot that the run committed, so maintenance does
    not make downstream assets stale. ``column_lineage`` maps the columns to columns of ``deps``.
    ``op`` has the name, tags, description, pool and backfill policy of the op. Runs require the resources ``paimon`` and ``spark``.
    """
    table = settings.table
    lineage = (
        {}
        if settings.column_lineage is None
        else {"dagster/column_lineage": settings.column_lineage}
    )
    spec = dg.AssetSpec(
        table_asset_key(table, settings.key_prefix),
        deps=settings.deps,
        description=settings.description,
        owners=settings.owners,
        partitions_def=settings.partitions_def,
        freshness_policy=settings.freshness_policy,
        **build_shared_attributes(table),
    )

    @asset_decorator(table, spec, settings.key_prefix, settings.op)
    def table_asset(
        context: dg.AssetExecutionContext,
        paimon: PaimonCatalogResource,
        spark: SparkSessionResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        from paimon_orch.steps.inspection.inspect import inspect

        keys = context.partition_keys if settings.partitions_def else []
        with raise_dagster_errors(table, context):
            results = list(
                _log_snapshots(
                    context, table, settings.ingest(paimon.catalog(), spark.session(), keys)
                )
            )
            loaded = paimon.load_table(table)
            report = inspect(loaded)
            _add_partition_metadata(context, report, keys, settings.partitions_def)
            _warn_about_rows_not_visible(
                context, report, compaction_asset_key(table, settings.key_prefix)
            )
            metadata = lineage | build_spark_link_metadata(spark)
            metadata |= _report_other_systems(context, loaded.stores, results)
            return _build_ingest_result(context, results, report, keys, metadata)

    return table_asset


def _log_snapshots(
    context: dg.AssetExecutionContext, table: str, results: Iterable[IngestResult]
) -> Iterator[IngestResult]:
    """Yield the results, each after a log line."""
    for result in results:
        context.log.info("%s: %d rows in snapshot %s", table, result.rows, result.snapshot_id)
        yield result


def _add_partition_metadata(
    context: dg.AssetExecutionContext,
    report: "TableReport",
    keys: Sequence[str],
    partitions_def: dg.PartitionsDefinition[str] | None,
) -> None:
    """Add to each partition of the run the metadata from its part of the report."""
    if not keys:
        return
    partition_keys = build_partition_keys(report.schema, partitions_def)
    for key in keys:
        partition = report.select_partition(partition_keys.path_of(key))
        metadata = to_metadata(build_table_report(partition))
        metadata |= build_row_count_metadata(partition, partition=True)
        context.add_asset_metadata(metadata, partition_key=key)


def _warn_about_rows_not_visible(
    context: dg.AssetExecutionContext, report: "TableReport", compaction: dg.AssetKey
) -> None:
    if report.rows_not_visible:
        context.log.warning(
            "%s: batch readers do not see %d records before a compaction; materialize %s",
            report.identifier,
            report.rows_not_visible,
            compaction.to_user_string(),
        )


def _report_other_systems(
    context: dg.AssetExecutionContext, stores: TableStores, results: Iterable[IngestResult]
) -> Metadata:
    """Warn about Iceberg metadata, partitions and options that a catalog or readers do not have."""
    metadata = report_iceberg_snapshot(context, stores) | report_missing_partitions(context, stores)
    if _find_latest_snapshot_id(results) is None:
        return metadata
    return metadata | report_stale_options(context, stores)


def _find_latest_snapshot_id(results: Iterable[IngestResult]) -> int | None:
    """Return the id of the newest snapshot of an ingest, or None if it committed nothing."""
    return max((r.snapshot_id for r in results if r.snapshot_id is not None), default=None)


def _find_latest_data_version(context: dg.AssetExecutionContext, keys: Sequence[str]) -> int | None:
    """Return the newest data version of the partitions with these keys.

    If there are no keys, returns the data version of the unpartitioned asset.
    Data versions are snapshot ids. Returns None before the first materialization.
    """
    versions = []
    partition_filters: Sequence[list[str] | None] = [[key] for key in keys] if keys else [None]
    for partitions in partition_filters:
        records_filter = dg.AssetRecordsFilter(context.asset_key, asset_partitions=partitions)
        for record in context.instance.fetch_materializations(records_filter, limit=1).records:
            event = record.asset_materialization
            tags = (event.tags if event else None) or {}
            versions.append(tags.get("dagster/data_version", ""))
    return max((int(version) for version in versions if version.isdecimal()), default=None)


def _build_ingest_result(
    context: dg.AssetExecutionContext,
    results: Sequence[IngestResult],
    report: "TableReport",
    keys: Sequence[str],
    metadata: Metadata,
) -> dg.MaterializeResult:  # type: ignore[type-arg]  # as above
    """Return the result of an ingest; a run that added nothing keeps the last data version."""
    snapshot_id = _find_latest_snapshot_id(results)
    version = _find_latest_data_version(context, keys) if snapshot_id is None else snapshot_id
    return dg.MaterializeResult(
        metadata={
            **to_metadata(_build_ingest_report(results, report, keys)),
            **build_row_count_metadata(report, partition=False),
            "dagster/uri": clean_line(report.location),
            "dagster/column_schema": build_column_schema(report.schema),
            **metadata,
        },
        data_version=None if version is None else dg.DataVersion(str(version)),
    )


def _build_ingest_report(
    results: Sequence[IngestResult], report: "TableReport", keys: Sequence[str]
) -> RunReport:
    ingest = replace(
        RunReport() if keys else build_table_report(report),
        summary=_summarize_ingest(results, keys),
        snapshot_id=_find_latest_snapshot_id(results),
        schema_id=report.schema.id,
        duration_seconds=sum(result.duration_seconds for result in results),
    )
    # The totals are sums over all partitions, and Dagster would show them on each partition.
    if len(keys) > 1:
        return ingest
    return replace(
        ingest,
        snapshots=sum(result.snapshot_id is not None for result in results),
        rows_written=sum(result.rows for result in results),
        files_written=sum(result.files for result in results),
        bytes_written=sum(result.bytes for result in results),
    )


def _summarize_ingest(results: Sequence[IngestResult], keys: Sequence[str]) -> str:
    rows = sum(result.rows for result in results)
    snapshots = sum(result.snapshot_id is not None for result in results)
    if not snapshots:
        return "Nothing to load."
    partitions = f" of {format_count(len(keys), 'partition')}" if keys else ""
    seconds = sum(result.duration_seconds for result in results)
    return (
        f"Loaded {format_count(rows, 'row')}{partitions} in {format_count(snapshots, 'snapshot')} "
        f"and {seconds:.1f} s."
    )
