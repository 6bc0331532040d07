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
    RemoveOrphanFilesConfig,
    Step,
)
from paimon_orch.dagster.names import object_name, pool_name, table_key
from paimon_orch.dagster.progress import log_progress
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.retries import failures_by_type
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_context import executor_of, spark_links
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
    return _build_job(EXPIRE_SNAPSHOTS, table, config or {}, key_prefix)


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
    return _build_job(REMOVE_ORPHAN_FILES, table, shown | dict(config or {}), key_prefix)


def build_expire_partitions_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``expire_partitions__<database>__<table>``, in the launchpad a dry run: drops old partitions."""
    return _build_job(EXPIRE_PARTITIONS, table, config or {}, key_prefix)


def build_compact_manifests_job(
    table: str,
    *,
    config: Mapping[str, Any] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.JobDefinition:
    """Return the job ``compact_manifests__<database>__<table>``, which merges small manifests."""
    return _build_job(COMPACT_MANIFESTS, table, config or {}, key_prefix)


def job_config(job: dg.JobDefinition) -> dict[str, Any]:
    """Return the config that the op of a maintenance job has by default, as far as it is not the op's own."""
    run_config = job.run_config or {}
    config: dict[str, Any] = run_config["ops"][job.tags[ACTION_TAG]]["config"]
    return dict(config)


def _build_job(
    step: Step[C], table: str, config: Mapping[str, Any], key_prefix: Sequence[str]
) -> dg.JobDefinition:
    step = step.with_policy(config)
    defaults = {"dry_run": step.config().dry_run, **config}
    name, asset = object_name(step.action, table, key_prefix), table_key(table, key_prefix)
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
        with failures_by_type(table, context):
            executor = executor_of(context, spark) if config.use_spark else InProcessExecutor()
            progress = log_progress(context, f"{step.action}, {table}")
            loaded = config.load_table(paimon, table)
            outcome = step.perform(loaded, config, executor, progress)
            stale = {} if config.dry_run else report_stale_options(context, loaded)
        when = "dry run of " if config.dry_run else ""
        context.log.info("%s%s, %s: %s", when, step.action, table, outcome.numbers)
        metadata = (
            outcome.to_metadata(step.action, dry_run=config.dry_run) | spark_links(spark) | stale
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
