"""The sensor on the LATEST hint: compaction follows what other engines commit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import dagster as dg

from paimon_orch.dagster.metadata import build_column_schema, build_decisions_metadata
from paimon_orch.dagster.names import compaction_asset_key, definition_name, table_asset_key
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.run_config import load_table_with_allowances
from paimon_orch.dagster.run_requests import CompactionTarget, build_run_key
from paimon_orch.dagster.sensor_cursor import (
    FIRST_EVALUATION,
    ChangesSinceCursor,
    CompactionDecider,
    Cursor,
    collect_changes,
    is_latest_snapshot,
)
from paimon_orch.errors import NotFoundError
from paimon_orch.format.options.step_support import NO_ALLOWANCES, Allowances
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.compaction.policy import (
    CompactionDecision,
    CompactionMetrics,
    CompactionPolicy,
)
from paimon_orch.table.table import Table

_MAX_LOGGED_DECISIONS = 50
_MAX_DECISIONS_IN_REASON = 3


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
        name=definition_name("latest_snapshot", table, key_prefix),
        description=f"Requests compaction of the partitions of `{table}` that new snapshots touched.",
        target=dg.AssetSelection.assets(compaction_asset_key(table, key_prefix)),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    def latest_snapshot(
        context: dg.SensorEvaluationContext, paimon: PaimonCatalogResource
    ) -> dg.SensorResult | dg.SkipReason:
        try:
            loaded = load_table_with_allowances(paimon, table, allowances)
        except NotFoundError as error:
            return dg.SkipReason(str(error))
        target = CompactionTarget(loaded, partitions_def, key_prefix, context)
        changes = _read_changes(
            context, target, policy or CompactionPolicy(), max_snapshots_per_tick
        )
        if isinstance(changes, str):
            return dg.SkipReason(changes)
        _log_decisions(context, loaded, changes)
        result = _build_result(target, changes, max_requests_per_tick)
        events = _build_asset_events(target, changes, materialized=report_as == "materialization")
        return result._replace(asset_events=[*events])

    return latest_snapshot


def _read_changes(
    context: dg.SensorEvaluationContext,
    target: CompactionTarget,
    policy: CompactionPolicy,
    limit: int,
) -> ChangesSinceCursor | str:
    """Return what is new since the cursor, or why there is nothing to look at."""
    table, cursor = target.table, Cursor.from_json(context.cursor)
    if cursor and _is_idle(cursor, policy) and is_latest_snapshot(table, cursor.handled):
        return f"{table.identifier}: snapshot {cursor.handled.snapshot_id} already handled"
    latest = table.stores.snapshots.latest()
    if latest is None:
        return f"{table.identifier} has no snapshot yet"
    return collect_changes(
        CompactionDecider(table, policy, may_be_full=target.alone), cursor, latest, limit
    )


def _is_idle(cursor: Cursor, policy: CompactionPolicy) -> bool:
    """Tell whether all that was seen is taken up, and nothing has waited for too long."""
    return not cursor.pending and not cursor.overdue(policy.wait_millis)


def _log_decisions(
    context: dg.SensorEvaluationContext, table: Table, changes: ChangesSinceCursor
) -> None:
    """Tell every decision, as far as a log of a tick is read."""
    if changes.whole_table_reason:
        tell = context.log.warning if context.cursor else context.log.info
        tell("%s: %s; looking at all partitions", table.identifier, changes.whole_table_reason)
    for decision in changes.decisions[:_MAX_LOGGED_DECISIONS]:
        context.log.info("%s: %s", table.identifier, decision)
    if len(changes.decisions) > _MAX_LOGGED_DECISIONS:
        context.log.info("and %d other partitions", len(changes.decisions) - _MAX_LOGGED_DECISIONS)


def _build_result(
    target: CompactionTarget, changes: ChangesSinceCursor, limit: int
) -> dg.SensorResult:
    """Return the compactions to request now, at most ``limit``; the cursor keeps the others for later.

    Nothing is requested for a table whose options forbid compaction: each run would fail. It is
    looked at again when the policy's ``max_wait`` is over.
    """
    cursor, occasions = changes.cursor, changes.cursor.pending
    decisions = {decision.partition: decision for decision in changes.decisions}
    present = list(decisions)
    if occasions and target.partitions_def is None:
        decisions = {"": _merge_decisions([decisions[path] for path in occasions])}
        occasions = {"": changes.run_key_suffix}
    refusal = target.refusal() if occasions else ""
    if refusal:
        target.tick.log.warning("%s", refusal)
        occasions = {}
    now = list(occasions)[:limit]
    run_keys = {
        path: build_run_key(target.table, cursor.table, path, occasions[path]) for path in now
    }
    requests = target.requests(run_keys, decisions, cursor.handled.snapshot_id)
    later = {path: occasions[path] for path in occasions if path not in run_keys}
    known = (
        changes.touched_partitions
        if changes.whole_table_reason in (None, FIRST_EVALUATION)
        else None
    )
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else refusal or _build_skip_message(target.table, changes),
        cursor=replace(cursor, pending=later).to_json(),
        dynamic_partitions_requests=target.build_partitions_requests(present, known),
    )


def _merge_decisions(decisions: Sequence[CompactionDecision]) -> CompactionDecision:
    """Return the decision for a table that is compacted as a whole."""
    if len(decisions) == 1 and not decisions[0].partition:
        return decisions[0]
    first = decisions[0]
    others = f", and {len(decisions) - 1} other partitions" if len(decisions) > 1 else ""
    return CompactionDecision(
        partition="",
        compact=True,
        reason=f"{first.partition}: {first.reason}{others}",
        figures=CompactionMetrics(),
    )


def _build_skip_message(table: Table, changes: ChangesSinceCursor) -> str:
    """Say why nothing is requested."""
    held = [str(decision) for decision in changes.decisions if not decision.compact]
    more = (
        [f"and {len(held) - _MAX_DECISIONS_IN_REASON} others"]
        if len(held) > _MAX_DECISIONS_IN_REASON
        else []
    )
    idle = f"nothing to compact up to snapshot {changes.cursor.handled.snapshot_id}"
    return "; ".join([f"{table.identifier}: {idle}", *held[:_MAX_DECISIONS_IN_REASON], *more])


def _build_asset_events(
    target: CompactionTarget, changes: ChangesSinceCursor, *, materialized: bool
) -> Iterator[dg.AssetObservation | dg.AssetMaterialization]:
    """Yield what makes others see the new data: maintenance keeps the version and is not reported."""
    key = table_asset_key(target.table.identifier, target.key_prefix)
    event = dg.AssetMaterialization if materialized else dg.AssetObservation
    for snapshot in changes.data[-1:] if materialized else changes.data:
        tags = {"dagster/data_version": str(snapshot.id)}
        yield event(
            key, metadata=_build_snapshot_metadata(target.table, changes, snapshot), tags=tags
        )


def _build_snapshot_metadata(
    table: Table, changes: ChangesSinceCursor, snapshot: Snapshot
) -> dict[str, Any]:
    """Return the metadata of a snapshot; the newest one also tells the columns and the decisions."""
    metadata: dict[str, Any] = {
        "paimon/snapshot_id": snapshot.id,
        "paimon/commit_kind": snapshot.commit_kind.value,
        "paimon/commit_user": snapshot.commit_user,
        "paimon/physical_rows": snapshot.total_record_count,
        "paimon/commit_time": dg.MetadataValue.timestamp(snapshot.time_millis / 1000),
    }
    if snapshot is changes.data[-1]:
        metadata |= build_decisions_metadata(changes.decisions)
        metadata["dagster/column_schema"] = build_column_schema(table.schema)
    return metadata
