"""Delete a database."""

from dataclasses import dataclass, replace
from typing import Annotated

from paimon_orch.format.display import format_count
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.described_change import ChangePlan
from paimon_orch.steps.common.step_declaration import StepTarget
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.definition.catalog_step import declare_catalog_step
from paimon_orch.steps.definition.catalog_target import CatalogEntry, TableLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabaseRequest(ParsedRequest):
    """What to do with the tables of a database, and without a database."""

    cascade: Annotated[bool, Argument("Also delete all its tables and their files.")] = False
    if_exists: Annotated[bool, Argument("Succeed if it does not exist.")] = False


def plan(entry: CatalogEntry, request: DropDatabaseRequest) -> ChangePlan:
    """Find the tables to delete; counts no file, because damaged tables can be dropped."""
    catalog, database = entry.catalog, entry.identifier
    options = {"cascade": request.cascade, "if_exists": request.if_exists}
    tables = catalog.list_tables_to_drop(database, **options)
    return ChangePlan(
        request=request,
        values={"database": database, "tables": tables},
        report=PlanReport(
            action="delete database",
            link=" ",
            details=f" with {format_count(len(tables), 'table')}",
            asks=bool(tables),
        ),
        done=f"deleted database {database}",
        apply=lambda: catalog.drop_database(database, **options),
    )


def measure(entry: CatalogEntry, planned: ChangePlan) -> ChangePlan:
    """Count what the tables have."""
    database, names = entry.identifier, planned.values["tables"]
    assert isinstance(names, list)
    losses = [TableLoss.measure(entry.catalog, f"{database}.{name}") for name in names]
    texts = "; ".join(f"{loss.table} with {loss.describe()}" for loss in losses)
    details = planned.report.details + (f": {texts}" if losses else "")
    return replace(
        planned,
        values={"database": database, "tables": [loss.to_dict() for loss in losses]},
        result=planned.values,
        report=replace(planned.report, details=details),
    )


DECLARATION = declare_catalog_step(
    "drop database",
    DropDatabaseRequest,
    plan,
    measure=measure,
    target=StepTarget.DATABASE,
    help="Fails if the database has tables, unless --cascade is set.",
    examples=["/lake db --cascade --dry-run"],
    command="database drop",
)
