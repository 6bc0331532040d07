"""Schedules of maintenance."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from paimon_orch.dagster.jobs import ACTION_TAG, TABLE_TAG, get_op_config
from paimon_orch.dagster.maintenance_ops import (
    COMPACT_MANIFESTS,
    EXPIRE_PARTITIONS,
    EXPIRE_SNAPSHOTS,
    MAINTENANCE_OPS,
    REMOVE_ORPHAN_FILES,
)
from paimon_orch.dagster.names import COMPACTION, compaction_asset_key, definition_name
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.run_config import load_table_with_allowances
from paimon_orch.dagster.run_requests import CompactionTarget, build_run_key
from paimon_orch.dagster.sensor_cursor import CompactionDecider, get_table_identity
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionPolicy

_DEFAULT_CRON = {
    EXPIRE_SNAPSHOTS.action: "{minute} * * * *",
    EXPIRE_PARTITIONS.action: "{minute} 2 * * *",
    COMPACT_MANIFESTS.action: "{minute} 4 * * 6",
    REMOVE_ORPHAN_FILES.action: "{minute} 5 * * 0",
}


def build_compaction_schedule(
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    policy: CompactionPolicy | None = None,
    allowances: Allowances = NO_ALLOWANCES,
    key_prefix: Sequence[str] = (),
    hour: int = 3,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """Return a daily schedule that requests compaction of the partitions that have work.

    Of the ``policy`` only the limits of what is rewritten count: nothing waits for a threshold over night. It runs in
    the given hour (UTC), at a minute of the table's own, so that many tables do not start at once. The other arguments
    must be those of :func:`build_compaction_asset`. Ticks take the resource ``paimon``.
    """

    @dg.schedule(
        name=definition_name(COMPACTION, table, key_prefix) + "_schedule",
        description=f"Compacts the partitions of `{table}` that need it, once a day.",
        target=dg.AssetSelection.assets(compaction_asset_key(table, key_prefix)),
        cron_schedule=f"{compute_schedule_minute(table)} {hour} * * *",
        execution_timezone="UTC",
        default_status=default_status,
    )
    def compaction_schedule(
        context: dg.ScheduleEvaluationContext, paimon: PaimonCatalogResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        try:
            loaded = load_table_with_allowances(paimon, table, allowances)
        except NotFoundError as error:
            return dg.SkipReason(str(error))
        target = CompactionTarget(loaded, partitions_def, key_prefix, context)
        if refusal := target.refusal():
            context.log.warning("%s", refusal)
            return dg.SkipReason(refusal)
        watch = CompactionDecider(loaded, policy or CompactionPolicy(), may_be_full=target.alone)
        decisions = {found.partition: found for found in watch.decide(overdue=None)}
        for decision in decisions.values():
            context.log.info("%s: %s", table, decision)
        work = [path for path, decision in decisions.items() if decision.compact]
        if not work:
            return dg.SkipReason(f"{table}: nothing to compact")
        requests = _build_tick_requests(target, work, decisions, context.scheduled_execution_time)
        return requests or dg.SkipReason(f"{table}: nothing to compact in the asset's partitions")

    return compaction_schedule


def _build_tick_requests(
    target: CompactionTarget,
    work: Collection[str],
    decisions: Mapping[str, CompactionDecision],
    scheduled: datetime,
) -> list[dg.RunRequest]:
    """Return the requests of a tick; dynamic partitions are added before, for a schedule cannot ask for that."""
    for change in target.build_partitions_requests(work, ()):
        target.tick.instance.add_dynamic_partitions(
            change.partitions_def_name, [*change.partition_keys]
        )
    table, paths = target.table, work if target.partitions_def else [""]
    origin, occasion = get_table_identity(table), scheduled.isoformat()
    run_keys = {path: build_run_key(table, origin, path, occasion) for path in paths}
    return target.requests(run_keys, decisions, table.stores.snapshots.latest_id())


def build_maintenance_schedules(
    jobs: Sequence[dg.JobDefinition],
    *,
    cron: Mapping[str, str] | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    execution_timezone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each maintenance job: runs have the job's own config, but are no dry runs.

    So a dry run in the launchpad plans what the schedule does. ``config``, by action such as ``expire_snapshots``, says
    what is different in runs of the schedule: ``{"remove_orphan_files": {"dry_run": True}}``, say; a policy belongs to
    the job. Snapshots expire hourly, partitions nightly, manifests are merged on Saturdays and orphans removed on
    Sundays, each at a minute of the table's own, unless ``cron`` says when, by action.
    """
    cron, config = {**_DEFAULT_CRON, **(cron or {})}, config or {}
    unknown = sorted({*cron, *config} - set(_DEFAULT_CRON))
    if unknown:
        raise InputError(
            f"no action is called {', '.join(unknown)}; there are {', '.join(_DEFAULT_CRON)}"
        )
    schedules = []
    for job in jobs:
        action, table = job.tags[ACTION_TAG], job.tags[TABLE_TAG]
        chosen = {**get_op_config(job), "dry_run": False, **config.get(action, {})}
        MAINTENANCE_OPS[action].check_config(chosen)
        schedule = dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=cron[action].format(minute=compute_schedule_minute(table)),
            run_config={"ops": {action: {"config": chosen}}},
            execution_timezone=execution_timezone,
            default_status=default_status,
            description=f"{job.description} {'Dry run.' if chosen['dry_run'] else ''}".strip(),
        )
        schedules.append(schedule)
    return schedules


def compute_schedule_minute(table: str) -> int:
    """Return a table's minute of the hour, the same in each process and release."""
    return zlib.crc32(table.encode()) % 60
