"""Publish the newest snapshot as Iceberg metadata.

See docs/format/iceberg-metadata.md#publishing.
"""

from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.core_options import ICEBERG_STORAGE
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.paths import MAIN_BRANCH
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.common.step import (
    EmptyRequest,
    StepOutcome,
    build_metadata_step,
    plan_and_run,
)
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.iceberg.iceberg_settings import is_iceberg_enabled
from paimon_orch.table.iceberg.status import IcebergStatus, read_iceberg_status
from paimon_orch.table.table import Table

_COLUMNS = {
    "problem": "string",
    "iceberg_snapshot_id": "int",
    "latest_snapshot_id": "int",
    "metadata_path": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSyncPlan(Displayable):
    """The Iceberg metadata before the step. The plan is falsy if there is nothing to publish."""

    request: EmptyRequest
    status: IcebergStatus

    def __bool__(self) -> bool:
        """Return whether the Iceberg metadata differs from the table."""
        return self.status.problem is not None

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return _to_dict(self.status)

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action="publish the newest snapshot",
            lines=[_describe(self.status)],
            nothing=_describe(self.status),
            columns=_COLUMNS,
            items=[{name: self.to_dict()[name] for name in _COLUMNS}] if self else [],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSyncResult(StepOutcome):
    """The Iceberg metadata after the step."""

    plan: IcebergSyncPlan
    status: IcebergStatus
    published_snapshots: int = 0
    """The number of snapshots that Iceberg readers did not see before."""

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return _to_dict(self.status) | {"published_snapshots": self.published_snapshots}

    def describe(self) -> list[str]:
        """Return what was published, and what Iceberg readers see."""
        if not self.plan:
            return []
        snapshots = format_count(self.published_snapshots, "snapshot")
        return [f"published {snapshots}; {_describe(self.status)}"]


def _describe(status: IcebergStatus) -> str:
    if status.latest_id is None:
        return "the table has no snapshot; nothing to publish"
    if status.problem is None:
        return f"Iceberg readers see snapshot {status.published_id}, the newest one"
    missing = "" if status.missing_snapshots is None else f" ({status.missing_snapshots} missing)"
    return f"not up to date: {status.problem}{missing}"


def _to_dict(status: IcebergStatus) -> dict[str, object]:
    return {
        "iceberg_snapshot_id": status.published_id,
        "latest_snapshot_id": status.latest_id,
        "missing_snapshots": status.missing_snapshots,
        "metadata_path": status.metadata_path,
        "is_current": status.is_current,
        "problem": status.problem,
    }


def plan(table: Table, request: EmptyRequest) -> IcebergSyncPlan:
    """Compare the Iceberg metadata with the newest snapshot; reads only metadata.

    Raises :class:`InputError` for a table without Iceberg metadata.
    """
    schema = table.stores.get_schema()
    _check_publishes(table, schema)
    table.stores.check_step(StepKind.METADATA, schema)
    return IcebergSyncPlan(request=request, status=_read_status(table))


def _check_publishes(table: Table, schema: TableSchema) -> None:
    option = ICEBERG_STORAGE
    if not is_iceberg_enabled(schema):
        raise InputError(
            f"{table.identifier} has no Iceberg metadata: its option '{option.key}' is not set. To "
            f"publish its snapshots, run: {table.stores.label.format_command('alter')} "
            f"--set {option.key}=table-location"
        )
    if table.paths.branch != MAIN_BRANCH:
        raise InputError(f"{table.identifier}: branches are not published as Iceberg metadata")


def _read_status(table: Table) -> IcebergStatus:
    status = read_iceberg_status(table.stores.iceberg)
    if status is None:  # another process has changed the option
        raise InputError(f"{table.identifier}: the Iceberg metadata was switched off")
    return status


def commit(table: Table, plan: IcebergSyncPlan) -> IcebergSyncResult:
    """Publish the newest snapshot and those since the last published one."""
    if not plan:
        return IcebergSyncResult(plan=plan, status=plan.status)
    table.stores.iceberg.publish()
    status = _read_status(table)
    before, after = (
        set() if each.metadata is None else each.metadata.manifest_lists
        for each in (plan.status, status)
    )
    return IcebergSyncResult(plan=plan, status=status, published_snapshots=len(after - before))


SYNC_ICEBERG = build_metadata_step("publish Iceberg metadata of", plan, commit)


def sync_iceberg(table: Table) -> IcebergSyncResult:
    """Publish the newest snapshot as Iceberg metadata unless Iceberg readers see it already.

    Commits publish their snapshots, so this is needed only after a failure, or after commits of
    writers without Iceberg metadata. Raises :class:`InputError` for a table without Iceberg
    metadata.
    """
    return plan_and_run(SYNC_ICEBERG, table, EmptyRequest())


DECLARATION = declare_step(
    SYNC_ICEBERG,
    EmptyRequest,
    help="Commits do this themselves, if the table's option metadata.iceberg.storage is set. Run the "
    "command after a failure, and after commits of writers that publish no Iceberg metadata.",
    examples=["/lake db.orders --dry-run"],
)
