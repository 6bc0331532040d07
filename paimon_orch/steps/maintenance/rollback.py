"""Roll back to an older snapshot.

See docs/format/rollback.md#rollback-procedures.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.snapshot_selection import SnapshotRequest
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.maintenance import rollback_as_latest
from paimon_orch.table.metadata.rollback import RollbackPlan
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest(SnapshotRequest):
    """The snapshot, and whether it is committed again in place of deleting later ones."""

    as_latest: Annotated[
        bool,
        Argument("Commit the older state as a new snapshot; later snapshots and tags are kept."),
    ] = False
    delete_tags: Annotated[bool, Argument("Also delete the tags of later snapshots.")] = False


def plan(table: Table, request: RollbackRequest) -> ChangePlan:
    """Find the snapshot, and what is deleted or committed."""
    if request.as_latest:
        return _plan_as_latest(table, request)
    planned = table.plan_rollback(request.selector)
    previous_id = table.stores.snapshots.latest_id()
    snapshot_id, snapshots, tags = planned.target.id, planned.snapshots, planned.tags
    loss = describe_loss({"snapshot": len(snapshots), "tag": tags})
    is_refused = bool(tags) and not request.delete_tags  # by a run, before it would ask
    return ChangePlan(
        request=request,
        values={
            "snapshot_id": snapshot_id,
            "previous_snapshot_id": previous_id,
            "deleted_snapshots": snapshots,
            "deleted_tags": tags,
        },
        report=PlanReport(
            action="roll back",
            link=" ",
            details=f" from snapshot {previous_id} to {snapshot_id} and delete {loss}",
            asks=bool(snapshots or tags) and not is_refused,
        ),
        done=f"rolled back to snapshot {snapshot_id}",
        apply=partial(_roll_back, table, planned, delete_tags=request.delete_tags),
    )


def _roll_back(table: Table, planned: RollbackPlan, *, delete_tags: bool) -> None:
    planned.check_tags(delete_tags=delete_tags)
    table.run_rollback(planned)


def _plan_as_latest(table: Table, request: RollbackRequest) -> ChangePlan:
    planned = rollback_as_latest.plan(
        table, rollback_as_latest.RollbackAsLatestRequest(selector=request.selector)
    )
    return ChangePlan(
        request=request,
        values=planned.to_dict(),
        report=PlanReport(
            action=f"commit the state of snapshot {planned.target.id}",
            details=f" ({planned.describe_changes()})",
        ),
        apply=partial(run_step, rollback_as_latest.ROLLBACK_AS_LATEST, table, planned),
    )


DECLARATION = declare_step(
    build_change_step("roll back", plan),
    RollbackRequest,
    help="Later snapshots are deleted, and with --delete-tags later tags. No job may write to the "
    "table at the same time. With --as-latest, nothing is deleted, and jobs may write; a tag is "
    "created that keeps the files of the older snapshot.",
    examples=[
        "/lake db.orders --tag release-7 --dry-run",
        "/lake db.orders --snapshot 41 --as-latest",
    ],
    asks=True,
)
