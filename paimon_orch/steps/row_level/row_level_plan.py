"""The plan of a row-level change: the files that may have rows to change."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.arrays import to_arrow_array
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.types.data_types import Field, is_blob
from paimon_orch.format.types.predicate import Predicate, collect_columns
from paimon_orch.steps.common.step_report import KEPT_ROWS, PlanReport
from paimon_orch.steps.row_level.column_update import RowRange
from paimon_orch.steps.row_level.find_target import find_target
from paimon_orch.steps.row_level.row_target import RowSource, RowTarget
from paimon_orch.steps.row_level.task_result import ADDRESS_COLUMN, KIND_COLUMN, OLD_VALUE_PREFIX
from paimon_orch.table.chain.chain_branches import find_chain_branches, refuse_chain_table
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.row_filter import RowFilter
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import group_files_by_rows
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.scan.partition_selection import open_reader
from paimon_orch.table.scan.scan_planner import ScanPlanner
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.bucket_routing import check_writable
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelRequest:
    """Selects the rows to change, and the operation."""

    where: str | Predicate | None = None
    """The filter of the rows; None selects all rows."""
    operation: str = "delete"
    """``delete``, ``update``, ``merge`` (which may delete) or ``insert``."""


@dataclass(frozen=True, slots=True)
class TargetUnit:
    """Files of one bucket to find rows in."""

    split: BucketSplit
    number: int
    """The number of the first addressed file in the plan."""

    def read(self, source: RowSource, fields: Sequence[Field]) -> Iterator[pa.Table]:
        """Yield the matching rows with their addresses as the first column, in a fixed order.

        Includes level 0 even if readers skip it, because a change must use the newest version of a
        row. ``fields`` are the columns to write again. Raises :class:`UnsupportedError` if Java
        would then read other values.
        """
        source.reader.check_rewritable(self.split.partition_bucket, self.split.files, fields)
        names = {column.name for column in fields}
        if source.predicate is not None:
            names |= collect_columns(source.predicate)
        schema = source.reader.schema
        all_fields = (*schema.fields, *row_tracking_fields(schema))
        needed = [column for column in all_fields if column.name in names]
        row_filter = None if source.predicate is None else RowFilter(source.predicate)
        for addresses, batch in find_target(schema).read(source, self.split, self.number, needed):
            rows = pa.Table.from_batches([batch]).append_column(
                ADDRESS_COLUMN, to_arrow_array(addresses)
            )
            if row_filter is not None:
                rows = row_filter.select(rows)
            if rows.num_rows:
                yield rows.select([ADDRESS_COLUMN, *(column.name for column in fields)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelPlan(Displayable):
    """The files that may have rows to change. The plan is falsy if there are none."""

    request: RowLevelRequest
    state: TableState
    snapshot_id: int = 0
    source: RowSource | None = None
    """Reads the files of all units; None if the table has no snapshot."""
    units: tuple[TargetUnit, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any file may have rows to change."""
        return bool(self.units)

    @property
    def schema(self) -> TableSchema:
        """Return the schema of the table's state."""
        return self.state.schema

    @property
    def files(self) -> list[BucketFile]:
        """Return the files of all units."""
        return [
            BucketFile(unit.split.partition, unit.split.bucket, file)
            for unit in self.units
            for file in unit.split.files
        ]

    @property
    def target(self) -> RowTarget:
        """Return what differs for the kind of table."""
        return find_target(self.schema)

    @property
    def addressed_files(self) -> list[BucketFile]:
        """Return the files that addresses name, in the order of their numbers."""
        target = self.target
        return [file for unit in self.units for file in target.list_addressed_files(unit.split)]

    @property
    def row_ranges(self) -> list[RowRange]:
        """Return the ranges of row ids of a data-evolution table, in the order of their numbers."""
        if self.schema.kind is not TableKind.DATA_EVOLUTION:
            return []
        return [
            RowRange(unit.split.partition_bucket, group)
            for unit in self.units
            for group in group_files_by_rows(unit.split.files)
        ]

    @property
    def bytes(self) -> int:
        """Return the size of the files to read."""
        return sum(file.file.file_size for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return counts and bytes of the files to read."""
        files = self.files
        return {
            "snapshot_id": self.snapshot_id or None,
            "buckets": len({file.partition_bucket for file in files}),
            "files": len(files),
            "rows": sum(file.file.row_count for file in files),
            "bytes": self.bytes,
        }

    def describe(self) -> PlanReport:
        """Return the counts as text."""
        values = self.to_dict()
        files, buckets = format_count(values["files"], "file"), values["buckets"]
        rows = format_count(values["rows"], "row")
        nothing = "" if self else "no row matches"
        if self.request.where is None and self.request.operation == "update":
            details = f", in files with {rows}"
            action = "update all rows"
            return PlanReport(
                action=action, details=details, nothing=nothing, asks=bool(self), undo=KEPT_ROWS
            )
        return PlanReport(
            action=f"read {files} of {format_count(buckets, 'bucket')} with {rows}",
            nothing=nothing,
        )


@repeat_if_expired
def plan(table: Table, request: RowLevelRequest) -> RowLevelPlan:
    """Find the files that may have matching rows; reads only metadata."""
    state = table.load()
    state.check_step(StepKind.WRITE_ROWS)
    schema, snapshot = state.schema, state.snapshot
    check_row_level_supported(schema, request.operation)
    if find_chain_branches(schema, table.paths.branch) is not None:
        refuse_chain_table(
            table.identifier, schema, "a change of rows by a filter", "change the delta branch"
        )
    predicate = bind_filter(request.where, schema)
    if snapshot is None:
        return RowLevelPlan(request=request, state=state)
    target = find_target(schema)
    pruned_by = None if predicate is None else target.restrict_for_pruning(predicate)
    pruner = None if pruned_by is None else FilePruner(schema, pruned_by, state.schemas.get)
    splits = ScanPlanner(state.manifests, schema).splits(snapshot, pruner)
    reader = open_reader(state, schema, splits)
    return RowLevelPlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        source=RowSource(reader, predicate),
        units=tuple(_build_units(splits, target)),
    )


def check_row_level_supported(schema: TableSchema, operation: str) -> None:
    """Raise an error for tables that do not support a row-level operation.

    :param operation: ``delete``, ``update``, ``merge`` (which may delete) or ``insert``
    """
    check_writable(schema)
    for field in schema.fields:
        if field.name in (ADDRESS_COLUMN, KIND_COLUMN) or field.name.startswith(OLD_VALUE_PREFIX):
            raise UnsupportedError(
                f"{operation} of rows of a table with the column {field.name!r} is not supported: "
                "changes of rows use this name; rename the column"
            )
        if is_blob(field.type):
            raise UnsupportedError(
                f"{operation} of rows of a table with BLOB columns, such as {field.name!r}, is not "
                "supported; rows can be appended and overwritten"
            )
    if has_postpone_buckets(schema):
        raise UnsupportedError(
            f"{operation} of rows in postpone buckets ('bucket' = -2) is not supported: these rows "
            "have no sequence numbers"
        )
    find_target(schema).check_supported(operation)


def _build_units(splits: Iterable[BucketSplit], target: RowTarget) -> Iterator[TargetUnit]:
    number = 0
    for split in splits:
        for part in target.split_bucket(split):
            yield TargetUnit(part, number)
            number += len(target.list_addressed_files(part))
