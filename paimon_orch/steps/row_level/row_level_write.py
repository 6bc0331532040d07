"""Row-level changes: executes a plan, that is, deletes rows or writes new versions, and commits.

See docs/format/commit.md#conflicts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import pyarrow as pa

from paimon_orch.format.arrays import to_numpy
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import VALUE_KIND
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.steps import ingest
from paimon_orch.steps.common.argument import Argument, ParsedRequest
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
from paimon_orch.steps.common.step import Step, StepOutcome, WorkUnits, run_step
from paimon_orch.steps.common.step_declaration import take_fields
from paimon_orch.steps.common.step_metrics import StepIo
from paimon_orch.steps.row_level.column_update import (
    ColumnUpdate,
    find_column_changes,
    find_stale_indexes,
    guard_changed_columns,
)
from paimon_orch.steps.row_level.delete_rows import plan_delete_units, run_delete_unit
from paimon_orch.steps.row_level.find_target import find_target
from paimon_orch.steps.row_level.row_level_plan import (
    RowLevelPlan,
    RowLevelRequest,
    TargetUnit,
    plan,
)
from paimon_orch.steps.row_level.row_target import RowSource
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowAddresses,
    RowLevelTaskResult,
    group_rows_by_file,
)
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.commit.row_range_conflicts import ColumnGuard
from paimon_orch.table.scan.partition_selection import open_reader
from paimon_orch.table.scan.scan_planner import ScanPlanner
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files
from paimon_orch.table.write.dynamic_bucket import HashIndex
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan

__all__ = [
    "DELETE_ROWS",
    "DeleteRowsRequest",
    "DeleteSource",
    "RowLevelPlan",
    "RowLevelRequest",
    "RowLevelResult",
    "commit",
    "delete",
    "discard_changes",
    "discard_encoded_changes",
    "plan",
    "plan_column_update",
    "plan_writing",
    "prepare_changes",
    "run",
    "run_delete",
    "write_changes",
]


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
    snapshot: Snapshot | None = field(default=None, repr=False, compare=False)
    """The snapshot of ``snapshot_id``, which may have expired already."""

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


@dataclass(frozen=True, slots=True)
class DeleteSource:
    """The data that the units of a delete share."""

    source: RowSource
    sequences: Mapping[PartitionBucket, int]
    """The next sequence number of each bucket of a table with a primary key."""


def _collect_work(_table: Table, plan: RowLevelPlan) -> WorkUnits[DeleteSource | None, TargetUnit]:
    if plan.source is None:
        return WorkUnits(shared=None, units=())
    sequences = plan.target.read_next_sequences(plan.state) if plan else {}
    return WorkUnits(
        shared=DeleteSource(plan.source, sequences), units=plan.units, bytes=plan.bytes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRowsRequest(RowLevelRequest, ParsedRequest):
    """Selects the rows to delete."""

    where: Annotated[
        str | Predicate,
        Argument("SQL filter, e.g. \"status = 'VOID'\".", metavar="CONDITION"),
    ] = field(kw_only=False)
    operation: str = field(default="delete", init=False)


@take_fields(DeleteRowsRequest)
def delete(
    table: Table,
    request: DeleteRowsRequest,
    executor: Executor,
    progress: Progress | None,
) -> RowLevelResult:
    """Delete the rows that match a filter, in one snapshot; keeps rows for which it is NULL.

    Writes -D records to tables with a primary key, deletion vectors to append tables with
    ``deletion-vectors.enabled``, and new files without the rows to other append tables. Raises
    :class:`InputError` if the table's merge engine would not delete a row. After a conflict with
    another commit, the work is planned again, at most three times; then
    :class:`CommitConflictError` is raised, and the table is unchanged.
    """
    return run_delete(table, DELETE_ROWS.plan(table, request), executor, progress=progress)


def run_delete(
    table: Table, plan: RowLevelPlan, executor: Executor, *, progress: Progress | None = None
) -> RowLevelResult:
    """Execute the plan of a delete; see :func:`delete`."""
    step = replace(DELETE_ROWS, commit=partial(commit, executor=executor))
    return run_step(step, table, plan, executor, progress=progress)


def run(shared: DeleteSource | None, unit: TargetUnit) -> bytes:
    """Find the rows to delete; in a table with a primary key, write their -D records."""
    assert shared is not None
    target = find_target(shared.source.reader.schema)
    read = unit.read(shared.source, target.columns_to_delete)
    return target.delete_rows(shared.source, unit.split, read, shared.sequences).encode()


def plan_writing(table: Table, planned: RowLevelPlan) -> WritePlan:
    """Plan the write of changed rows with their addresses and kinds."""
    row_kind = planned.target.row_kind_column
    columns = [*planned.schema.names, *([row_kind] if row_kind else [])]
    request = ingest.IngestRequest(columns=columns, row_kind=row_kind)
    return ingest.plan(table, request, state=planned.state)


def prepare_changes(
    planned: WritePlan, batches: Iterable[pa.RecordBatch], first_row: int | None = None
) -> Iterator[pa.Table]:
    """Convert rows with addresses and kinds as :meth:`WritePlan.prepare` does.

    For rows that are deleted from an append table, keeps only the addresses and kinds.
    """
    return find_target(planned.schema).prepare_changes(planned, batches, first_row)


def write_changes(planned: WritePlan, parts: Iterable[pa.Table]) -> bytes:
    """Write the rows of :func:`prepare_changes`; return an encoded :class:`RowLevelTaskResult`.

    Rows without an address are new. Deletes (-D) of append tables are not written. Tables that
    merge changes with old rows also need the old values (see :func:`build_rows_to_write`).
    """
    addresses, counts = list[RowAddresses](), Counter[str]()
    deleted_rows = dict[int, DeletionVector]()
    target = find_target(planned.schema)

    def build_rows() -> Iterator[pa.Table]:
        for rows in parts:
            addresses.append(to_numpy(rows.column(ADDRESS_COLUMN).drop_null()))
            counts.update(_count_kinds(rows))
            yield from target.build_rows_to_write(rows)
        # An error is raised before the files are finished, so that the writer deletes them.
        deleted_rows.update(group_rows_by_file(addresses))

    message = target.write_rows(planned, build_rows())
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
    discard_messages(table, [result.message for result in results])


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
        deleted_rows = planned.target.collect_rows_to_delete(planned.addressed_files, results)
        if deleted_rows:
            messages += _delete_rows_of_files(table, executor, planned, deleted_rows)
    except BaseException:
        discard_messages(table, messages)
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
        snapshot=snapshot,
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
    if guard is None:
        guard = planned.target.build_read_guard(planned.snapshot_id, entries)
    guards = tuple(
        BucketGuard.of(unit.split.partition_bucket, None, unit.split.vectors)
        for unit in planned.units
        if unit.split.partition_bucket in rewritten and not planned.schema.is_bucket_unaware
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


DELETE_ROWS = Step(
    title="delete rows of",
    planner=plan,
    work=_collect_work,
    run=run,
    decode=RowLevelTaskResult.decode,
    commit=partial(commit, executor=InProcessExecutor()),
    discard=discard_changes,
)
