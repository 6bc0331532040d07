"""Add the table's partitions to its catalog.

See docs/format/catalogs.md#partitions-of-a-metastore.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.step import StepOutcome, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.catalog_reports import PartitionNames
from paimon_orch.table.partition_marks import format_names
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPartitionsRequest:
    """Selects what changes in the catalog."""

    drop: Annotated[bool, Argument("Also drop partitions of the catalog that have no rows.")] = (
        False
    )
    """Drops the partitions of the catalog that have no rows in any branch, or no tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSyncPlan(Displayable):
    """The difference between table and catalog. The plan is falsy if there is nothing to do."""

    request: SyncPartitionsRequest
    state: TableState = field(repr=False, compare=False)
    missing: tuple[PartitionNames, ...] = ()
    """The partitions to add to the catalog."""
    surplus: tuple[PartitionNames, ...] = ()
    """The partitions of the catalog without rows; dropped on request."""

    def __bool__(self) -> bool:
        """Return whether the catalog changes."""
        return bool(self.missing or (self.request.drop and self.surplus))

    def to_dict(self) -> dict[str, object]:
        """Return the names of the partitions as JSON values."""
        return {"missing": _format(self.missing), "surplus": _format(self.surplus)}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        action = f"add {format_count(len(self.missing), 'partition')}"
        surplus = f"{format_count(len(self.surplus), 'partition')} without rows"
        drops = self.request.drop
        return PlanReport(
            action=f"{action} and drop {surplus}" if drops else action,
            lines=[] if drops else [f"the catalog has {surplus}"],
            columns={"partition": "string", "state": "string"},
            items=[
                {"partition": name, "state": state}
                for state, partitions in (("missing", self.missing), ("surplus", self.surplus))
                for name in _format(partitions)
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSyncResult(StepOutcome):
    """The partitions that the catalog got and lost."""

    plan: PartitionSyncPlan
    added: tuple[PartitionNames, ...] = ()
    dropped: tuple[PartitionNames, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the names of the partitions as JSON values."""
        return {"added": _format(self.added), "dropped": _format(self.dropped)}

    def describe(self) -> list[str]:
        """Return the numbers of partitions."""
        added = format_count(len(self.added), "partition")
        return [f"added {added}, dropped {len(self.dropped)}"]


def _format(partitions: Sequence[Mapping[str, str]]) -> list[str]:
    return [format_names(partition).rstrip("/") for partition in partitions]


def plan(table: Table, request: SyncPartitionsRequest) -> PartitionSyncPlan:
    """Compare the partitions of a table with those of its catalog.

    Raises :class:`InputError` for a table without partitions in a catalog.
    """
    state = table.load()
    state.check_step(StepKind.METADATA)
    difference = state.build_catalog_reports().compare()
    return PartitionSyncPlan(
        request=request, state=state, missing=difference.missing, surplus=difference.surplus
    )


def commit(_table: Table, plan: PartitionSyncPlan) -> PartitionSyncResult:
    """Drop surplus partitions if requested, then add the missing ones."""
    if not plan:
        return PartitionSyncResult(plan=plan)
    reports, catalog = plan.state.build_catalog_reports(), plan.state.environment.partitions
    assert catalog is not None
    dropped: tuple[PartitionNames, ...] = ()
    if plan.request.drop:
        dropped = tuple(name for name in reports.compare().surplus if name in plan.surplus)
        catalog.drop(dropped)
    # A concurrent commit may have added rows to a partition that was dropped just now.
    added = reports.compare().missing
    catalog.add(added)
    return PartitionSyncResult(plan=plan, added=added, dropped=dropped)


SYNC_PARTITIONS = build_metadata_step("sync partitions of", plan, commit)


@take_fields(SyncPartitionsRequest)
def sync_partitions(table: Table, request: SyncPartitionsRequest) -> PartitionSyncResult:
    """Add the partitions or tags of a table that its catalog lacks.

    Commits and tags report themselves, so this is needed only after a failure, or after changes by
    processes that opened the table by its directory. With ``drop``, partitions of the catalog
    without rows in any branch are dropped. Raises :class:`InputError` for a table without
    partitions in a catalog.
    """
    return plan_and_run(SYNC_PARTITIONS, table, request)


DECLARATION = declare_step(
    SYNC_PARTITIONS,
    SyncPartitionsRequest,
    help="Commits do this themselves, if the table's option metastore.partitioned-table is set and "
    "the table is opened through its Hive catalog. Run the command after a failure, and after "
    "changes of writers that opened the table by its directory. With the option "
    "metastore.tag-to-partition, the command adds the tags.",
    examples=["prod db.orders --dry-run"],
)
