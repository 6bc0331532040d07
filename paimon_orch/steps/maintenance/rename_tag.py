"""Rename a tag.

See docs/format/tags-branches-consumers.md#tags.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from paimon_orch.format.display import Displayable
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTagRequest(ParsedRequest):
    """The names of a tag."""

    name: Annotated[str, Argument("Name of the tag.", metavar="TAG", is_positional=True)]
    to: Annotated[str, Argument("New name of the tag.", metavar="NEW_TAG", is_positional=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRenamePlan(Displayable):
    """A tag that exists, and its new name."""

    request: RenameTagRequest

    def __bool__(self) -> bool:
        """Return True, because the tag exists."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the names as JSON values."""
        return {"tag": self.request.to, "previous_name": self.request.name}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        name, to = escape_name(self.request.name), escape_name(self.request.to)
        return PlanReport(action=f"rename tag {name} to {to}")


class TagRenameResult(PlanOutcome[TagRenamePlan]):
    """The tag that was renamed."""

    def describe(self) -> list[str]:
        """Return both names."""
        return [self.plan.describe().action.replace("rename", "renamed", 1)]


def plan(table: Table, request: RenameTagRequest) -> TagRenamePlan:
    """Find the tag. Raises :class:`NotFoundError` if it does not exist."""
    table.stores.check_step(StepKind.TAG)
    tags = table.tags
    name = tags.find(request.name)
    tags.get(name)
    return TagRenamePlan(request=replace(request, name=name))


def commit(table: Table, plan: TagRenamePlan, _results: Sequence[bytes] = ()) -> TagRenameResult:
    """Rename the tag."""
    table.tags.rename(plan.request.name, plan.request.to)
    return TagRenameResult(plan=plan)


RENAME_TAG = build_metadata_step("rename a tag of", plan, commit, max_attempts=1)

DECLARATION = declare_step(
    RENAME_TAG,
    RenameTagRequest,
    examples=["/lake db.orders release-7 release-7.0"],
    command="tag rename",
)
