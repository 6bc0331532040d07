"""Factories of jobs that maintain whole tables: a table for each job, or for each partition of it.

Each job has one op, ``<action>``, whose config can request a dry run. The op reports its metrics in
an observation of the table's asset. The ``config`` of a factory is the maintenance policy of the
table: it sets the default run config of the job, the defaults of fields that a run omits, and the
run config of the job's schedule.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, TypedDict, Unpack

import dagster as dg
from dagster.components.resolved.core_models import OpSpec

from paimon_orch.dagster.declared_ops import DAMAGE_REMAINS, MaintenanceOp, build_declared_op
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.names import (
    TABLE_TAG,
    check_table_name,
    join_definition_name,
    pool_name,
    split_table_name,
    table_label,
)
from paimon_orch.dagster.op_specs import DEFAULT_OP
from paimon_orch.dagster.remote_runs import RemoteSteps, RunOn, list_resources
from paimon_orch.dagster.resources import get_catalog, get_spark
from paimon_orch.errors import InputError
from paimon_orch.steps.common.step_declaration import StepTarget

ACTION_TAG = "paimon/action"
"""The tag of a job; its runs have only :data:`TABLE_TAG`, as their target is the job."""

NO_TAGS: Mapping[str, str] = MappingProxyType({})


class JobOptions(TypedDict, total=False):
    """The keywords of the factories of jobs."""

    config: Mapping[str, Any]
    """The maintenance policy of the table: defaults of the op's config."""
    key_prefix: Sequence[str]
    """The prefix of the table's asset key."""
    op: OpSpec
    """The name, tags, description and pool of the op."""
    run_tags: Mapping[str, str]
    """Tags of all runs of the job, such as ``dagster-k8s/config``."""
    run_on: RunOn | str | None
    """Where runs do their work; by default, in their own process."""
    resource_prefix: str
    """What the names of the resources begin with, for a project with several catalogs."""


def build_step_job(step: str, table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``<step>__<database>__<table>`` of any declared step, such as ``analyze``.

    The config has the arguments of the step, as ``paimon-orch <step> --help`` describes them. The
    config of the job has ``dry_run: true``; a run whose config has no ``dry_run`` is a dry run if the
    step asks on the command line. All jobs of this module require
    the resources ``paimon`` and ``spark``; Spark only starts for large work, or if ``executor`` is
    ``spark``. Raises :class:`NotFoundError` for an unknown step, and :class:`InputError` for a
    config that it does not accept.

    :param table: ``database.table``, or the name of a database for ``drop-database``
    :param options: ``config``, ``key_prefix``, ``op``, ``run_tags``, ``run_on`` and
        ``resource_prefix``; see :class:`JobOptions`
    """
    op, prefix = build_declared_op(step), options.get("key_prefix", ())
    is_database = op.declaration.target is StepTarget.DATABASE
    of_target = JobScope.of_database if is_database else JobScope.of_table
    return build_maintenance_job(
        op,
        of_target(table, prefix),
        options.get("config") or {},
        op=options.get("op", DEFAULT_OP),
        run_tags=options.get("run_tags", {}),
        run_on=options.get("run_on"),
        resource_prefix=options.get("resource_prefix", ""),
    )


def build_expire_snapshots_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``expire_snapshots__<database>__<table>``.

    The job deletes expired snapshots and the files that only they reference. Runs from the
    launchpad are dry runs by default. ``config`` sets ``retain_min``, ``retain_max``,
    ``retain_for`` and ``max_deletes``; the defaults are the table's options. The options are those
    of :func:`build_step_job`.
    """
    return build_step_job("expire-snapshots", table, **options)


def build_remove_orphan_files_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``remove_orphan_files__<database>__<table>``.

    The job deletes unreferenced files or moves them to quarantine. If the table is damaged, the job
    fails and removes no file. Runs from the launchpad are dry runs by default. The options are
    those of :func:`build_step_job`.
    """
    return build_step_job("remove-orphan-files", table, **options)


def build_expire_partitions_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``expire_partitions__<database>__<table>``, which drops expired partitions.

    Runs from the launchpad are dry runs by default. The options are those of
    :func:`build_step_job`.
    """
    return build_step_job("expire-partitions", table, **options)


def build_compact_manifests_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``compact_manifests__<database>__<table>``, which merges small manifests.

    The options are those of :func:`build_step_job`.
    """
    return build_step_job("compact-manifests", table, **options)


def build_sync_iceberg_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``sync_iceberg__<database>__<table>``, which publishes Iceberg metadata.

    Commits publish their snapshots, so the job is needed only after a failure, or after commits of
    writers without Iceberg metadata. The options are those of :func:`build_step_job`.
    """
    return build_step_job("sync-iceberg", table, **options)


def build_sync_partitions_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``sync_partitions__<database>__<table>``.

    The job adds the partitions that the table's catalog lacks. Commits report their partitions, so
    it is needed only after a failure, or after commits of writers without the catalog. The options
    are those of :func:`build_step_job`.
    """
    return build_step_job("sync-partitions", table, **options)


def build_mark_done_job(table: str, **options: Unpack[JobOptions]) -> dg.JobDefinition:
    """Return the job ``mark_done__<database>__<table>``, which marks partitions as done.

    The launchpad config ``partitions`` names the partitions. The options are those of
    :func:`build_step_job`.
    """
    return build_step_job("mark-done", table, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScope:
    """The tables of a job: one table, or several, which are the partitions of the job."""

    name: tuple[str, ...]
    """The parts of the job's name after the action."""
    title: str
    """The tables in the description of the job."""
    key_prefix: Sequence[str]
    tables: tuple[str, ...]
    is_partitioned: bool

    @classmethod
    def of_table(cls, table: str, key_prefix: Sequence[str]) -> Self:
        """Return the scope of a job for one table."""
        return cls(
            name=(*key_prefix, *split_table_name(table)),
            title=f"`{table}`",
            key_prefix=key_prefix,
            tables=(table,),
            is_partitioned=False,
        )

    @classmethod
    def of_database(cls, database: str, key_prefix: Sequence[str]) -> Self:
        """Return the scope of a job for one database."""
        check_table_name(f"{database}.table")
        return cls(
            name=(*key_prefix, database),
            title=f"`{database}`",
            key_prefix=key_prefix,
            tables=(database,),
            is_partitioned=False,
        )

    @classmethod
    def of_tables(cls, name: str, tables: Sequence[str], key_prefix: Sequence[str]) -> Self:
        """Return the scope of a job with a partition for each table."""
        return cls(
            name=(*key_prefix, name),
            title=f"a table of `{name}`, which is the partition of the run,",
            key_prefix=key_prefix,
            tables=tuple(tables),
            is_partitioned=True,
        )

    def build_table_tag(self, table: str) -> dict[str, str]:
        """Return the tag of the runs of a table."""
        return {TABLE_TAG: table_label(table, self.key_prefix)}

    def check_target(self, op: MaintenanceOp) -> None:
        """Raise :class:`InputError` for a step of a database in a job of tables, or the reverse."""
        is_of_database = op.declaration.target is StepTarget.DATABASE
        if self.tables and is_of_database == ("." in self.tables[0]):
            kind = "a database" if is_of_database else "tables"
            raise InputError(f"{op.action} is a step of {kind}, not of {', '.join(self.tables)}")

    def get_table(self, context: dg.OpExecutionContext) -> str:
        """Return the table of a run."""
        if not self.is_partitioned:
            return self.tables[0]
        if not context.has_partition_key:
            raise dg.Failure(
                "the run has no partition; select a table as the partition of the run",
                allow_retries=False,
            )
        return context.partition_key


def build_maintenance_job(
    base_op: MaintenanceOp,
    scope: JobScope,
    policy: Mapping[str, Any],
    *,
    op: OpSpec = DEFAULT_OP,
    run_tags: Mapping[str, str] = NO_TAGS,
    run_on: RunOn | str | None = None,
    resource_prefix: str = "",
) -> dg.JobDefinition:
    """Return the job of an op for one table, or for several tables as its partitions."""
    scope.check_target(base_op)
    maintenance_op = base_op.with_policy(policy)
    if op.backfill_policy is not None:
        raise InputError(f"{base_op.action}: only the ops of assets have a backfill policy")
    action, place = maintenance_op.action, RunOn.parse(run_on)
    name = join_definition_name(action, *scope.name)
    description = op.description or maintenance_op.description.format(table=scope.title)
    # An op has one pool, so the runs of several tables are limited by their tag.
    pool = None if scope.is_partitioned else pool_name(scope.tables[0], scope.key_prefix)

    def perform(context: dg.OpExecutionContext) -> None:
        table = scope.get_table(context)
        paimon, spark = get_catalog(context, resource_prefix), get_spark(context, resource_prefix)
        config = maintenance_op.config(**context.op_config)
        with raise_dagster_errors(table, context):
            target = maintenance_op.open_target(config, paimon, table)
            remote = RemoteSteps.of(place, context, paimon, spark)
            metadata = maintenance_op.execute(context, config, target, spark, remote)
        asset = dg.AssetKey([*scope.key_prefix, *table.split(".")])
        if DAMAGE_REMAINS in metadata:  # Dagster drops the observations of a failed op
            message = f"{action} of {table} leaves damage, which paimon/plan lists"
            raise dg.Failure(message, metadata=metadata, allow_retries=False)
        context.log_event(dg.AssetObservation(asset, description=action, metadata=metadata))

    defaults = maintenance_op.config()
    op_config = {field: getattr(defaults, field) for field in maintenance_op.shown} | dict(policy)
    op_config["dry_run"] = policy.get("dry_run", True)  # all launchpads begin with a dry run
    table_tag = {} if scope.is_partitioned else scope.build_table_tag(scope.tables[0])

    return build_op_job(
        perform,
        name,
        op.model_copy(update={"description": description, "pool": op.pool or pool}),
        alias=action,
        config=maintenance_op.config,
        resources=list_resources(place, resource_prefix),
        description=description,
        tags={**table_tag, ACTION_TAG: action},
        run_tags={**run_tags, **table_tag},
        job_config=_build_job_config(scope, {"ops": {action: {"config": op_config}}}),
    )


def build_op_job(
    perform: Callable[[dg.OpExecutionContext], None],
    name: str,
    op: OpSpec,
    *,
    alias: str,
    config: type[dg.Config],
    resources: Iterable[str],
    job_config: Any,
    **attributes: Any,
) -> dg.JobDefinition:
    """Return a job with one op, which runs in the process of the run.

    ``alias`` is the name of the op in the job, and ``attributes`` are others of the job.
    """
    definition = dg.op(
        name=op.name or f"{name}_op",  # ops and jobs share one namespace
        description=op.description,
        out=dg.Out(dg.Nothing),
        config_schema=config.to_fields_dict(),
        tags=op.tags,
        pool=op.pool,
        required_resource_keys=set(resources),
    )(perform)

    @dg.job(name=name, config=job_config, executor_def=dg.in_process_executor, **attributes)
    def maintenance() -> None:
        definition.alias(alias)()

    return maintenance


def _build_job_config(
    scope: JobScope, run_config: dict[str, Any]
) -> dict[str, Any] | dg.PartitionedConfig[dg.StaticPartitionsDefinition]:
    """Return the config of a job; if its partitions are tables, each run has the tag of its table."""
    if not scope.is_partitioned:
        return run_config
    return dg.PartitionedConfig(
        partitions_def=dg.StaticPartitionsDefinition(scope.tables),
        run_config_for_partition_key_fn=lambda _: run_config,
        tags_for_partition_key_fn=scope.build_table_tag,
    )


def list_job_tables(job: dg.JobDefinition) -> list[str]:
    """Return the tables that are the partitions of a job, or none for the job of one table."""
    return [] if job.partitions_def is None else [*job.partitions_def.get_partition_keys()]


def get_op_config(job: dg.JobDefinition) -> dict[str, Any]:
    """Return the default config of a maintenance job's op, including ``dry_run``."""
    partitioned = job.partitioned_config
    run_config = (
        job.run_config
        if partitioned is None
        else partitioned.get_run_config_for_partition_key(list_job_tables(job)[0])
    )
    config: dict[str, Any] = (run_config or {})["ops"][job.tags[ACTION_TAG]]["config"]
    return dict(config)
