"""Create a branch from a tag, or an empty branch.

See docs/format/tags-branches-consumers.md#overview-of-the-files.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.maintenance.delete_branch import BranchRequest
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBranchRequest(BranchRequest):
    """The branch, and the tag that it starts from."""

    tag: Annotated[
        str | None,
        Argument("Tag to create the branch from.", metavar="TAG", default="an empty branch"),
    ] = None


def plan(table: Table, request: CreateBranchRequest) -> ChangePlan:
    """Check the names. Raises the errors of :meth:`Branches.create`."""
    name, tag = request.name, request.tag
    table.branches.plan_creation(name, tag)
    start = "without rows" if tag is None else f"at tag {tag}"
    return ChangePlan(
        request=request,
        values={"branch": name, "tag": tag},
        report=PlanReport(action=f"create branch {name}", details=f" {start}"),
        done=f"branch {name} starts {start}",
        apply=partial(table.branches.create, name, tag),
    )


DECLARATION = declare_step(
    build_change_step("create a branch of", plan),
    CreateBranchRequest,
    examples=["/lake db.orders dev --tag release-7"],
    command="branch create",
)
