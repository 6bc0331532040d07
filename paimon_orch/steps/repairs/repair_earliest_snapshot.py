"""Make the snapshot after a gap the earliest one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from paimon_orch.format.display import Displayable
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestSnapshotPlan(Displayable):
    """The earliest snapshot before and after the repair."""

    request: EarliestSnapshotRequest
    previous_id: int
    older_snapshots: int
    """The number of snapshots that are then treated as expired."""

    def __bool__(self) -> bool:
        """Return True, because the hint is written in any case."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the ids as JSON values."""
        return {
            "snapshot_id": self.request.snapshot_id,
            "previous_snapshot_id": self.previous_id,
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        action = self.describe_change()
        if self.older_snapshots:
            loss = describe_loss({"older snapshot": self.older_snapshots})
            action += f" and no longer keep {loss}"
        return PlanReport(
            action=action,
            asks=self.older_snapshots > 0,
        )

    def describe_change(self) -> str:
        """Return how the hint changes."""
        return f"set the earliest snapshot from {self.previous_id} to {self.request.snapshot_id}"


class EarliestSnapshotResult(PlanOutcome[EarliestSnapshotPlan]):
    """The earliest snapshot after the repair."""

    def describe(self) -> list[str]:
        """Return what was changed."""
        return [self.plan.describe_change()]


def plan(table: Table, request: EarliestSnapshotRequest) -> EarliestSnapshotPlan:
    """Check that the snapshot follows a gap, and that all later ones exist."""
    stores = table.stores
    stores.check_step(StepKind.METADATA)
    previous = check_can_repair_earliest(stores.snapshots, request.snapshot_id)
    older = sum(previous <= number < request.snapshot_id for number in stores.snapshots.ids())
    return EarliestSnapshotPlan(request=request, previous_id=previous, older_snapshots=older)


def commit(
    table: Table, plan: EarliestSnapshotPlan, _results: Sequence[bytes] = ()
) -> EarliestSnapshotResult:
    """Write the hint."""
    table.repair_earliest_snapshot(plan.request.snapshot_id)
    return EarliestSnapshotResult(plan=plan)


REPAIR_EARLIEST_SNAPSHOT = build_metadata_step(
    "repair the earliest snapshot of", plan, commit, max_attempts=1
)

DECLARATION = declare_step(
    REPAIR_EARLIEST_SNAPSHOT,
    EarliestSnapshotRequest,
    help="For a table with missing snapshot files. All snapshots from this one to the newest must "
    "exist. Older snapshots are then treated as expired.",
    examples=["/lake db.orders --snapshot 8 --dry-run"],
    asks=True,
)
