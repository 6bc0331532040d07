"""The sensor on the LATEST hint: compaction follows what other engines commit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import dagster as dg

from paimon_orch.dagster.changes import (
    FIRST_LOOK,
    Changes,
    Cursor,
    Watch,
    changes_since,
    is_newest,
)
from paimon_orch.dagster.metadata import column_schema, decisions_metadata
from paimon_orch.dagster.names import compaction_key, object_name, table_key
from paimon_orch.dagster.requests import Requests, partition_changes, run_key
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.errors import NotFoundError
from paimon_orch.steps.policy import CompactionPolicy, Decision, Figures
from paimon_orch.table.table import Table

_SHOWN = 50
_IN_REASON = 3


def build_latest_snapshot_sensor(  # noqa: PLR0913 - keywords of a factory
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    policy: CompactionPolicy | None = None,
    key_prefix: Sequence[str] = (),
    minimum_interval_seconds: int = 30,
    max_snapshots_per_tick: int = 100,
    max_requests_per_tick: int = 25,
    report_as: Literal["observation", "materialization"] = "observation",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests compaction of exactly the partitions that new commits touched.

    Commits are those of the kinds APPEND and OVERWRITE, whoever made them; ``policy`` decides of each partition that they
    touched, and what it says, "not now" included, is in the tick's log and on the observation of the table. A tick with
    nothing new reads the newest snapshot and no other file. A dynamic ``partitions_def`` is given the partitions that the table
    gets, and loses those that it loses. The arguments must be those of :func:`build_compaction_asset`. Ticks take the
    resource ``paimon``, and never start Spark.

    Each snapshot that changed data is reported as an observation of the table's asset; with ``report_as`` materialization the
    newest one is, as a materialization: Dagster judges freshness by nothing else.
    """
    rule = policy or CompactionPolicy()

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
        cursor = Cursor.from_json(context.cursor)
        if cursor and _is_idle(cursor, rule) and is_newest(loaded, cursor.handled):
            return dg.SkipReason(f"{table}: snapshot {cursor.handled.snapshot_id} already handled")
        latest = loaded.snapshots.latest()
        if latest is None:
            return dg.SkipReason(f"{table} has no snapshot yet")
        alone = partitions_def is not None or not loaded.schema.partition_keys
        watch = Watch(loaded, rule, may_be_full=alone)
        changes = changes_since(watch, cursor, latest, max_snapshots_per_tick)
        _log(context, loaded, changes)
        result = _result(
            context, loaded, changes, partitions_def, key_prefix, max_requests_per_tick
        )
        known = changes.touched if changes.whole_table in (None, FIRST_LOOK) else None
        present = [decision.partition for decision in changes.decisions]
        return result._replace(
            asset_events=[
                *_events(
                    loaded,
                    changes,
                    table_key(table, key_prefix),
                    materialized=report_as == "materialization",
                )
            ],
            dynamic_partitions_requests=partition_changes(
                loaded, partitions_def, context.instance, present, known
            ),
        )

    return latest_snapshot


def _is_idle(cursor: Cursor, policy: CompactionPolicy) -> bool:
    """Tell whether all that was seen is taken up, and nothing has waited for too long."""
    return not cursor.pending and not cursor.overdue(policy.wait_millis)


def _log(context: dg.SensorEvaluationContext, table: Table, changes: Changes) -> None:
    """Tell every decision, as far as a log of a tick is read."""
    if changes.whole_table:
        tell = context.log.warning if context.cursor else context.log.info
        tell("%s: %s; looking at all partitions", table.identifier, changes.whole_table)
    for decision in changes.decisions[:_SHOWN]:
        context.log.info("%s: %s", table.identifier, decision)
    if len(changes.decisions) > _SHOWN:
        context.log.info("and %d other partitions", len(changes.decisions) - _SHOWN)


def _result(
    context: dg.SensorEvaluationContext,
    table: Table,
    changes: Changes,
    partitions_def: dg.PartitionsDefinition[str] | None,
    key_prefix: Sequence[str],
    limit: int,
) -> dg.SensorResult:
    cursor = changes.cursor
    occasions = cursor.pending
    decisions = {decision.partition: decision for decision in changes.decisions}
    if occasions and partitions_def is None:
        decisions = {"": _together([decisions[path] for path in occasions])}
        occasions = {"": changes.occasion}
    now = dict(list(occasions.items())[:limit])
    run_keys = {path: run_key(table, cursor.table, path, now[path]) for path in now}
    seen = cursor.handled.snapshot_id
    make = Requests(table, partitions_def, key_prefix, context.instance, seen, decisions)
    requests, unknown = make.compact(run_keys)
    if unknown:
        context.log.warning(
            "%s: the asset has no partition for %s", table.identifier, ", ".join(unknown)
        )
    later = {path: occasions[path] for path in occasions if path not in now}
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else _idle(table, changes),
        cursor=replace(cursor, pending=later).to_json(),
    )


def _together(decisions: Sequence[Decision]) -> Decision:
    """Return the decision for a table that is compacted as a whole."""
    if len(decisions) == 1 and not decisions[0].partition:
        return decisions[0]
    first = decisions[0]
    others = f", and {len(decisions) - 1} other partitions" if len(decisions) > 1 else ""
    return Decision("", True, f"{first.partition}: {first.reason}{others}", Figures())


def _idle(table: Table, changes: Changes) -> str:
    """Say why nothing is requested."""
    held = [str(decision) for decision in changes.decisions if not decision.compact]
    more = [f"and {len(held) - _IN_REASON} others"] if len(held) > _IN_REASON else []
    idle = f"nothing to compact up to snapshot {changes.cursor.handled.snapshot_id}"
    return "; ".join([f"{table.identifier}: {idle}", *held[:_IN_REASON], *more])


def _events(
    table: Table,
    changes: Changes,
    key: dg.AssetKey,
    *,
    materialized: bool,
) -> list[dg.AssetObservation | dg.AssetMaterialization]:
    """Return what makes others see the new data: maintenance keeps the version and is not reported."""
    found = list[dg.AssetObservation | dg.AssetMaterialization]()
    for snapshot in changes.data:
        tags = {"dagster/data_version": str(snapshot.id)}
        metadata: dict[str, Any] = {
            "paimon/snapshot_id": snapshot.id,
            "paimon/commit_kind": snapshot.commit_kind.value,
            "paimon/commit_user": snapshot.commit_user,
            "paimon/physical_rows": snapshot.total_record_count,
            "paimon/commit_time": dg.MetadataValue.timestamp(snapshot.time_millis / 1000),
        }
        if snapshot is changes.data[-1]:
            metadata |= decisions_metadata(changes.decisions)
            metadata["dagster/column_schema"] = column_schema(table.schema)
            if materialized:
                found.append(dg.AssetMaterialization(key, metadata=metadata, tags=tags))
                break
        if not materialized:
            found.append(dg.AssetObservation(key, metadata=metadata, tags=tags))
    return found
