"""Row-level changes: finds rows, deletes them or writes new versions, and commits.

See docs/format/deletion-vectors-in-compaction.md#append-tables and
docs/format/append-table-compaction.md#row-level-operations-without-deletion-vectors.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import ROW_POSITION, BucketFile, FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.files.row_tracking import ROW_ID, row_tracking_fields
from paimon_orch.format.arrays import to_arrow_array, to_numpy
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.display import Displayable
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import VALUE_KIND, TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import (
    Predicate,
    collect_columns,
    restrict_to_columns,
)
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
from paimon_orch.steps.common.partition_selection import open_reader
from paimon_orch.steps.common.row_tracking_writer import write_tracked_rows
from paimon_orch.steps.common.step import Step, StepOutcome, WorkUnits, run_step
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.row_level.column_update import (
    ColumnUpdate,
    RowRange,
    find_column_changes,
    find_stale_indexes,
    guard_changed_columns,
)
from paimon_orch.steps.row_level.delete_rows import plan_delete_units, run_delete_unit
from paimon_orch.steps.row_level.engine_rules import (
    build_delete_rows,
    build_rows_to_write,
    check_row_level_supported,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowAddresses,
    RowLevelTaskResult,
    collect_changed_rows,
    first_row_address,
    group_rows_by_file,
)
from paimon_orch.table.chain.chain_branches import find_chain_branches, refuse_chain_table
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.commit.row_range_conflicts import ColumnGuard
from paimon_orch.table.filter.bind import bind_filter
from paimon_orch.table.filter.row_filter import RowFilter
from paimon_orch.table.scan.bucket_reader import BucketReader
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import (
    DataEvolutionReader,
    find_anchor_file,
    group_files_by_rows,
    has_data_evolution,
)
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.scan.scan_planner import ScanPlanner
from paimon_orch.table.scan.split_generator import split_bucket_by_size
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.bucket_routing import BUCKET_COLUMN
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files
from paimon_orch.table.write.dynamic_bucket import HashIndex
from paimon_orch.table.write.table_write import TableWriter, write_rows
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelRequest:
    """Selects the rows to change, and the operation."""

    where: str | Predicate | None = None
    """The filter of the rows; None selects all rows."""
    operation: str = "delete"
    """``delete``, ``update``, ``merge`` (which may delete) or ``insert``."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """The reader of a plan's files, and the predicate of the rows to change."""

    reader: FileReader
    predicate: Predicate | None = None


@dataclass(frozen=True, slots=True)
class TargetUnit:
    """Files of one bucket to find rows in.

    A bucket of a table with a primary key is one unit and counts as one file, because its files
    must be merged.
    """

    split: BucketSplit
    number: int
    """The number of the first file in the plan."""

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
        read = self._read_merged if schema.primary_keys else self._read_files
        read = self._read_row_ranges if has_data_evolution(schema) else read
        row_filter = None if source.predicate is None else RowFilter(source.predicate)
        for addresses, batch in read(source, needed):
            rows = pa.Table.from_batches([batch]).append_column(
                ADDRESS_COLUMN, to_arrow_array(addresses)
            )
            if row_filter is not None:
                rows = row_filter.select(rows)
            if rows.num_rows:
                yield rows.select([ADDRESS_COLUMN, *(column.name for column in fields)])

    def _read_merged(
        self, source: RowSource, fields: Sequence[Field]
    ) -> Iterator[tuple[RowAddresses, pa.RecordBatch]]:
        start = first_row_address(self.number)
        for batch in BucketReader(source.reader, self.split, fields, source.predicate).batches():
            yield np.arange(start, start + batch.num_rows), batch
            start += batch.num_rows

    def _read_row_ranges(
        self, source: RowSource, fields: Sequence[Field]
    ) -> Iterator[tuple[RowAddresses, pa.RecordBatch]]:
        reader, split = source.reader, self.split
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
        fields = [*(field for field in fields if field != ROW_ID), ROW_ID]
        for number, group in enumerate(group_files_by_rows(split.files), self.number):
            first = group[0].first_row_id
            if first is None:
                raise UnsupportedError(
                    f"{group[0].file_name}: the rows of files without row ids cannot be changed"
                )
            rows = DataEvolutionReader(reader, split.partition, split.bucket, group)
            for batch in rows.batches(fields, vectors):
                positions = to_numpy(batch.column(ROW_ID.name)) - first
                yield positions + first_row_address(number), batch

    def _read_files(
        self, source: RowSource, fields: Sequence[Field]
    ) -> Iterator[tuple[RowAddresses, pa.RecordBatch]]:
        reader, split = source.reader, self.split
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
        for number, file in enumerate(split.files, self.number):
            bucket_file = BucketFile(split.partition, split.bucket, file)
            vector = vectors.get(file.file_name)
            batches = reader.read(
                bucket_file, fields, vector, predicate=source.predicate, positions=True
            )
            for batch in batches:
                yield to_numpy(batch.column(ROW_POSITION)) + first_row_address(number), batch


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
    def addressed_files(self) -> list[BucketFile]:
        """Return the files that addresses name, in the order of their numbers.

        With data evolution, an address names the oldest file of a range of row ids.
        """
        if not has_data_evolution(self.schema):
            return self.files
        return [BucketFile(*each.bucket, find_anchor_file(each.files)) for each in self.row_ranges]

    @property
    def row_ranges(self) -> list[RowRange]:
        """Return the ranges of row ids of a data-evolution table, in the order of their numbers."""
        if not has_data_evolution(self.schema):
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

    def to_dict(self) -> dict[str, object]:
        """Return counts and bytes of the files to read."""
        files = self.files
        return {
            "snapshot_id": self.snapshot_id or None,
            "buckets": len({file.partition_bucket for file in files}),
            "files": len(files),
            "rows": sum(file.file.row_count for file in files),
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelResult(StepOutcome):
    """The result of a row-level write; ``snapshot_id`` is None if no row was affected.

    ``rows_not_visible`` is the number of written records that batch readers see only after a
    compaction.
    """

    snapshot_id: int | None = None
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    files_added: int = 0
    files_removed: int = 0
    attempts: int = 1
    rows_not_visible: int = 0

    def count_io(self) -> StepIo:
        """Return the rows and files that were written."""
        return StepIo(rows_written=self.updated + self.inserted, files_written=self.files_added)

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        values: dict[str, object] = {name: getattr(self, name) for name in _COUNTS}
        return values | {
            "duration_seconds": round(self.duration_seconds, 3),
            "attempts": self.attempts,
            "rows_not_visible": self.rows_not_visible,
        }


_COUNTS = ("snapshot_id", "deleted", "updated", "inserted", "files_added", "files_removed")


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
    pruned_by = predicate
    if predicate is not None and has_data_evolution(schema):
        # statistics of a file can be those of old values, which another file replaces
        pruned_by = restrict_to_columns(predicate, set(schema.partition_keys))
    if snapshot is None:
        return RowLevelPlan(request=request, state=state)
    pruner = None if pruned_by is None else FilePruner(schema, pruned_by, state.schemas.get)
    splits = ScanPlanner(state.manifests, schema).splits(snapshot, pruner)
    reader = open_reader(state, schema, splits)
    return RowLevelPlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        source=RowSource(reader, predicate),
        units=tuple(_build_units(splits, schema)),
    )


def _build_units(splits: Iterable[BucketSplit], schema: TableSchema) -> Iterator[TargetUnit]:
    number = 0
    for split in splits:
        for part in [split] if schema.primary_keys else split_bucket_by_size(split, schema):
            yield TargetUnit(part, number)
            if has_data_evolution(schema):
                number += len(group_files_by_rows(part.files))
            else:
                number += 1 if schema.primary_keys else len(part.files)


@dataclass(frozen=True, slots=True)
class DeleteSource:
    """The data that the units of a delete share."""

    source: RowSource
    sequences: Mapping[PartitionBucket, int]
    """The next sequence number of each bucket of a table with a primary key."""


def _collect_work(_table: Table, plan: RowLevelPlan) -> WorkUnits[DeleteSource | None, TargetUnit]:
    if plan.source is None:
        return WorkUnits(shared=None, units=())
    writes_rows = bool(plan and plan.schema.primary_keys)
    sequences = WriteBuilder(plan.state).read_next_sequences() if writes_rows else {}
    return WorkUnits(
        shared=DeleteSource(plan.source, sequences), units=plan.units, bytes=plan.bytes
    )


def delete(
    table: Table,
    executor: Executor,
    where: str | Predicate,
    *,
    progress: Progress | None = None,
) -> RowLevelResult:
    """Delete the rows that match a filter, in one snapshot; keeps rows for which it is NULL.

    Writes -D records to tables with a primary key, deletion vectors to append tables with
    ``deletion-vectors.enabled``, and new files without the rows to other append tables. Raises
    :class:`InputError` if the table's merge engine would not delete a row. After a conflict with
    another commit, the work is planned again, at most three times; then
    :class:`CommitConflictError` is raised, and the table is unchanged.
    """
    return run_delete(table, plan(table, RowLevelRequest(where=where)), executor, progress=progress)


def run_delete(
    table: Table, plan: RowLevelPlan, executor: Executor, *, progress: Progress | None = None
) -> RowLevelResult:
    """Execute the plan of a delete; see :func:`delete`."""
    step = replace(DELETE_ROWS, commit=partial(commit, executor=executor))
    return run_step(step, table, plan, executor, progress=progress)


def run(shared: DeleteSource | None, unit: TargetUnit) -> bytes:
    """Find the rows to delete; in a table with a primary key, write their -D records."""
    assert shared is not None
    if shared.source.reader.schema.primary_keys:
        return _write_delete_records(shared, unit).encode()
    addresses = [to_numpy(rows.column(ADDRESS_COLUMN)) for rows in unit.read(shared.source, ())]
    rows_by_file = group_rows_by_file(addresses)
    return RowLevelTaskResult(rows=rows_by_file, counts=_count_deleted(addresses)).encode()


def _write_delete_records(shared: DeleteSource, unit: TargetUnit) -> RowLevelTaskResult:
    source = shared.source
    schema = source.reader.schema
    bucket_id = unit.split.partition_bucket
    factory = FileWriterFactory.for_rewrite(source.reader, bucket_id, unit.split.files)
    with TableWriter(WritePlan(factory=factory, first_sequence=shared.sequences)) as writer:
        addresses = []
        for rows in unit.read(source, schema.fields):
            addresses.append(to_numpy(rows.column(ADDRESS_COLUMN)))
            deletes = build_delete_rows(schema, rows.drop_columns(ADDRESS_COLUMN))
            writer.write_bucket(bucket_id, deletes)
        message = writer.close()
    return RowLevelTaskResult(message, counts=_count_deleted(addresses))


def prepare_changes(
    planned: WritePlan, batches: Iterable[pa.RecordBatch], first_row: int | None = None
) -> Iterator[pa.Table]:
    """Convert rows with addresses and kinds as :meth:`WritePlan.prepare` does.

    For rows that are deleted from an append table, keeps only the addresses and kinds.
    """
    if planned.schema.primary_keys:
        yield from planned.prepare(batches, first_row)
        return
    for batch in batches:
        is_deleted = pc.equal(batch.column(KIND_COLUMN), "-D")
        yield from planned.prepare([batch.filter(pc.invert(is_deleted))])
        deleted = pa.Table.from_batches([batch]).filter(is_deleted)
        if deleted.num_rows:
            yield deleted.select([ADDRESS_COLUMN, KIND_COLUMN])


def write_changes(planned: WritePlan, parts: Iterable[pa.Table]) -> bytes:
    """Write the rows of :func:`prepare_changes`; return an encoded :class:`RowLevelTaskResult`.

    Rows without an address are new. Deletes (-D) of append tables are not written. Tables that
    merge changes with old rows also need the old values (see :func:`build_rows_to_write`).
    """
    addresses, counts = list[RowAddresses](), Counter[str]()
    deleted_rows = dict[int, DeletionVector]()
    schema = planned.schema

    def build_rows() -> Iterator[pa.Table]:
        for rows in parts:
            addresses.append(to_numpy(rows.column(ADDRESS_COLUMN).drop_null()))
            counts.update(_count_kinds(rows))
            if schema.primary_keys:
                yield from build_rows_to_write(schema, rows)
            elif BUCKET_COLUMN in rows.column_names:
                yield rows.drop_columns([ADDRESS_COLUMN, KIND_COLUMN])
        # An error is raised before the files are finished, so that the writer deletes them.
        deleted_rows.update(group_rows_by_file(addresses))

    if row_tracking_fields(schema):
        message = write_tracked_rows(planned.factory, build_rows())
    else:
        message = write_rows(planned, build_rows())
    return RowLevelTaskResult(message, deleted_rows, counts).encode()


def _count_kinds(rows: pa.Table) -> dict[str, int]:
    """Return row counts by field name of :class:`RowLevelResult`."""
    if VALUE_KIND.name in rows.column_names:
        kinds = pa.array(ROW_KIND_SYMBOLS).take(rows.column(VALUE_KIND.name).combine_chunks())
    else:
        kinds = rows.column(KIND_COLUMN)
    return {
        _RESULT_FIELD_BY_KIND[item["values"]]: item["counts"]
        for item in kinds.value_counts().to_pylist()
    }


def _count_deleted(addresses: Sequence[RowAddresses]) -> dict[str, int]:
    return {"deleted": sum(map(len, addresses))}


def plan_column_update(
    planned: RowLevelPlan, writing: WritePlan, names: Collection[str]
) -> ColumnUpdate:
    """Return the plan of an update of some columns of a data-evolution table.

    Raises :class:`UnsupportedError` if a global index of the columns forbids the update.
    """
    assert planned.source is not None
    latest = planned.state.snapshots.latest()  # indexes that were created since the plan, too
    index = planned.state.manifests.read_index_entries(latest)
    find_stale_indexes(planned.schema, index, names)
    return ColumnUpdate(
        writing=writing,
        reader=planned.source.reader,
        ranges=[each.without_stats() for each in planned.row_ranges],
        names=tuple(name for name in planned.schema.names if name in names),
    )


def discard_changes(table: Table, results: Sequence[RowLevelTaskResult]) -> None:
    """Delete the files that tasks wrote for changes that are not committed."""
    discard_written_files(table.stores.reader(), [result.message for result in results])


def discard_encoded_changes(table: Table, results: Sequence[bytes]) -> None:
    """Delete the files of encoded results; see :func:`discard_changes`."""
    discard_changes(table, [RowLevelTaskResult.decode(result) for result in results])


def commit(
    table: Table,
    planned: RowLevelPlan,
    results: Sequence[RowLevelTaskResult],
    *,
    executor: Executor,
    guard: ReadGuard | None = None,
    hashes: HashIndex | None = None,
) -> RowLevelResult:
    """Delete the old versions of changed rows in append tables, and commit the files of the tasks.

    After a conflict, all new files are deleted.

    :param guard: the buckets that other commits must not have changed since the plan; by default,
        for tables with a primary key, the buckets of the new files
    :param hashes: the states of the dynamic buckets when rows were assigned to them
    """
    messages = [result.message for result in results]
    try:
        deleted_rows = collect_changed_rows(planned.addressed_files, results)
        deleted_rows = {} if planned.schema.primary_keys else deleted_rows
        if deleted_rows:
            messages += _delete_rows_of_files(table, executor, planned, deleted_rows)
    except BaseException:
        discard_written_files(table.stores.reader(), messages)
        raise
    with discard_files_on_conflict(table, messages):
        changes = _build_changes(
            planned, messages, rewritten=set(deleted_rows), guard=guard, hashes=hashes
        )
        if changes is not None and planned.row_ranges:
            changes = _guard_changed_columns(planned, results, changes)
        snapshot = (
            None
            if changes is None
            else planned.state.new_commit(StepKind.WRITE_ROWS).commit(changes)
        )
    entries = [entry for message in messages for entry in message.entries]
    counts = {
        key: sum(result.counts.get(key, 0) for result in results)
        for key in _RESULT_FIELD_BY_KIND.values()
    }
    removed = sum(len(message.deleted) for message in messages)
    return RowLevelResult(
        snapshot_id=None if snapshot is None else snapshot.id,
        **counts,
        files_added=len(entries) - removed,
        files_removed=removed,
        rows_not_visible=WriteBuilder(planned.state).count_unseen_rows(entries),
    )


_RESULT_FIELD_BY_KIND = {"-D": "deleted", "+U": "updated", "+I": "inserted"}


def _delete_rows_of_files(
    table: Table,
    executor: Executor,
    planned: RowLevelPlan,
    deleted_rows: Mapping[PartitionBucket, Mapping[str, DeletionVector]],
) -> list[CommitMessage]:
    assert planned.source is not None
    state, reader = planned.state, planned.source.reader
    splits = ScanPlanner(state.manifests, planned.schema).splits(state.snapshot)
    schemas = open_reader(state, planned.schema, splits).schemas
    run_unit = partial(run_delete_unit, replace(reader, schemas=schemas))
    units = plan_delete_units(reader.schema, splits, deleted_rows)

    def undo(results: list[bytes]) -> None:
        discard_written_files(reader, map(CommitMessage.decode, results))

    label = f"delete rows from files of {table.identifier}"
    results = executor.map(run_unit, units, label=label, undo=undo, work_bytes=planned.bytes)
    return [CommitMessage.decode(result) for result in results]


def _build_changes(
    planned: RowLevelPlan,
    messages: Sequence[CommitMessage],
    rewritten: set[PartitionBucket],
    guard: ReadGuard | None,
    hashes: HashIndex | None,
) -> CommitChanges | None:
    entries = tuple(e for message in messages for e in (*message.deleted, *message.added))
    index = tuple(item for message in messages for item in message.index)
    if not entries and not index:
        return None
    schema = planned.schema
    if schema.primary_keys and guard is None:
        buckets = frozenset(entry.partition_bucket for entry in entries)
        guard = ReadGuard(planned.snapshot_id, buckets)
    guards = tuple(
        BucketGuard.of(unit.split.partition_bucket, (), unit.split.vectors)
        for unit in planned.units
        if unit.split.partition_bucket in rewritten and not schema.is_bucket_unaware
    )
    return CommitChanges(
        kind=CommitKind.OVERWRITE if rewritten else CommitKind.APPEND,
        entries=entries,
        changelog=tuple(entry for message in messages for entry in message.changelog),
        index=index,
        guards=guards,
        hash_index_guards=() if hashes is None else hashes.guards(entries, index),
        read_guard=guard,
    )


def _guard_changed_columns(
    planned: RowLevelPlan,
    results: Sequence[RowLevelTaskResult],
    changes: CommitChanges,
) -> CommitChanges:
    guard = ColumnGuard(
        snapshot_id=planned.snapshot_id,
        schema_id=planned.schema.id,
        changes=find_column_changes(planned.row_ranges, results),
    )
    latest = planned.state.snapshots.latest()  # indexes that were created since the plan, too
    index = planned.state.manifests.read_index_entries(latest)
    return guard_changed_columns(changes, guard, planned.schema, index)


def _commit_without_executor(
    table: Table, plan: RowLevelPlan, results: Sequence[RowLevelTaskResult]
) -> RowLevelResult:
    return commit(table, plan, results, executor=InProcessExecutor())


DELETE_ROWS = Step(
    title="delete rows of",
    plan=plan,
    work=_collect_work,
    run=run,
    decode=RowLevelTaskResult.decode,
    commit=_commit_without_executor,
    discard=discard_changes,
)
