"""Rename a branch.

See docs/format/tags-branches-consumers.md#overview-of-the-files.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.maintenance.delete_branch import BranchRequest
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameBranchRequest(BranchRequest):
    """The names of a branch."""

    to: Annotated[
        str, Argument("New name of the branch.", metavar="NEW_BRANCH", is_positional=True)
    ]


def plan(table: Table, request: RenameBranchRequest) -> ChangePlan:
    """Find the branch, and check the new name."""
    branches, to = table.branches, request.to
    name = branches.find(request.name)
    branches.plan_renaming(name, to)
    names = f"branch {escape_name(name)} to {to}"
    return ChangePlan(
        request=request,
        values={"branch": to, "previous_name": name},
        report=PlanReport(action=f"rename {names}"),
        done=f"renamed {names}",
        apply=partial(branches.rename, name, to),
    )


DECLARATION = declare_step(
    build_change_step("rename a branch of", plan),
    RenameBranchRequest,
    help="No job may write to the branch at the same time. Object stores cannot rename branches.",
    examples=["/lake db.orders dev test"],
    command="branch rename",
)
