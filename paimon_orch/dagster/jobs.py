"""Factories of jobs that maintain a whole table.

Each job has one op, ``<action>``, whose config can request a dry run. The op reports its metrics in
an observation of the table's asset. The ``config`` of a factory is the maintenance policy of the
table: it sets the default run config of the job, the defaults of fields that a run omits, and the
run config of the job's schedule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.maintenance_ops import (
    COMPACT_MANIFESTS,
    EXPIRE_PARTITIONS,
    EXPIRE_SNAPSHOTS,
    MARK_DONE,
    REMOVE_ORPHAN_FILES,
    SYNC_ICEBERG,
    SYNC_PARTITIONS,
    C,
    DeletionConfig,
    MaintenanceOp,
    RemoveOrphanFilesConfig,
)
from paimon_orch.dagster.names import TABLE_TAG, definition_name, pool_name, table_asset_key
from paimon_orch.dagster.resources import (
    ExecutorChoice,
    PaimonCatalogResource,
    SparkSessionResource,
)
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.dagster.spark_links import (
    build_maintenance_executor,
    build_progress_logger,
    build_spark_link_metadata,
)
from paimon_orch.table.table import Table

ACTION_TAG = "paimon/action"
"""The tag of a job; its runs have only :data:`TABLE_TAG`, as their target is the job."""


def build_expire_snapshots_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``expire_snapshots__<database>__<table>``.

    The job deletes expired snapshots and the files that only they reference. Runs from the
    launchpad are dry runs by default. ``config`` sets ``retain_min``, ``retain_max``,
    ``retain_for`` and ``max_deletes``; the defaults are the table's options. All jobs of this
    module require the resources ``paimon`` and ``spark``; Spark only starts for large work, or if
    ``executor`` is ``spark``.
    """
    return _build_maintenance_job(EXPIRE_SNAPSHOTS, table, config or {}, key_prefix)


def build_remove_orphan_files_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``remove_orphan_files__<database>__<table>``.

    The job deletes unreferenced files or moves them to quarantine. If the table is damaged, the job
    fails and removes no file. Runs from the launchpad are dry runs by default.
    """
    policy = {"older_than": RemoveOrphanFilesConfig().older_than, **(config or {})}
    return _build_maintenance_job(REMOVE_ORPHAN_FILES, table, policy, key_prefix)


def build_expire_partitions_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``expire_partitions__<database>__<table>``, which drops expired partitions.

    Runs from the launchpad are dry runs by default.
    """
    return _build_maintenance_job(EXPIRE_PARTITIONS, table, config or {}, key_prefix)


def build_compact_manifests_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``compact_manifests__<database>__<table>``, which merges small manifests."""
    return _build_maintenance_job(COMPACT_MANIFESTS, table, config or {}, key_prefix)


def build_sync_iceberg_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``sync_iceberg__<database>__<table>``, which publishes Iceberg metadata.

    Commits publish their snapshots, so the job is needed only after a failure, or after commits of
    writers without Iceberg metadata.
    """
    return _build_maintenance_job(SYNC_ICEBERG, table, config or {}, key_prefix)


def build_sync_partitions_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``sync_partitions__<database>__<table>``.

    The job adds the partitions that the table's catalog lacks. Commits report their partitions, so
    it is needed only after a failure, or after commits of writers without the catalog.
    """
    return _build_maintenance_job(SYNC_PARTITIONS, table, config or {}, key_prefix)


def build_mark_done_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``mark_done__<database>__<table>``, which marks partitions as done.

    The launchpad config ``partitions`` names the partitions.
    """
    return _build_maintenance_job(MARK_DONE, table, config or {}, key_prefix)


def get_op_config(job: dg.JobDefinition) -> dict[str, Any]:
    """Return the default config of a maintenance job's op, including ``dry_run``."""
    run_config = job.run_config or {}
    config: dict[str, Any] = run_config["ops"][job.tags[ACTION_TAG]]["config"]
    return dict(config)


def _build_maintenance_job(
    base_op: MaintenanceOp[C], table: str, policy: Mapping[str, Any], key_prefix: Sequence[str]
) -> dg.JobDefinition:
    maintenance_op = base_op.with_policy(policy)
    action = maintenance_op.action
    name, asset = definition_name(action, table, key_prefix), table_asset_key(table, key_prefix)
    description = maintenance_op.description.format(table=table)

    @dg.op(
        name=f"{name}_op",  # ops and jobs share one namespace
        description=description,
        out=dg.Out(dg.Nothing),
        config_schema=maintenance_op.config.to_fields_dict(),
        pool=pool_name(table),
    )
    def perform(
        context: dg.OpExecutionContext, paimon: PaimonCatalogResource, spark: SparkSessionResource
    ) -> None:
        config = maintenance_op.config(**context.op_config)
        with raise_dagster_errors(table, context):
            loaded = config.load_table(paimon, table)
            metadata = _perform(context, maintenance_op, config, loaded, spark)
        context.log_event(dg.AssetObservation(asset, description=action, metadata=metadata))

    @dg.job(
        name=name,
        description=description,
        tags={TABLE_TAG: table, ACTION_TAG: action},
        run_tags={TABLE_TAG: table},
        config={
            "ops": {action: {"config": {"dry_run": maintenance_op.config().dry_run, **policy}}}
        },
        executor_def=dg.in_process_executor,
    )
    def maintenance() -> None:
        perform.alias(action)()

    return maintenance


def _perform(
    context: dg.OpExecutionContext,
    maintenance_op: MaintenanceOp[C],
    config: C,
    table: Table,
    spark: SparkSessionResource,
) -> Metadata:
    """Plan a maintenance op, log the plan, and, unless this is a dry run, execute it.

    Returns the metadata of the observation.
    """
    action, step = maintenance_op.action, maintenance_op.load_step()
    choice = config.executor if isinstance(config, DeletionConfig) else ExecutorChoice.auto
    executor = build_maintenance_executor(context, spark, choice)
    progress = build_progress_logger(context, f"{action} of {table.identifier}")
    plan = step.plan(table, config, executor, progress)
    result, stale = step.describe(table, plan), Metadata()
    mode = "dry run" if config.dry_run else "plan"
    context.log.info("%s of %s (%s): %s", action, table.identifier, mode, result.numeric_metrics)
    if not config.dry_run:
        result = step.run(table, plan, executor, progress)
        stale = report_stale_options(context, table.stores)
        context.log.info("%s of %s: %s", action, table.identifier, result.numeric_metrics)
    metadata = result.to_metadata(action, dry_run=config.dry_run)
    return metadata | build_spark_link_metadata(spark) | stale
