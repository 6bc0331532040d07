"""Factories of schedules for compactions and maintenance jobs."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from paimon_orch.dagster.declared_ops import find_op
from paimon_orch.dagster.jobs import ACTION_TAG, get_op_config, list_job_tables
from paimon_orch.dagster.names import TABLE_TAG, compaction_asset_key, definition_name
from paimon_orch.dagster.op_specs import RequestSettings, take_settings
from paimon_orch.dagster.resources import PaimonCatalogResource, rename_catalog_parameter
from paimon_orch.dagster.run_config import load_table_with_allowances
from paimon_orch.dagster.run_requests import CompactionTarget, limit_pools
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.orchestration.changes_since_cursor import CompactionDecider
from paimon_orch.orchestration.cursor import get_table_identity
from paimon_orch.orchestration.planned_runs import COMPACTION
from paimon_orch.orchestration.table_tick import find_compaction_refusal
from paimon_orch.orchestration.table_watch import AwaitedTableError, raise_if_awaited
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.compaction.policy import CompactionPolicy

_DEFAULT_CRON = {
    "expire_snapshots": "{minute} * * * *",
    "expire_partitions": "{minute} 2 * * *",
    "compact_manifests": "{minute} 4 * * 6",
    "remove_orphan_files": "{minute} 5 * * 0",
    "sync_iceberg": "{minute} * * * *",
}

_LATER_THAN_COMPACTIONS = {"dagster/priority": "-1"}
"""The tag of runs that are requested for all tables of a component at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings(RequestSettings):
    """A schedule that requests the compactions of a table."""

    hour: int = 3
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED


@take_settings(ScheduleSettings)
def build_compaction_schedule(settings: ScheduleSettings) -> dg.ScheduleDefinition:
    """Return a daily schedule that requests compaction of all partitions with files to compact.

    The schedule uses only ``deleted_ratio`` and ``max_rewrite`` of the ``policy``, and ignores the
    other thresholds. Like a request of the sensor, a request covers at most
    ``max_partitions_per_run`` neighboring partitions. The schedule runs in the given hour (UTC), at
    a minute that is computed from the table's name, so that the schedules of many tables do not
    start at the same time. ``run_tags`` are those of :func:`build_latest_snapshot_sensor`. The other
    arguments must equal those of :func:`build_compaction_asset`. Ticks require the resource ``paimon``.
    """
    table = settings.table
    asset_key = compaction_asset_key(table, settings.key_prefix)

    @dg.schedule(
        name=definition_name(COMPACTION, table, settings.key_prefix) + "_schedule",
        description=f"Once a day, requests compaction of the partitions of `{table}` with files to "
        "compact.",
        target=dg.AssetSelection.assets(asset_key),
        cron_schedule=f"{compute_schedule_minute(table)} {settings.hour} * * *",
        execution_timezone="UTC",
        default_status=settings.default_status,
    )
    @rename_catalog_parameter(settings.resource_prefix)
    def compaction_schedule(
        context: dg.ScheduleEvaluationContext, paimon: PaimonCatalogResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        try:
            loaded = load_table_with_allowances(paimon, table, settings.allowances)
        except NotFoundError as error:
            if context.instance.has_asset_key(asset_key):
                raise NotFoundError(f"{table} was dropped or renamed: {error}") from error
            try:
                raise_if_awaited(paimon.catalog(), table, error)
            except AwaitedTableError as awaited:
                return dg.SkipReason(str(awaited))
            raise
        target = CompactionTarget(settings, loaded, loaded.load(), context)
        if refusal := find_compaction_refusal(target.state):
            context.log.warning("%s", refusal)
            return dg.SkipReason(refusal)
        requests = _build_tick_requests(target, settings.policy or CompactionPolicy(), context)
        return requests or dg.SkipReason(f"{table}: nothing to compact in the asset's partitions")

    return compaction_schedule


def _build_tick_requests(
    target: CompactionTarget, policy: CompactionPolicy, context: dg.ScheduleEvaluationContext
) -> list[dg.RunRequest] | dg.SkipReason:
    """Return the run requests of a tick; a schedule cannot add dynamic partitions."""
    table = target.table
    decider = CompactionDecider(
        table, target.state, policy, can_compact_fully=target.can_compact_fully
    )
    decisions = decider.decide(overdue=None)
    for decision in decisions:
        context.log.info("%s: %s", table.identifier, clean_line(str(decision)))
    due = [decision for decision in decisions if decision.compact]
    if not due:
        return dg.SkipReason(f"{table.identifier}: nothing to compact")
    for request in target.build_partitions_requests([d.partition for d in due], ()):
        context.instance.add_dynamic_partitions(
            request.partitions_def_name, [*request.partition_keys]
        )
    origin = get_table_identity(target.state)
    suffix = context.scheduled_execution_time.isoformat()
    suffixes = dict.fromkeys(["", *(decision.partition for decision in due)], suffix)
    runs = target.plan_runs(due)
    if len(runs) > 1:
        limit_pools(context.instance, [target.pool])
    return [
        target.build_run_request(run, run.build_run_key(table.identifier, origin, suffixes))
        for run in runs
    ]


def build_maintenance_schedules(
    jobs: Sequence[dg.JobDefinition],
    *,
    cron: Mapping[str, str] | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    execution_timezone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each maintenance job; a job of several tables gets a run for each table.

    Its runs have the config of the job with ``dry_run: false``, so a dry run from the launchpad
    shows what the schedule will do. ``config`` overrides the run config of schedules by action, for
    example ``{"remove_orphan_files": {"dry_run": True}}``; set other policies on the job. ``cron``
    sets cron schedules by action. By default, snapshots expire and Iceberg metadata is published
    hourly, partitions expire nightly, manifests are merged on Saturdays, and orphan files are
    removed on Sundays, each at a minute that is computed from the table's name.
    """
    cron, config = {**_DEFAULT_CRON, **(cron or {})}, config or {}
    actions = [*_DEFAULT_CRON, *({job.tags[ACTION_TAG] for job in jobs} - set(_DEFAULT_CRON))]
    unknown = sorted({*cron, *config} - set(actions))
    if unknown:
        raise InputError(
            f"unknown actions: {', '.join(unknown)}; the actions are {', '.join(actions)}"
        )
    schedules = []
    for job in jobs:
        action = job.tags[ACTION_TAG]
        if action not in cron:
            raise InputError(f"{action} has no default schedule; set its cron")
        op_config = {**get_op_config(job), "dry_run": False, **config.get(action, {})}
        find_op(action).check_config(op_config)
        minute = compute_schedule_minute(job.tags.get(TABLE_TAG, job.name))
        schedule = dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=cron[action].format(minute=minute),
            execution_timezone=execution_timezone,
            default_status=default_status,
            description=f"{job.description} {'Dry run.' if op_config['dry_run'] else ''}".strip(),
            **_build_requests(list_job_tables(job), {"ops": {action: {"config": op_config}}}),
        )
        schedules.append(schedule)
    return schedules


def _build_requests(tables: Sequence[str], run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument of a schedule that requests its run, or a run for each table."""
    if not tables:
        return {"run_config": run_config}

    def request_runs(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        time = context.scheduled_execution_time.isoformat()
        for table in tables:
            yield dg.RunRequest(
                f"{table}:{time}", run_config, tags=_LATER_THAN_COMPACTIONS, partition_key=table
            )

    return {"execution_fn": request_runs}


def compute_schedule_minute(table: str) -> int:
    """Return a minute of the hour that depends only on the table's name."""
    return zlib.crc32(table.encode()) % 60
