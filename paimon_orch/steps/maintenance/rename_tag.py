"""Rename a tag.

See docs/format/tags-branches-consumers.md#tags.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from paimon_orch.format.options.table_option import StepKind
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.snapshot_selection import TagRequest
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTagRequest(TagRequest):
    """The names of a tag."""

    to: Annotated[str, Argument("New name of the tag.", metavar="NEW_TAG", is_positional=True)]


def plan(table: Table, request: RenameTagRequest) -> ChangePlan:
    """Find the tag. Raises :class:`NotFoundError` if it does not exist."""
    table.stores.check_step(StepKind.TAG)
    tags = table.tags
    name = tags.find(request.name)
    tags.get(name)
    names = f"tag {escape_name(name)} to {escape_name(request.to)}"
    return ChangePlan(
        request=request,
        values={"tag": request.to, "previous_name": name},
        report=PlanReport(action=f"rename {names}"),
        done=f"renamed {names}",
        apply=partial(tags.rename, name, request.to),
    )


RENAME_TAG = build_change_step("rename a tag of", plan)

DECLARATION = declare_step(
    RENAME_TAG,
    RenameTagRequest,
    examples=["/lake db.orders release-7 release-7.0"],
    command="tag rename",
)
