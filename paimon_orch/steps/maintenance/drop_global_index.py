"""Drop the indexes of a column, in a table with data evolution.

The files are deleted when the snapshots that refer to them expire.
See docs/format/global-index-files.md#create-and-drop.
"""

from dataclasses import dataclass, field
from typing import Annotated

from paimon_orch.errors import NotFoundError
from paimon_orch.format.display import format_count
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import covers_data_files
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import CommittedPlan, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.scan.partition_selection import PartitionSelection
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class DropGlobalIndexRequest(PartitionRequest):
    """Selects global indexes by column, type and partition."""

    column: Annotated[str, Argument("Indexed column.", metavar="COLUMN")] = field(kw_only=False)
    index_type: Annotated[
        str | None, Argument("Drop only indexes of this type.", option="--type", metavar="TYPE")
    ] = None
    """The type of the indexes to drop, such as ``btree``; None selects all types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropGlobalIndexPlan:
    """The index files to drop. It is falsy if there are none."""

    request: DropGlobalIndexRequest
    state: TableState = field(repr=False, compare=False)
    entries: tuple[IndexManifestEntry, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "column": self.request.column,
            "index_files": [entry.file_name for entry in self.entries],
            "bytes": sum(entry.file_size for entry in self.entries),
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        files = format_count(len(self.entries), "index file")
        return PlanReport(
            action=f"drop {files} of column {self.request.column}",
            asks=bool(self),
            undo="create-global-index builds the index again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DropGlobalIndexResult(CommittedPlan[DropGlobalIndexPlan]):
    """The result of dropping global indexes."""

    @property
    def index_files(self) -> int:
        """Return the number of index files that were dropped."""
        return len(self.plan.entries)

    def describe(self) -> list[str]:
        """Return what was dropped."""
        return [f"{format_count(self.index_files, 'index file')}; {self.describe_snapshot()}"]


def plan(table: Table, request: DropGlobalIndexRequest) -> DropGlobalIndexPlan:
    """Find the index files to drop.

    Raises :class:`NotFoundError` if the table has no such column. Indexes that a primary-key table
    keeps because of its options are not selected.
    """
    state = table.load()
    snapshot, schema = state.snapshot, state.schema
    state.check_step(StepKind.COMPACT)
    if request.column not in schema.names:
        raise NotFoundError(f"{table.identifier} has no column {request.column!r}")
    if snapshot is None:
        return DropGlobalIndexPlan(request=request, state=state)
    entries = [
        entry
        for entry in state.manifests.read_index_entries(snapshot)
        if entry.global_index is not None
        and entry.global_index.index_field_id == schema.field(request.column).id
        and request.index_type in (None, entry.index_type)
        and not covers_data_files(entry)
    ]
    select = PartitionSelection(schema, request).partition_selector
    if select is not None:
        selected = select([entry.partition for entry in entries])
        entries = [entry for entry in entries if entry.partition in selected]
    return DropGlobalIndexPlan(request=request, state=state, entries=tuple(entries))


def commit(_table: Table, plan: DropGlobalIndexPlan) -> DropGlobalIndexResult:
    """Drop the index files in one snapshot."""
    if not plan:
        return DropGlobalIndexResult(plan=plan)
    changes = CommitChanges(
        kind=CommitKind.APPEND, index=tuple(entry.deleted() for entry in plan.entries)
    )
    snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return DropGlobalIndexResult(plan=plan, snapshot=snapshot)


DROP_GLOBAL_INDEX = build_metadata_step("drop global index of", plan, commit)


@take_fields(DropGlobalIndexRequest)
def drop_global_index(table: Table, request: DropGlobalIndexRequest) -> DropGlobalIndexResult:
    """Drop the global indexes of a column, in one snapshot."""
    return plan_and_run(DROP_GLOBAL_INDEX, table, request)


DECLARATION = declare_step(
    DROP_GLOBAL_INDEX,
    DropGlobalIndexRequest,
    examples=["/lake db.events --column user_id"],
    asks=True,
)
