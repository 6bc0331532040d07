"""Make the snapshot after a gap the earliest one."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.table.metadata.rollback import check_can_repair_earliest
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestSnapshotRequest(ParsedRequest):
    """The snapshot after the gap."""

    snapshot_id: Annotated[
        int, Argument("Id of the snapshot.", option="--snapshot", metavar="ID", minimum=1)
    ]


def plan(table: Table, request: EarliestSnapshotRequest) -> ChangePlan:
    """Check that the snapshot follows a gap, and that all later ones exist."""
    stores, snapshot_id = table.stores, request.snapshot_id
    stores.check_step(StepKind.METADATA)
    previous = check_can_repair_earliest(stores.snapshots, snapshot_id)
    older = sum(previous <= number < snapshot_id for number in stores.snapshots.ids())
    change = f"set the earliest snapshot from {previous} to {snapshot_id}"
    loss = f" and no longer keep {describe_loss({'older snapshot': older})}" if older else ""
    return ChangePlan(
        request=request,
        values={"snapshot_id": snapshot_id, "previous_snapshot_id": previous},
        report=PlanReport(action=change + loss, asks=older > 0),
        done=change,
        apply=partial(table.repair_earliest_snapshot, snapshot_id),
    )


REPAIR_EARLIEST_SNAPSHOT = build_change_step("repair the earliest snapshot of", plan)

DECLARATION = declare_step(
    REPAIR_EARLIEST_SNAPSHOT,
    EarliestSnapshotRequest,
    help="For a table with missing snapshot files. All snapshots from this one to the newest must "
    "exist. Older snapshots are then treated as expired.",
    examples=["/lake db.orders --snapshot 8 --dry-run"],
    asks=True,
)
