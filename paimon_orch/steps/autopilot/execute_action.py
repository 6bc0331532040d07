"""Executes one action of a maintenance plan by the step that does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from paimon_orch.steps.autopilot.action_outcome import ActionEffect
from paimon_orch.steps.autopilot.decisions import ActionKind, MaintenanceDecision
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import EmptyRequest, RequestT, Step, StepOutcome, run_step
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.materialize_deletion_vectors import MATERIALIZE_DELETION_VECTORS
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactRequest
from paimon_orch.steps.expiration import expire_snapshots
from paimon_orch.steps.expiration.expire_snapshots import (
    ExpireSnapshotsRequest,
    SnapshotExpirationPlan,
)
from paimon_orch.steps.maintenance.compact_manifests import COMPACT_MANIFESTS
from paimon_orch.steps.maintenance.rewrite_file_index import (
    REWRITE_FILE_INDEX,
    RewriteFileIndexRequest,
)
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


class _ActionStep(NamedTuple):
    """How the step of an action is planned and run."""

    plan: Callable[[Table, MaintenanceDecision, ActionContext], Any]
    run: Callable[[Table, Any, Executor], StepOutcome]
    measure: Callable[[Any], int] = attrgetter("bytes")
    """Returns the bytes that a plan takes from the budget; 0 without work."""
    has_work: Callable[[Any], object] = bool


def execute_action(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> ActionEffect | None:
    """Plan the step of an action with the newest snapshot, and run it.

    Returns None if there is nothing to do. Raises :class:`BudgetError` if ``reserve`` does.
    """
    assert action.action is not None
    step = _STEPS[action.action]
    planned = step.plan(table, action, context)
    if not step.has_work(planned):
        return None
    context.reserve(action, step.measure(planned))
    outcome = step.run(table, planned, context.executor)
    io = outcome.count_io()
    return ActionEffect(
        bytes_read=io.bytes_read,
        bytes_written=io.bytes_written,
        bytes_deleted=io.bytes_deleted,
        rows=io.rows_written,
        snapshot_id=getattr(outcome, "snapshot_id", None),
    )


def _plan_compaction(
    table: Table, action: MaintenanceDecision, context: ActionContext
) -> CompactionPlan:
    request = CompactRequest(
        partitions=[action.partition] if action.partition else None,
        strategy="full" if action.is_full else "minor",
        up_to_level=action.up_to_level,
        now=context.now,
    )
    return compact.plan(table, request, executor=context.executor)


def _measure_compaction(planned: CompactionPlan) -> int:
    postponed = planned.postponed.units if planned.postponed else ()
    return planned.bytes + sum(unit.bytes for unit in postponed)


def _plan_expiration(
    table: Table, _action: MaintenanceDecision, context: ActionContext
) -> SnapshotExpirationPlan:
    now = None if context.now is None else int(context.now.timestamp() * 1000)
    return expire_snapshots.plan(table, ExpireSnapshotsRequest(now_millis=now))


def _use_step(step: Step[RequestT, Any, Any, Any, Any, Any], request: RequestT) -> _ActionStep:
    """Return how a step is planned and run that needs only its table."""
    return _ActionStep(lambda table, *_: step.plan(table, request), partial(run_step, step))


_COMPACTION = _ActionStep(
    _plan_compaction,
    compact.run_compaction,
    _measure_compaction,
    has_work=lambda planned: planned or planned.postponed,
)
_STEPS: Mapping[ActionKind, _ActionStep] = {
    ActionKind.MINOR_COMPACTION: _COMPACTION,
    ActionKind.FULL_COMPACTION: _COMPACTION,
    ActionKind.CLUSTERING: _COMPACTION,
    ActionKind.SNAPSHOT_EXPIRATION: _ActionStep(
        _plan_expiration, expire_snapshots.run_expiration, measure=lambda _: 0
    ),
    ActionKind.MANIFEST_COMPACTION: _use_step(COMPACT_MANIFESTS, EmptyRequest()),
    ActionKind.FILE_INDEX_REWRITE: _use_step(REWRITE_FILE_INDEX, RewriteFileIndexRequest()),
    ActionKind.MATERIALIZATION: _use_step(MATERIALIZE_DELETION_VECTORS, PartitionRequest()),
}
