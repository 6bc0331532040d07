"""Steps whose plan knows all that a run will change: the renaming of a tag, a branch to delete."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_orch.format.display import Displayable
from paimon_orch.steps.common.step import RequestT, Step, StepOutcome, build_metadata_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan(Displayable):
    """A change as JSON values, as text, and as the function that makes it."""

    request: Any
    values: Mapping[str, object]
    result: Mapping[str, object] | None = None
    """The JSON values of the outcome, if they differ from ``values``."""
    report: PlanReport
    done: str = ""
    """What a run has done, unless another step does it."""
    apply: Callable[[], object] = field(repr=False, compare=False)
    """Makes the change; may return the outcome of another step."""

    def __bool__(self) -> bool:
        """Return whether there is something to do."""
        return not self.report.nothing

    def to_dict(self) -> dict[str, object]:
        """Return the change as JSON values."""
        return dict(self.values)

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return self.report


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult(StepOutcome):
    """The change that was made, with the outcome of the step that made it."""

    plan: ChangePlan
    outcome: StepOutcome | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the change and the outcome as JSON values."""
        outcome = {} if self.outcome is None else self.outcome.to_dict()  # type: ignore[attr-defined]
        return dict(self.plan.values if self.plan.result is None else self.plan.result) | outcome

    def describe(self) -> list[str]:
        """Return what was changed."""
        if self.outcome is not None:
            return self.outcome.describe()
        return [self.plan.done] if self.plan else []

    def list_notes(self) -> Sequence[str]:
        """Return the notes of the outcome."""
        return () if self.outcome is None else self.outcome.list_notes()


def apply_change(plan: ChangePlan) -> ChangeResult:
    """Make the change."""
    outcome = plan.apply()
    outcome = outcome if isinstance(outcome, StepOutcome) else None
    return ChangeResult(plan=plan, outcome=outcome, attempts=1)


def _commit(_table: Table, plan: ChangePlan) -> ChangeResult:
    return apply_change(plan)


def build_change_step(
    title: str, plan: Callable[[Table, RequestT], ChangePlan]
) -> Step[RequestT, ChangePlan, None, None, bytes, ChangeResult]:
    """Return the step of a change; a conflict is not retried."""
    return build_metadata_step(title, plan, _commit, max_attempts=1)
