"""Factories of jobs: maintenance of a whole table, where a backfill would mean nothing.

All are of one shape: an op ``<action>`` with its config, which may be a dry run, and figures in an observation of the
table's asset. The ``config`` of a factory is the policy of the table: the default run config of the job, the default of
each field that a run leaves out, and what the job's schedule runs with.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from paimon_orch.dagster.maintenance_ops import (
    COMPACT_MANIFESTS,
    EXPIRE_PARTITIONS,
    EXPIRE_SNAPSHOTS,
    REMOVE_ORPHAN_FILES,
    C,
    MaintenanceOp,
    RemoveOrphanFilesConfig,
)
from paimon_orch.dagster.names import definition_name, pool_name, table_asset_key
from paimon_orch.dagster.progress import build_progress_logger
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.retries import raise_dagster_errors
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_context import build_executor, build_spark_link_metadata
from paimon_orch.steps.common.executor import InProcessExecutor

ACTION_TAG, TABLE_TAG = "paimon/action", "paimon/table"


def build_expire_snapshots_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``expire_snapshots__<database>__<table>``, in the launchpad a dry run.

    It deletes snapshots by ``config`` (``retain_min``, ``retain_max``, ``retain_for``, ``max_deletes``), by the table's
    options where that says nothing, and the files that only they need. This and all jobs of this module take the
    resources ``paimon`` and ``spark``; Spark starts if ``use_spark`` says so.
    """
    return _build_maintenance_job(EXPIRE_SNAPSHOTS, table, config or {}, key_prefix)


def build_remove_orphan_files_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``remove_orphan_files__<database>__<table>``, in the launchpad a dry run.

    It removes files that nothing refers to, or puts them aside, and fails before that if a check finds the table damaged.
    """
    shown = {"older_than": RemoveOrphanFilesConfig().older_than}
    return _build_maintenance_job(
        REMOVE_ORPHAN_FILES, table, shown | dict(config or {}), key_prefix
    )


def build_expire_partitions_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``expire_partitions__<database>__<table>``, in the launchpad a dry run: drops old partitions."""
    return _build_maintenance_job(EXPIRE_PARTITIONS, table, config or {}, key_prefix)


def build_compact_manifests_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``compact_manifests__<database>__<table>``, which merges small manifests."""
    return _build_maintenance_job(COMPACT_MANIFESTS, table, config or {}, key_prefix)


def get_op_config(job: dg.JobDefinition) -> dict[str, Any]:
    """Return the config that the op of a maintenance job has by default, as far as it is not the op's own."""
    run_config = job.run_config or {}
    config: dict[str, Any] = run_config["ops"][job.tags[ACTION_TAG]]["config"]
    return dict(config)


def _build_maintenance_job(
    step: MaintenanceOp[C], table: str, config: Mapping[str, Any], key_prefix: Sequence[str]
) -> dg.JobDefinition:
    step = step.with_policy(config)
    defaults = {"dry_run": step.config().dry_run, **config}
    name, asset = (
        definition_name(step.action, table, key_prefix),
        table_asset_key(table, key_prefix),
    )
    description = step.description.format(table=table)

    @dg.op(
        name=f"{name}_op",  # ops and jobs share their names
        description=description,
        out=dg.Out(dg.Nothing),
        config_schema=step.config.to_fields_dict(),
        pool=pool_name(table),
    )
    def perform(
        context: dg.OpExecutionContext, paimon: PaimonCatalogResource, spark: SparkSessionResource
    ) -> None:
        config = step.config(**context.op_config)
        with raise_dagster_errors(table, context):
            executor = build_executor(context, spark) if config.use_spark else InProcessExecutor()
            progress = build_progress_logger(context, f"{step.action}, {table}")
            loaded = config.load_table(paimon, table)
            outcome = step.perform(loaded, config, executor, progress)
            stale = {} if config.dry_run else report_stale_options(context, loaded)
        when = "dry run of " if config.dry_run else ""
        context.log.info("%s%s, %s: %s", when, step.action, table, outcome.numbers)
        metadata = (
            outcome.to_metadata(step.action, dry_run=config.dry_run)
            | build_spark_link_metadata(spark)
            | stale
        )
        context.log_event(dg.AssetObservation(asset, description=step.action, metadata=metadata))

    @dg.job(
        name=name,
        description=description,
        tags={TABLE_TAG: table, ACTION_TAG: step.action},
        config={"ops": {step.action: {"config": defaults}}},
        executor_def=dg.in_process_executor,
    )
    def maintenance() -> None:
        perform.alias(step.action)()

    return maintenance
