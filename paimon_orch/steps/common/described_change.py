"""Steps whose plan knows all that a run will change: the renaming of a tag, a branch to delete."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.format.display import Displayable
from paimon_orch.steps.common.step import PlanOutcome, RequestT, Step, build_metadata_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan(Displayable):
    """A change as JSON values, as text, and as the function that makes it."""

    request: Any
    values: Mapping[str, object]
    report: PlanReport
    done: str
    """What a run has done."""
    apply: Callable[[], object] = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        """Return True: there is always something to do."""
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the change as JSON values."""
        return dict(self.values)

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return self.report


class ChangeResult(PlanOutcome[ChangePlan]):
    """The change that was made."""

    def describe(self) -> list[str]:
        """Return what was changed."""
        return [self.plan.done]


def _commit(_table: Table, plan: ChangePlan, _results: Sequence[bytes] = ()) -> ChangeResult:
    plan.apply()
    return ChangeResult(plan=plan)


def build_change_step(
    title: str, plan: Callable[[Table, RequestT], ChangePlan]
) -> Step[RequestT, ChangePlan, None, None, bytes, ChangeResult]:
    """Return the step of a change; a conflict is not retried."""
    return build_metadata_step(title, plan, _commit, max_attempts=1)
