"""The sensor on the LATEST hint: compaction follows what other engines commit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import dagster as dg

from paimon_orch.dagster.metadata import column_schema, decisions_metadata
from paimon_orch.dagster.names import compaction_key, object_name, table_key
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.run_config import load_allowed
from paimon_orch.dagster.run_requests import CompactionTarget, run_key
from paimon_orch.dagster.sensor_cursor import (
    FIRST_LOOK,
    Changes,
    Cursor,
    Watch,
    changes_since,
    is_newest,
)
from paimon_orch.errors import NotFoundError
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.compaction.policy import CompactionPolicy, Decision, Figures
from paimon_orch.table.table import Table

_SHOWN = 50
_IN_REASON = 3


def build_latest_snapshot_sensor(  # noqa: PLR0913 - keywords of a factory
    table: str,
    *,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    policy: CompactionPolicy | None = None,
    allowances: Allowances = NO_ALLOWANCES,
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
            loaded = load_allowed(paimon, table, allowances)
        except NotFoundError as error:
            return dg.SkipReason(str(error))
        target = CompactionTarget(loaded, partitions_def, key_prefix, context)
        changes = _look(context, target, policy or CompactionPolicy(), max_snapshots_per_tick)
        if isinstance(changes, str):
            return dg.SkipReason(changes)
        _log(context, loaded, changes)
        result = _result(target, changes, max_requests_per_tick)
        events = _events(target, changes, materialized=report_as == "materialization")
        return result._replace(asset_events=[*events])

    return latest_snapshot


def _look(
    context: dg.SensorEvaluationContext,
    target: CompactionTarget,
    policy: CompactionPolicy,
    limit: int,
) -> Changes | str:
    """Return what is new since the cursor, or why there is nothing to look at."""
    table, cursor = target.table, Cursor.from_json(context.cursor)
    if cursor and _is_idle(cursor, policy) and is_newest(table, cursor.handled):
        return f"{table.identifier}: snapshot {cursor.handled.snapshot_id} already handled"
    latest = table.snapshots.latest()
    if latest is None:
        return f"{table.identifier} has no snapshot yet"
    return changes_since(Watch(table, policy, may_be_full=target.alone), cursor, latest, limit)


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


def _result(target: CompactionTarget, changes: Changes, limit: int) -> dg.SensorResult:
    """Return the compactions to request now, at most ``limit``; the cursor keeps the others for later.

    Nothing is requested for a table whose options forbid compaction: each run would fail. It is
    looked at again when the policy's ``max_wait`` is over.
    """
    cursor, occasions = changes.cursor, changes.cursor.pending
    decisions = {decision.partition: decision for decision in changes.decisions}
    present = list(decisions)
    if occasions and target.partitions_def is None:
        decisions = {"": _together([decisions[path] for path in occasions])}
        occasions = {"": changes.occasion}
    refusal = target.refusal() if occasions else ""
    if refusal:
        target.tick.log.warning("%s", refusal)
        occasions = {}
    now = list(occasions)[:limit]
    run_keys = {path: run_key(target.table, cursor.table, path, occasions[path]) for path in now}
    requests = target.requests(run_keys, decisions, cursor.handled.snapshot_id)
    later = {path: occasions[path] for path in occasions if path not in run_keys}
    known = changes.touched if changes.whole_table in (None, FIRST_LOOK) else None
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else refusal or _idle(target.table, changes),
        cursor=replace(cursor, pending=later).to_json(),
        dynamic_partitions_requests=target.partition_changes(present, known),
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
    target: CompactionTarget, changes: Changes, *, materialized: bool
) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
    """Yield what makes others see the new data: maintenance keeps the version and is not reported."""
    key = table_key(target.table.identifier, target.key_prefix)
    event = dg.AssetMaterialization if materialized else dg.AssetObservation
    for snapshot in changes.data[-1:] if materialized else changes.data:
        tags = {"dagster/data_version": str(snapshot.id)}
        yield event(key, metadata=_metadata(target.table, changes, snapshot), tags=tags)


def _metadata(table: Table, changes: Changes, snapshot: Snapshot) -> dict[str, Any]:
    """Return the metadata of a snapshot; the newest one also tells the columns and the decisions."""
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
    return metadata
