"""Replace main with a branch.

See docs/format/tags-branches-consumers.md#overview-of-the-files.
"""

from functools import partial

from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.steps.maintenance.delete_branch import BranchRequest
from paimon_orch.table.table import Table


def plan(table: Table, request: BranchRequest) -> ChangePlan:
    """Find what main loses. Raises the errors of :meth:`Branches.fast_forward`."""
    branches = table.branches
    name = branches.find(request.name)
    planned = branches.plan_fast_forward(name)
    snapshots, tags = planned.replaced_snapshots, planned.replaced_tags
    previous_id, snapshot_id = planned.latest_id, planned.snapshots[-1]
    target = f" to snapshot {snapshot_id} of branch {escape_name(name)}"
    loss = describe_loss({"snapshot": len(snapshots), "tag": tags})
    return ChangePlan(
        request=request,
        values={
            "branch": name,
            "snapshot_id": snapshot_id,
            "previous_snapshot_id": previous_id,
        },
        report=PlanReport(
            action="move main",
            details=f" from snapshot {previous_id}{target} and delete {loss}",
            asks=bool(snapshots or tags),
        ),
        done=f"moved main{target}",
        apply=partial(branches.run_fast_forward, planned),
    )


DECLARATION = declare_step(
    build_change_step("fast-forward a branch of", plan),
    BranchRequest,
    help="Snapshots and tags that were created on main after the start of the branch are deleted.",
    examples=["/lake db.orders dev --dry-run"],
    asks=True,
    command="branch fast-forward",
)
