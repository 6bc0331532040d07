"""Schedules of maintenance."""

import zlib
from collections.abc import Sequence

import dagster as dg

from paimon_orch.dagster.changes import identity, needs_work
from paimon_orch.dagster.names import COMPACTION, compaction_key, object_name
from paimon_orch.dagster.requests import compaction_requests, run_key
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.errors import NotFoundError


def build_compaction_schedule(
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    hour: int = 3,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """Return a daily schedule that requests compaction of the partitions that need it, by the compaction's own plan.

    It runs in the given hour (UTC), at a minute of the table's own, so that many tables do not start at once. The other
    arguments must be those of :func:`build_compaction_asset`. Ticks take the resource ``paimon``.
    """

    @dg.schedule(
        name=object_name(COMPACTION, table, key_prefix) + "_schedule",
        description=f"Compacts the partitions of `{table}` that need it, once a day.",
        target=dg.AssetSelection.assets(compaction_key(table, key_prefix)),
        cron_schedule=f"{minute_of(table)} {hour} * * *",
        execution_timezone="UTC",
        default_status=default_status,
    )
    def compaction_schedule(
        context: dg.ScheduleEvaluationContext, paimon: PaimonCatalogResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        try:
            loaded = paimon.load_table(table)
        except NotFoundError as error:
            return dg.SkipReason(str(error))
        work = sorted(needs_work(loaded))
        if not work:
            return dg.SkipReason(f"{table}: nothing to compact")
        paths = work if partitions_def else [""]
        origin, occasion = identity(loaded), context.scheduled_execution_time.isoformat()
        run_keys = {path: run_key(loaded, origin, path, occasion) for path in paths}
        requests, unknown = compaction_requests(loaded, run_keys, partitions_def, context.instance)
        if unknown:
            context.log.warning("%s: the asset has no partition for %s", table, ", ".join(unknown))
        return requests or dg.SkipReason(f"{table}: nothing to compact in the asset's partitions")

    return compaction_schedule


def minute_of(table: str) -> int:
    """Return a table's minute of the hour, the same in each process and release."""
    return zlib.crc32(table.encode()) % 60
