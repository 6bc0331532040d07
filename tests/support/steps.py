"""Runs the units of a plan with or without a commit."""

from paimon_orch.steps.common.step import OutcomeT, PlanT, RequestT, ResultT, SharedT, Step, UnitT
from paimon_orch.table.table import Table

__all__ = ["commit_plan", "run_units"]


def run_units(
    step: Step[RequestT, PlanT, SharedT, UnitT, ResultT, OutcomeT], table: Table, plan: PlanT
) -> list[ResultT]:
    """Return the decoded results of all units of a plan."""
    work = step.work(table, plan)
    return [step.decode(step.run(work.shared, unit)) for unit in work.units]


def commit_plan(
    step: Step[RequestT, PlanT, SharedT, UnitT, ResultT, OutcomeT], table: Table, plan: PlanT
) -> OutcomeT:
    """Run the units of a plan and commit their results."""
    return step.commit(table, plan, run_units(step, table, plan))
