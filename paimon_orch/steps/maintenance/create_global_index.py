"""Build an index of a column, in a table with data evolution.

See docs/format/global-index-files.md#create-and-drop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated
from uuid import uuid4

import numpy as np

from paimon_orch.decode_limits import check_row_count
from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.uncommitted_files import UncommittedPaths
from paimon_orch.format.arrays import Positions
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import format_count
from paimon_orch.format.global_index.sorted_column import sort_column
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import encode_source_snapshot
from paimon_orch.format.options.core_options import SORTED_INDEX_RECORDS_PER_RANGE
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row_range_set import RowRanges, unite_row_ranges
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.data_types import AtomicType, Field, type_to_sql
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.column_index_writer import NewIndexFile, write_column_index
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import FiguresOutcome, Step, WorkUnits, run_step
from paimon_orch.steps.common.step_declaration import CallOnExecutor, declare_step, take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.column_index.global_index_evaluator import is_indexable
from paimon_orch.table.column_index.row_id_groups import RowIdGroups, is_sorted_index
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.global_index_conflicts import IndexedRowsGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.data_evolution import (
    DataEvolutionReader,
    RowIdGroup,
    find_anchor_file,
    has_data_evolution,
)
from paimon_orch.table.scan.partition_selection import open_reader, plan_splits
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage

INDEX_TYPES = ("btree", "bitmap")
_MAX_ROWS = 50_000_000  # a column of one index file is sorted in memory
_MAX_UNITS = 100_000  # a plan is in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGlobalIndexRequest(PartitionRequest):
    """A column to index, and the partitions whose rows get an index."""

    column: Annotated[str, Argument("Column to index.", metavar="COLUMN")] = field(kw_only=False)
    index_type: Annotated[
        str, Argument("Type of the index: btree or bitmap.", option="--type", metavar="TYPE")
    ] = "btree"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalIndexUnit:
    """Contiguous rows of a partition; their index is one file."""

    bucket: PartitionBucket
    partition_text: str
    start: int
    end: int
    """The row id after the last row."""
    groups: tuple[RowIdGroup, ...]
    """The files with the rows, in the order of their row ids."""
    column: Field
    index_type: str
    snapshot_id: int

    @property
    def bytes(self) -> int:
        """Return the size of the files to read."""
        return sum(file.file_size for group in self.groups for file in group)

    def to_dict(self) -> dict[str, object]:
        """Return the unit as JSON values."""
        return {
            "partition": self.partition_text,
            "row_range_start": self.start,
            "row_range_end": self.end - 1,
            "files": sum(map(len, self.groups)),
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalIndexPlan:
    """The index files to build. It is falsy if there are none."""

    request: CreateGlobalIndexRequest
    state: TableState = field(repr=False, compare=False)
    snapshot_id: int | None = None
    reader: FileReader | None = None
    units: tuple[GlobalIndexUnit, ...] = ()
    replaced: tuple[IndexManifestEntry, ...] = ()
    """Index files with values that are not those of the table."""

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.units or self.replaced)

    @property
    def rows(self) -> int:
        """Return the number of rows that get an index."""
        return sum(unit.end - unit.start for unit in self.units)

    @property
    def bytes(self) -> int:
        """Return the size of the files to read."""
        return sum(unit.bytes for unit in self.units)

    def to_dict(self) -> dict[str, object]:
        """Return counts and all units as JSON values."""
        return {
            "snapshot_id": self.snapshot_id,
            "column": self.request.column,
            "type": self.request.index_type,
            "index_files": len(self.units),
            "replaced_index_files": len(self.replaced),
            "rows": self.rows,
            "bytes": self.bytes,
            "units": [unit.to_dict() for unit in self.units],
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"index {format_count(self.rows, 'row')}",
            nothing="nothing to do: all rows have an index",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalIndexResult(FiguresOutcome):
    """The result of building global indexes."""

    snapshot_id: int | None = None
    """The new snapshot, or None if there was nothing to do."""
    index_files: int = 0
    replaced_index_files: int = 0
    rows: int = 0
    """The number of rows that got an index."""
    index_bytes: int = 0

    def count_io(self) -> StepIo:
        """Return the index files that were written."""
        return StepIo(files_written=self.index_files, bytes_written=self.index_bytes)


def find_index_column(state: TableState, request: CreateGlobalIndexRequest) -> Field:
    """Return the column to index.

    Raises :class:`InputError` or :class:`UnsupportedError` if it cannot have an index.
    """
    schema = state.schema
    if request.index_type not in INDEX_TYPES:
        raise InputError(
            f"{request.index_type!r} is not a type of global index that can be built; known types "
            f"are {', '.join(INDEX_TYPES)}"
        )
    if not has_data_evolution(schema):
        raise UnsupportedError(
            f"{state.identifier}: global indexes require 'data-evolution.enabled' = true. Set "
            "'pk-btree.index.columns' or 'pk-bitmap.index.columns' for a primary-key table"
        )
    column = schema.field(request.column)
    if not is_indexable(column, state.schemas):
        raise UnsupportedError(
            f"column {column.name!r} of type {type_to_sql(column.type)} cannot have a global index: "
            "the type is not supported, or it was another type before"
        )
    return column


def plan(table: Table, request: CreateGlobalIndexRequest) -> GlobalIndexPlan:
    """Find the rows of the latest snapshot without an index; reads only metadata.

    Index files whose values may have changed are replaced.
    """
    state = table.load()
    column, schema = find_index_column(state, request), state.schema
    state.check_step(StepKind.COMPACT)
    snapshot = state.snapshot
    if snapshot is None:
        return GlobalIndexPlan(request=request, state=state)
    entries = [
        entry
        for entry in state.manifests.read_index_entries(snapshot)
        if is_sorted_index(entry) and entry.index_type == request.index_type
        if entry.global_index and entry.global_index.index_field_id == column.id
    ]
    units, replaced = list[GlobalIndexUnit](), list[IndexManifestEntry]()
    splits = plan_splits(state, schema, snapshot, request)
    for split in splits:
        groups = RowIdGroups.of(split.files, schema, state.schemas)
        for group in groups.groups:
            anchor = find_anchor_file(group)
            check_row_count(anchor.row_count, anchor.file_size, anchor.file_name)
        of_partition = [entry for entry in entries if entry.partition == split.partition]
        current = [e for e in of_partition if _is_current(e, groups)]
        replaced += [entry for entry in of_partition if entry not in current]
        missing = groups.rows - unite_row_ranges([entry.row_range for entry in current])
        for start, end in _divide(missing, schema, _MAX_UNITS - len(units)):
            units.append(
                GlobalIndexUnit(
                    bucket=split.partition_bucket,
                    partition_text=format_partition(split.partition, schema),
                    start=start,
                    end=end,
                    groups=groups.find_groups(start, end),
                    column=column,
                    index_type=request.index_type,
                    snapshot_id=snapshot.id,
                )
            )
    return GlobalIndexPlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        reader=open_reader(state, schema, splits) if units else None,
        units=tuple(units),
        replaced=tuple(replaced),
    )


def _is_current(entry: IndexManifestEntry, groups: RowIdGroups) -> bool:
    """Return whether an index has rows of the table, and no values that may have changed."""
    rows = entry.row_range & groups.rows
    return bool(rows) and not rows - groups.find_current_rows(entry)


def _divide(rows: RowRanges, schema: TableSchema, limit: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of about the same size, up to that of the option.

    Raises :class:`InputError` for more than ``limit`` ranges.
    """
    wanted = schema.typed_options.get(SORTED_INDEX_RECORDS_PER_RANGE)
    size, left = max(1, min(wanted, _MAX_ROWS)), limit
    for start, end in zip(rows.starts.tolist(), rows.ends.tolist(), strict=True):
        count, parts = end - start, -(-(end - start) // size)
        left -= parts
        if left < 0:
            raise InputError(
                f"'{SORTED_INDEX_RECORDS_PER_RANGE.key}' = {wanted} needs more than {_MAX_UNITS} "
                "index files; use a larger number"
            )
        yield from pairwise(start + count * part // parts for part in range(parts + 1))


def run(reader: FileReader | None, unit: GlobalIndexUnit) -> bytes:
    """Write the index file of a unit; return an encoded :class:`CommitMessage`."""
    assert reader is not None
    data_type = unit.column.type
    assert isinstance(data_type, AtomicType)
    # Deleted rows are included, so that the positions are those of the row ids.
    chunks = [
        batch.column(0)
        for group in unit.groups
        for batch in DataEvolutionReader(
            reader, *unit.bucket, group, _find_positions(unit, group)
        ).batches([unit.column], {})
    ]
    column = sort_column(chunks, data_type)
    assert column.row_count == unit.end - unit.start
    file = NewIndexFile(
        bucket=unit.bucket,
        index_type=unit.index_type,
        field_id=unit.column.id,
        name=f"{unit.index_type}-global-index-{uuid4()}.index",
        source=encode_source_snapshot(unit.snapshot_id),
        first_row=unit.start,
    )
    with UncommittedPaths(reader.io) as created:
        entry = write_column_index(reader, file, column, created.paths)
    return CommitMessage(index=(entry,)).encode()


def _find_positions(unit: GlobalIndexUnit, group: RowIdGroup) -> Positions | None:
    """Return the positions of the rows of a unit in files; None for all rows."""
    first, count = group[0].first_row_id or 0, group[0].row_count
    low, high = max(unit.start - first, 0), min(unit.end - first, count)
    return None if (low, high) == (0, count) else np.arange(low, high)


def commit(
    table: Table, plan: GlobalIndexPlan, messages: Sequence[CommitMessage]
) -> GlobalIndexResult:
    """Commit new index files in one snapshot.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit changed the
    indexed rows.
    """
    if not plan:
        return GlobalIndexResult()
    added = [entry for message in messages for entry in message.index]
    files = frozenset(
        (unit.bucket.partition, file.file_name, file.first_row_id)
        for unit in plan.units
        for group in unit.groups
        for file in group
    )
    # The name in the request is that of the plan's schema; the column may be renamed since.
    schema_id = plan.state.schema.id
    changes = CommitChanges(
        kind=CommitKind.APPEND,
        index=(*(entry.deleted() for entry in plan.replaced), *added),
        indexed_rows_guard=IndexedRowsGuard(
            schema_id=schema_id, column=plan.request.column, files=files
        ),
    )
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return GlobalIndexResult(
        snapshot_id=snapshot.id,
        index_files=len(added),
        replaced_index_files=len(plan.replaced),
        rows=plan.rows,
        index_bytes=sum(entry.file_size for entry in added),
    )


CREATE_GLOBAL_INDEX = Step(
    title="create global index of",
    planner=plan,
    work=lambda _, plan: WorkUnits(shared=plan.reader, units=plan.units, bytes=plan.bytes),
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGlobalIndexCall(CallOnExecutor, CreateGlobalIndexRequest):
    """A call of :func:`create_global_index`."""


@take_fields(CreateGlobalIndexCall)
def create_global_index(table: Table, request: CreateGlobalIndexCall) -> GlobalIndexResult:
    """Build an index of the rows of a data-evolution table that have none, in one snapshot.

    Scans with a filter on the column then read only the rows that may match, and the rows that were
    appended later. Commits no snapshot if all rows have an index. Conflicts are handled as in
    :func:`paimon_orch.steps.compaction.compact.compact`. The index type ``bitmap`` suits columns
    with few distinct values.
    """
    planned = CREATE_GLOBAL_INDEX.plan(table, request)
    return run_step(
        CREATE_GLOBAL_INDEX, table, planned, request.executor, progress=request.progress
    )


DECLARATION = declare_step(
    CREATE_GLOBAL_INDEX,
    CreateGlobalIndexRequest,
    help="Builds the index of rows that have none, also of rows that were appended later. Scans with "
    "a filter on the column read only the files and rows that may match.",
    examples=["/lake db.events --column user_id"],
)
