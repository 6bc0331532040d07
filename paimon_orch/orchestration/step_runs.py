"""Runs declared steps for front ends without a person: arguments and reports are JSON values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paimon_orch.orchestration.openlineage import emit_lineage
from paimon_orch.orchestration.run_reports import ReportTable
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.step_registry import load_declaration
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from paimon_orch.steps.definition.catalog_target import CatalogEntry

logger = get_logger(__name__)

STEP_EXTRA = "paimon_step"
"""The extra of Dagster Pipes that has the step which a process runs."""
NO_ACTION = "nothing to do"
"""The action of a plan without work."""


def run_declared_step(
    step: str,
    target: "Table | CatalogEntry",
    arguments: Mapping[str, object],
    executor: Executor,
    *,
    dry_run: bool | None,
    with_table: bool = False,
) -> dict[str, object]:
    """Plan a step and, except in a dry run, run it; return the report.

    The report has ``step``, ``table``, ``dry_run``, the ``plan``, ``is_incomplete`` if damage remains
    after it, and the ``outcome``, which is None in a dry run, with its ``notes``. The plan is the
    executed one: after a conflict, it differs from the first plan.
    With ``with_table``, the report also has the ``action`` of the plan and its first ``items`` with
    their ``columns``. Raises :class:`InputError` for wrong arguments, and for a step that asks if
    ``dry_run`` is None.
    """
    emit_lineage()
    declaration = load_declaration(step)
    declaration.require_decision(step, dry_run=dry_run)
    request = declaration.build_request(target, arguments)
    plan = declaration.plan(target, request, executor=executor)
    if dry_run:
        plan = declaration.measure_plan(target, plan, executor)
    logger.info("%s of %s: %s", step, target.identifier, plan)
    planned = plan.describe()
    if planned.is_incomplete:
        logger.warning("%s of %s leaves damage: %s", step, target.identifier, planned.lines)
    report = {"step": step, "table": target.identifier, "dry_run": bool(dry_run)}
    report |= {"plan": plan.to_dict(), "is_incomplete": planned.is_incomplete, "outcome": None}
    if with_table:
        report |= _tabulate(plan, planned)
    if dry_run:
        return report
    # A compaction without files may still move postponed rows or build indexes.
    outcome = declaration.run(target, plan, executor)
    logger.info("%s of %s: %s", step, target.identifier, outcome)
    return report | {
        "plan": getattr(outcome, "plan", plan).to_dict(),
        "outcome": outcome.to_dict(),
        "notes": list(outcome.list_notes()),
        "duration_seconds": outcome.duration_seconds,
        "attempts": outcome.attempts,
    }


def _tabulate(plan: Any, planned: PlanReport) -> dict[str, object]:
    items = tabulate_plan(planned)
    return {
        "action": planned.short_action if plan else NO_ACTION,
        "columns": dict(items.columns),
        "items": [dict(row) for row in items.rows],
    }


def tabulate_plan(report: PlanReport) -> ReportTable:
    """Return the items, the work units or the lines of a plan as a table."""
    if report.columns:
        return ReportTable.of(report.items, report.columns)
    columns = list(report.header) or ["item"]
    lines = report.rows or [[line] for line in report.lines]
    if not lines:
        return ReportTable((), {})
    rows = (dict(zip(columns, line, strict=True)) for line in lines)
    return ReportTable.of(rows, dict.fromkeys(columns, "string"))


def name_figures(
    action: str, figures: Mapping[str, object], *, dry_run: bool
) -> dict[str, int | float | str]:
    """Return the numbers of a plan or an outcome by metadata key.

    Keys begin with ``paimon/<action>_``; in a dry run, they begin with ``paimon/<action>_planned_``.
    Ids of snapshots are texts, because Dagster plots numbers.
    """
    prefix = f"paimon/{action}_planned_" if dry_run else f"paimon/{action}_"
    return {
        prefix + name: str(value) if is_snapshot_id(name) else value
        for name, value in figures.items()
        if isinstance(value, int | float)
    }


def is_snapshot_id(figure: str) -> bool:
    """Return whether a figure is the id of a snapshot."""
    return figure in {"first", "last"} or figure.endswith("_id")
