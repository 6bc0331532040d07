"""Delete a table with all its files."""

from dataclasses import dataclass, replace
from typing import Annotated

from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.definition.catalog_step import declare_catalog_step
from paimon_orch.steps.definition.catalog_target import CatalogEntry, TableLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableRequest(ParsedRequest):
    """What to do without a table."""

    if_exists: Annotated[bool, Argument("Succeed if it does not exist.")] = False


def plan(entry: CatalogEntry, request: DropTableRequest) -> ChangePlan:
    """Check that the table can be dropped; counts no file, because a damaged table can be dropped."""
    catalog, table = entry.catalog, entry.identifier
    exists = catalog.can_drop_table(table, if_exists=request.if_exists)
    nothing = "" if exists else f"{table} does not exist; nothing was changed"
    return ChangePlan(
        request=request,
        values={"table": table, "deleted": False},
        result={"table": table, "deleted": exists},
        report=PlanReport(action="delete", link=" ", nothing=nothing, asks=exists),
        done=f"deleted {table}",
        apply=lambda: catalog.drop_table(table, if_exists=request.if_exists),
    )


def measure(entry: CatalogEntry, planned: ChangePlan) -> ChangePlan:
    """Count what the table has."""
    if not planned:
        return planned
    loss = TableLoss.measure(entry.catalog, entry.identifier)
    report = replace(planned.report, details=f" with {loss.describe()}")
    return replace(planned, values=loss.to_dict() | {"deleted": False}, report=report)


DECLARATION = declare_catalog_step(
    "drop",
    DropTableRequest,
    plan,
    measure=measure,
    help="Snapshots, tags and branches are deleted too; this cannot be undone.",
    examples=["/lake db.orders --dry-run"],
    command="drop",
)
