"""Executes one action of a maintenance plan by the step that does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from paimon_orch.steps.autopilot.action_outcome import ActionEffect
from paimon_orch.steps.autopilot.decisions import ActionKind, MaintenanceDecision
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import EmptyRequest, StepOutcome, run_step
from paimon_orch.steps.compaction import compact, materialize_deletion_vectors
from paimon_orch.steps.compaction.plan import CompactRequest
from paimon_orch.steps.expiration import expire_snapshots
from paimon_orch.steps.expiration.expire_snapshots import ExpireSnapshotsRequest
from paimon_orch.steps.maintenance import compact_manifests, rewrite_file_index
from paimon_orch.steps.maintenance.rewrite_file_index import RewriteFileIndexRequest
from paimon_orch.table.table import Table


class BudgetError(Exception):
    """The remaining budget does not allow an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What the actions of a run share."""

    executor: Executor
    reserve: Callable[[MaintenanceDecision, int], None]
    """Takes bytes from the budget before an action changes the table; raises BudgetError."""
    now: datetime | None = None
    """The time at which ages are measured; None means the current time."""


def execute_action(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    """Plan the step of an action with the newest snapshot, and run it.

    Returns None if there is nothing to do. Raises :class:`BudgetError` if ``reserve`` does.
    """
    assert action.action is not None
    return _EXECUTE[action.action](table, action, context)


def _compact(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    request = CompactRequest(
        partitions=[action.partition] if action.partition else None,
        strategy="full" if action.is_full else "minor",
        up_to_level=action.up_to_level,
        now=context.now,
    )
    planned = compact.plan(table, request, executor=context.executor)
    postponed = planned.postponed.units if planned.postponed else ()
    if not planned and not postponed:
        return None
    context.reserve(action, planned.bytes + sum(unit.bytes for unit in postponed))
    result = compact.run_compaction(table, planned, context.executor)
    return _build_effect(result, result.snapshot_id)


def _expire_snapshots(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    now = None if context.now is None else int(context.now.timestamp() * 1000)
    planned = expire_snapshots.plan(table, ExpireSnapshotsRequest(now_millis=now))
    if not planned:
        return None
    context.reserve(action, 0)
    result = expire_snapshots.run_expiration(table, planned, context.executor)
    return _build_effect(result, None)


def _compact_manifests(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    planned = compact_manifests.plan(table, EmptyRequest())
    if not planned:
        return None
    context.reserve(action, planned.bytes)
    result = run_step(compact_manifests.COMPACT_MANIFESTS, table, planned)
    return _build_effect(result, None if result.snapshot is None else result.snapshot.id)


def _rewrite_file_index(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    planned = rewrite_file_index.plan(table, RewriteFileIndexRequest())
    if not planned:
        return None
    context.reserve(action, planned.bytes)
    result = run_step(rewrite_file_index.REWRITE_FILE_INDEX, table, planned, context.executor)
    return _build_effect(result, result.snapshot_id)


def _materialize(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    planned = materialize_deletion_vectors.plan(table, PartitionRequest())
    if not planned:
        return None
    context.reserve(action, planned.bytes)
    step = materialize_deletion_vectors.MATERIALIZE_DELETION_VECTORS
    result = run_step(step, table, planned, context.executor)
    return _build_effect(result, result.snapshot_id)


def _build_effect(outcome: StepOutcome, snapshot_id: int | None) -> ActionEffect:
    io = outcome.count_io()
    return ActionEffect(
        bytes_read=io.bytes_read,
        bytes_written=io.bytes_written,
        bytes_deleted=io.bytes_deleted,
        rows=io.rows_written,
        snapshot_id=snapshot_id,
    )


_EXECUTE: Mapping[
    ActionKind, Callable[[Table, MaintenanceDecision, ActionContext], ActionEffect | None]
] = {
    ActionKind.MINOR_COMPACTION: _compact,
    ActionKind.FULL_COMPACTION: _compact,
    ActionKind.CLUSTERING: _compact,
    ActionKind.SNAPSHOT_EXPIRATION: _expire_snapshots,
    ActionKind.MANIFEST_COMPACTION: _compact_manifests,
    ActionKind.FILE_INDEX_REWRITE: _rewrite_file_index,
    ActionKind.MATERIALIZATION: _materialize,
}
