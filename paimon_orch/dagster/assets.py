"""Factories of assets: a table that we load, its compaction, and its file indexes."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.metadata import (
    Metadata,
    PaimonMetadata,
    build_column_metadata,
    build_column_schema,
    build_compaction_metadata,
    build_index_metadata,
    build_row_count_metadata,
    build_table_state,
    filter_report,
    filter_result,
)
from paimon_orch.dagster.names import (
    check_table_name,
    compaction_asset_key,
    file_index_asset_key,
    group_name,
    pool_name,
    table_asset_key,
)
from paimon_orch.dagster.partitions import PartitionKeys
from paimon_orch.dagster.progress import build_progress_logger
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.retries import RETRY_TRANSIENT, raise_dagster_errors
from paimon_orch.dagster.run_config import (
    AllowanceConfig,
    build_allowance_config,
    build_config_class,
    report_stale_options,
)
from paimon_orch.dagster.run_context import build_executor, build_spark_link_metadata
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.ingest import IngestResult
from paimon_orch.steps.inspection.inspect import TableReport, inspect
from paimon_orch.steps.maintenance.rewrite_file_index import (
    FileIndexRewriteResult,
    rewrite_file_index,
)
from paimon_orch.steps.maintenance.rewrite_file_index import plan as plan_index
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.table import Table

if TYPE_CHECKING:  # Spark is imported by the run that needs it
    from pyspark.sql import SparkSession

MAX_PARTITIONS_PER_RUN = 8

IngestFunction = Callable[[Catalog, "SparkSession", Sequence[str]], Iterable[IngestResult]]
"""Loads the partitions of the given keys (none for an unpartitioned asset); creates the table if need be.

Each result is one committed snapshot. A run that is repeated must load the same rows again.
"""


class StrategyChoice(Enum):
    """How much a compaction rewrites; the names are what the launchpad shows."""

    minor = "minor"
    full = "full"


class CompactionConfig(AllowanceConfig):
    """What may be changed in the launchpad for one run."""

    strategy: StrategyChoice = Field(
        default=StrategyChoice.minor,
        description="minor: what the table's options ask for. full: rewrite everything into the highest level.",
    )


class FileIndexConfig(AllowanceConfig):
    """What may be changed in the launchpad for one run."""


def build_table_asset(  # noqa: PLR0913 - keywords of a factory
    table: str,
    ingest: IngestFunction,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    deps: Iterable[dg.AssetDep | dg.AssetKey | dg.AssetSpec] = (),
    description: str | None = None,
    owners: Sequence[str] = (),
    freshness_policy: dg.FreshnessPolicy | None = None,
    column_lineage: dg.TableColumnLineage | None = None,
) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table]`` of a table that Dagster loads through Spark.

    Its data version is the newest snapshot that the run committed, so that maintenance makes nothing downstream stale.
    ``column_lineage`` tells which columns of its ``deps`` the columns come from. Runs take the resources ``paimon`` and
    ``spark``.
    """
    lineage = {} if column_lineage is None else {"dagster/column_lineage": column_lineage}

    @_asset_decorator(
        table,
        key=table_asset_key(table, key_prefix),
        deps=deps,
        description=description,
        owners=owners,
        partitions_def=partitions_def,
        freshness_policy=freshness_policy,
    )
    def table_asset(
        context: dg.AssetExecutionContext,
        paimon: PaimonCatalogResource,
        spark: SparkSessionResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        keys = context.partition_keys if partitions_def else []
        with raise_dagster_errors(table, context):
            results = []
            for result in ingest(paimon.catalog(), spark.session(), keys):
                results.append(result)
                context.log.info(
                    "%s: %d rows in snapshot %s", table, result.rows, result.snapshot_id
                )
            report = inspect(paimon.load_table(table))
            _add_partition_metadata(context, report, keys, partitions_def)
            if report.rows_not_visible:
                context.log.warning(
                    "%s: %d records are not visible to batch readers before a compaction: materialize %s",
                    *(table, report.rows_not_visible),
                    compaction_asset_key(table, key_prefix).to_user_string(),
                )
            snapshots = [result.snapshot_id for result in results if result.snapshot_id is not None]
            # a run that adds nothing makes nothing stale
            version = max(snapshots) if snapshots else _find_latest_data_version(context, keys)
            more = lineage | build_spark_link_metadata(spark)
            if snapshots:
                more |= report_stale_options(context, paimon.load_table(table))
            return _build_ingest_result(results, report, keys, version, more=more)

    return table_asset


def build_compaction_asset(
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    owners: Sequence[str] = (),
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN,
    retry_policy: dg.RetryPolicy = RETRY_TRANSIENT,
    allowances: Allowances = NO_ALLOWANCES,
) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table, "compaction"]``, downstream of the table's own.

    A run compacts its partitions, all of the table without ``partitions_def``, with one commit for at most
    ``max_partitions_per_run`` of them. A run that finds nothing to do commits nothing and says so. ``allowances`` are the
    defaults of the config. Runs take the resources ``paimon`` and ``spark``.
    """
    config_class = build_config_class(CompactionConfig, build_allowance_config(allowances))

    @_asset_decorator(
        table,
        key=compaction_asset_key(table, key_prefix),
        deps=[table_asset_key(table, key_prefix)],
        description=f"Compaction of `{table}`: moves level-0 files up and, with deletion vectors, marks the rows that they "
        "replace instead of rewriting the files that hold them. Small files of an append table are packed.",
        owners=owners,
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run),
    )
    def compaction(
        context: dg.AssetExecutionContext,
        config: config_class,  # type: ignore[valid-type]
        paimon: PaimonCatalogResource,
        spark: SparkSessionResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        chosen: CompactionConfig = config
        with raise_dagster_errors(table, context, retry_policy):
            run = _AssetRun(context, chosen.load_table(paimon, table), spark, partitions_def)
            done = partial(_compact_partitions, run, chosen.strategy)
            return run.report(done, max_partitions_per_run, table_asset_key(table, key_prefix))

    return compaction


def build_file_index_asset(  # noqa: PLR0913 - keywords of a factory
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    deps: Iterable[dg.AssetDep | dg.AssetKey | dg.AssetSpec] | None = None,
    owners: Sequence[str] = (),
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN,
    retry_policy: dg.RetryPolicy = RETRY_TRANSIENT,
    allowances: Allowances = NO_ALLOWANCES,
) -> dg.AssetsDefinition:
    """Return the asset ``[*key_prefix, database, table, "file_index"]``, downstream of the compaction unless deps say.

    A run gives the files of its partitions, of the whole table without ``partitions_def``, the indexes that the
    table's options ask for. Files that have them are left alone: with nothing to do nothing is committed. ``allowances``
    are the defaults of the config. Runs take the resources ``paimon`` and ``spark``.
    """
    config_class = build_config_class(FileIndexConfig, build_allowance_config(allowances))

    @_asset_decorator(
        table,
        key=file_index_asset_key(table, key_prefix),
        deps=[compaction_asset_key(table, key_prefix)] if deps is None else deps,
        description=f"File indexes of `{table}`, made for files that lack those of the table's options.",
        owners=owners,
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run),
    )
    def file_index(
        context: dg.AssetExecutionContext,
        config: config_class,  # type: ignore[valid-type]
        paimon: PaimonCatalogResource,
        spark: SparkSessionResource,
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        chosen: FileIndexConfig = config
        with raise_dagster_errors(table, context, retry_policy):
            run = _AssetRun(context, chosen.load_table(paimon, table), spark, partitions_def)
            done = partial(_rewrite_partition_indexes, run)
            return run.report(done, max_partitions_per_run, table_asset_key(table, key_prefix))

    return file_index


@dataclass(frozen=True, slots=True)
class _AssetRun:
    """A run of the compaction or of the file indexes of a table."""

    context: dg.AssetExecutionContext
    table: Table
    spark: SparkSessionResource
    partitions_def: dg.PartitionsDefinition[str] | None

    def report(
        self, work: Callable[[Sequence[str]], dict[str, Metadata]], size: int, source: dg.AssetKey
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        """Do the work on so many partitions at a time, that a failure loses one group at most, and report of each.

        The columns are those of the table's asset, ``source``.
        """
        if self.partitions_def is None:
            [found] = work(()).values()
        else:
            found, keys = {}, self.context.partition_keys
            for start in range(0, len(keys), size):
                for key, metadata in work(keys[start : start + size]).items():
                    self.context.add_asset_metadata(metadata, partition_key=key)
        columns = build_column_metadata(self.table.schema, source)
        return dg.MaterializeResult(
            metadata=found | columns | build_spark_link_metadata(self.spark)
        )

    @property
    def executor(self) -> Executor:
        """Return what runs work units."""
        return build_executor(self.context, self.spark)

    def translate(self, keys: Sequence[str]) -> PartitionKeys | None:
        """Return the translation of partition keys, if there are any."""
        return PartitionKeys.of(self.table.schema, self.partitions_def) if keys else None


def _asset_decorator(table: str, **options: Any) -> Callable[..., dg.AssetsDefinition]:
    """Return ``dg.asset`` with what all assets of a table have in common."""
    check_table_name(table)
    common = {
        "group_name": group_name(table),
        "kinds": {"paimon", "spark"},
        "code_version": "1",
        "metadata": {"dagster/table_name": table, "dagster/storage_kind": "paimon"},
        "pool": pool_name(table),
        "backfill_policy": dg.BackfillPolicy.multi_run(MAX_PARTITIONS_PER_RUN),
    }
    given = common | options
    if given["partitions_def"] is None:
        del given["backfill_policy"]
    with warnings.catch_warnings():
        # backfill_policy is in beta: our concern, not that of whoever loads the definitions
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.asset(**given)


def _add_partition_metadata(
    context: dg.AssetExecutionContext,
    report: TableReport,
    keys: Sequence[str],
    partitions_def: dg.PartitionsDefinition[str] | None,
) -> None:
    """Give each partition of the run the figures of its own part of the report."""
    if not keys:
        return
    translate = PartitionKeys.of(report.schema, partitions_def)
    for key in keys:
        part = filter_report(report, translate.path_of(key))
        context.add_asset_metadata(
            build_table_state(part).to_dagster() | build_row_count_metadata(part, partition=True),
            partition_key=key,
        )


def _find_latest_data_version(context: dg.AssetExecutionContext, keys: Sequence[str]) -> int | None:
    """Return the snapshot that is the data version so far, of several partitions the newest; None before the first."""
    versions = []
    for chosen in [[key] for key in keys] if keys else [None]:
        wanted = dg.AssetRecordsFilter(context.asset_key, asset_partitions=chosen)
        for record in context.instance.fetch_materializations(wanted, limit=1).records:
            event = record.asset_materialization
            tags = (event.tags if event else None) or {}
            versions.append(tags.get("dagster/data_version", ""))
    return max((int(version) for version in versions if version.isdecimal()), default=None)


def _build_ingest_result(
    results: Sequence[IngestResult],
    report: TableReport,
    keys: Sequence[str],
    version: int | None,
    more: Metadata,
) -> dg.MaterializeResult:  # type: ignore[type-arg]  # as above
    snapshots = [result.snapshot_id for result in results if result.snapshot_id is not None]
    written = replace(
        PaimonMetadata() if keys else build_table_state(report),
        snapshot_id=max(snapshots, default=None),
        schema_id=report.schema.id,
        duration_seconds=sum(result.duration_seconds for result in results),
    )
    if len(keys) <= 1:  # of several partitions none should show the sums of all
        written = replace(
            written,
            snapshots=len(snapshots),
            rows_written=sum(result.rows for result in results),
            files_written=sum(result.files for result in results),
            bytes_written=sum(result.bytes for result in results),
        )
    return dg.MaterializeResult(
        metadata={
            **written.to_dagster(),
            **build_row_count_metadata(report, partition=False),
            "dagster/uri": report.location,
            "dagster/column_schema": build_column_schema(report.schema),
            **more,
        },
        data_version=None if version is None else dg.DataVersion(str(version)),
    )


def _compact_partitions(
    run: _AssetRun, strategy: StrategyChoice, keys: Sequence[str]
) -> dict[str, Metadata]:
    """Compact partitions, without keys the whole table, and return what to report of each."""
    context, table, translate = run.context, run.table, run.translate(keys)
    before = inspect(table)
    what = " ".join([table.identifier, *keys])
    result = compact(
        table,
        run.executor,
        partitions=[translate.parse(key) for key in keys] if translate else None,
        strategy=strategy.value,
        progress=build_progress_logger(context, f"compact {what}"),
    )
    after = inspect(table, result.snapshot_id)
    stale: Metadata = {}
    if result.snapshot_id is None:
        context.log.info("%s: nothing to compact", what)
    else:
        stale = report_stale_options(context, table)
        context.log.info(
            "%s: buckets compacted: %d, in %.1f s, by snapshot %d",
            *(what, result.buckets, result.duration_seconds, result.snapshot_id),
        )
    if translate is None:
        return {"": build_compaction_metadata(before, after, result, partition=False) | stale}
    paths = {key: translate.path_of(key) for key in keys}
    return {
        key: build_compaction_metadata(
            filter_report(before, path),
            filter_report(after, path),
            filter_result(result, path),
            partition=True,
            alone=len(keys) == 1,
        )
        | stale
        for key, path in paths.items()
    }


def _rewrite_partition_indexes(run: _AssetRun, keys: Sequence[str]) -> dict[str, Metadata]:
    """Rewrite the file indexes of partitions, without keys of the whole table, and return what to report of each."""
    context, table, translate = run.context, run.table, run.translate(keys)
    specs = [translate.parse(key) for key in keys] if translate else None
    planned = plan_index(table, partitions=specs)
    what = " ".join([table.identifier, *keys])
    if planned:
        progress = build_progress_logger(context, f"rewrite file indexes of {what}")
        result = rewrite_file_index(table, run.executor, partitions=specs, progress=progress)
        context.log.info("%s: files with new indexes: %d", what, result.files)
        stale = report_stale_options(context, table)
    else:
        result, stale = FileIndexRewriteResult(), {}
        context.log.info("%s: all files have the indexes that the table asks for", what)
    if translate is None:
        return {"": build_index_metadata(planned, result) | stale}
    alone = len(keys) == 1
    return {
        key: build_index_metadata(planned, result, translate.path_of(key), alone=alone) | stale
        for key in keys
    }
