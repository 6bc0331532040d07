"""Delete a branch.

See docs/format/tags-branches-consumers.md#overview-of-the-files.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport, describe_loss
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRequest(ParsedRequest):
    """A branch."""

    name: Annotated[str, Argument("Name of the branch.", metavar="BRANCH", is_positional=True)]


def plan(table: Table, request: BranchRequest) -> ChangePlan:
    """Find the snapshots and tags of the branch. Raises :class:`NotFoundError` without it."""
    branches = table.branches
    name = branches.find(request.name)
    store = SnapshotStore(table.io, branches.check_can_delete(name))
    snapshots, tags = len(store.ids()), store.tags()
    branch = f"branch {escape_name(name)}"
    return ChangePlan(
        request=request,
        values={"branch": name, "snapshots": snapshots, "tags": tags},
        report=PlanReport(
            action=f"delete {branch}",
            details=f" with {describe_loss({'snapshot': snapshots, 'tag': tags})}",
            asks=True,
        ),
        done=f"deleted {branch}",
        apply=partial(branches.delete, name),
    )


DECLARATION = declare_step(
    build_change_step("delete a branch of", plan),
    BranchRequest,
    help="The command remove-orphan-files deletes the data files that only the branch references.",
    examples=["/lake db.orders dev --dry-run"],
    asks=True,
    command="branch delete",
)
