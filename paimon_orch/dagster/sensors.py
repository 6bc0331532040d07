"""The sensor on the LATEST hint: compaction follows what other engines commit."""

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from paimon_orch.dagster.changes import Changes, Cursor, changes_since, partition_paths
from paimon_orch.dagster.names import compaction_key, object_name, table_key
from paimon_orch.dagster.requests import compaction_requests, partition_changes, run_key
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.errors import NotFoundError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.table.table import Table


def build_latest_snapshot_sensor(
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    key_prefix: Sequence[str] = (),
    minimum_interval_seconds: int = 30,
    max_snapshots_per_tick: int = 100,
    max_requests_per_tick: int = 25,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests compaction of exactly the partitions that new commits touched.

    Commits are those of the kinds APPEND and OVERWRITE, whoever made them; a partition is left alone if its compaction
    would have nothing to do. A tick with nothing new reads the hint and no other file. A dynamic ``partitions_def`` is
    given the partitions that the table gets, and loses those that it loses. The arguments must be those of
    :func:`build_compaction_asset`. Ticks take the resource ``paimon``, and never start Spark.
    """

    @dg.sensor(
        name=object_name("latest_snapshot", table, key_prefix),
        description=f"Requests compaction of the partitions of `{table}` that new snapshots touched.",
        target=dg.AssetSelection.assets(compaction_key(table, key_prefix)),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    def latest_snapshot(
        context: dg.SensorEvaluationContext, paimon: PaimonCatalogResource
    ) -> dg.SensorResult | dg.SkipReason:
        try:
            loaded = paimon.load_table(table)
        except NotFoundError as error:
            return dg.SkipReason(str(error))
        latest_id = loaded.snapshots.latest_id()
        if latest_id is None:
            return dg.SkipReason(f"{table} has no snapshot yet")
        cursor = Cursor.from_json(context.cursor)
        if cursor and not cursor.pending and cursor.handled.snapshot_id == latest_id:
            return dg.SkipReason(f"{table}: snapshot {latest_id} already handled")
        latest = loaded.snapshots.get(latest_id)
        changes = changes_since(loaded, cursor, latest, max_snapshots_per_tick)
        if changes.whole_table:
            tell = context.log.warning if context.cursor else context.log.info
            tell(
                "%s: %s; looking at all partitions of snapshot %d",
                *(table, changes.whole_table, latest_id),
            )
        result = _result(context, loaded, changes, partitions_def, max_requests_per_tick)
        observed = _observations(changes, table_key(table, key_prefix))
        return result._replace(
            asset_events=[*observed],
            dynamic_partitions_requests=_partitions(
                context, loaded, latest, changes, partitions_def
            ),
        )

    return latest_snapshot


def _result(
    context: dg.SensorEvaluationContext,
    table: Table,
    changes: Changes,
    partitions_def: dg.PartitionsDefinition[str] | None,
    limit: int,
) -> dg.SensorResult:
    cursor = changes.cursor
    occasions = cursor.pending
    if occasions and partitions_def is None:
        occasions = {"": changes.occasion}
    now = dict(list(occasions.items())[:limit])
    run_keys = {path: run_key(table, cursor.table, path, now[path]) for path in now}
    requests, unknown = compaction_requests(table, run_keys, partitions_def, context.instance)
    if unknown:
        context.log.warning(
            "%s: the asset has no partition for %s", table.identifier, ", ".join(unknown)
        )
    later = {path: occasions[path] for path in occasions if path not in now}
    idle = f"{table.identifier}: nothing to compact up to snapshot {cursor.handled.snapshot_id}"
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else idle,
        cursor=replace(cursor, pending=later).to_json(),
    )


def _partitions(
    context: dg.SensorEvaluationContext,
    table: Table,
    latest: Snapshot,
    changes: Changes,
    partitions_def: dg.PartitionsDefinition[str] | None,
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Return what gives a dynamic definition the partitions that the table has now."""
    if not isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return []
    add, delete = partition_changes(
        table,
        partitions_def,
        context.instance,
        partition_paths(table, latest),
        changes.touched,
    )
    return [
        *([partitions_def.build_add_request(add)] if add else []),
        *([partitions_def.build_delete_request(delete)] if delete else []),
    ]


def _observations(changes: Changes, key: dg.AssetKey) -> list[dg.AssetObservation]:
    """Return what makes others see the new data: maintenance keeps the version and is not reported."""
    newest = changes.newest
    if newest is None:
        return []
    return [
        dg.AssetObservation(
            key,
            tags={"dagster/data_version": str(newest.id)},
            metadata={
                "paimon/snapshot_id": newest.id,
                "paimon/commit_kind": newest.commit_kind.value,
                "paimon/commit_user": newest.commit_user,
            },
        )
    ]
