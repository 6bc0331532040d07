"""Remove the deleted rows of a table with data evolution.

The other rows of their files get new ids.

See docs/format/row-tracking.md#materializing-deletion-vectors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.row_range_strategy import RowRangeStrategy
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import Step, run_step
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.compaction.append import build_append_result
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionUnit,
    collect_work,
    order_by_size,
    run,
)
from paimon_orch.steps.compaction.row_ranges import (
    add_moved_vectors,
    build_entries_of_bins,
    rewrite_index_files,
)
from paimon_orch.table.blob_gate import refuse_blob_columns
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.row_range_conflicts import ColumnChange, ColumnGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.data_evolution import (
    DataEvolutionReader,
    group_files_by_rows,
    has_data_evolution,
)
from paimon_orch.table.scan.partition_selection import open_reader, plan_live_buckets
from paimon_orch.table.scan.split_generator import restrict_vectors_to_files
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeUnit(CompactionUnit):
    """Files of adjacent row ids with deleted rows; writes the other rows, which get new ids."""

    files_by_row_id: tuple[DataFileMeta, ...]
    vectors: tuple[IndexManifestEntry, ...]
    """The index files with the deletion vectors of the files."""

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files of all rows."""
        return self.files_by_row_id

    def run(self, reader: FileReader) -> bytes:
        """Write the rows and return an encoded :class:`CommitMessage`; may run repeatedly."""
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, self.vectors)
        bucket, files = self.partition_bucket, self.inputs
        factory = FileWriterFactory.for_rewrite(reader, bucket, files)
        with factory.writer(bucket) as writer:
            for group in group_files_by_rows(files):
                rows = DataEvolutionReader(reader, self.partition, self.bucket, group)
                for batch in rows.batches(reader.schema.fields, vectors):
                    writer.write(pa.Table.from_batches([batch]))
            entries = (
                *self.build_entries(FileKind.DELETE, files),
                *self.build_entries(FileKind.ADD, writer.close()),
            )
            return CommitMessage(entries=entries).encode()


def plan(
    table: Table, request: PartitionRequest, *, state: TableState | None = None
) -> CompactionPlan:
    """Find the ranges of row ids with deleted rows; reads only metadata.

    ``state`` is the table, if the caller has loaded it.

    Raises :class:`UnsupportedError` for tables without data evolution or deletion vectors.
    """
    state = state or table.load()
    state.check_step(StepKind.COMPACT)
    schema, snapshot = state.schema, state.snapshot
    if not has_data_evolution(schema) or not schema.typed_options.has_deletion_vectors:
        raise UnsupportedError(
            f"{table.identifier}: only tables with 'data-evolution.enabled' and "
            "'deletion-vectors.enabled' = true keep deleted rows in a compaction; compact the table"
        )
    refuse_blob_columns(table.identifier, schema, "a new place for rows after deleted rows")
    if snapshot is None:
        return CompactionPlan(request=request, state=state)
    buckets = plan_live_buckets(state, schema, snapshot, request)
    strategy = RowRangeStrategy.of(schema.typed_options)
    bins = strategy.pack(buckets.groups.files, _find_files_with_deleted_rows(buckets))
    units = order_by_size(list(_build_units(buckets, bins)))
    planned = CompactionPlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        reader=open_reader(state, schema, buckets),
        units=tuple(units),
        skipped_buckets=len(buckets) - len({unit.partition_bucket for unit in units}),
    )
    return add_moved_vectors(planned, buckets)


def _find_files_with_deleted_rows(buckets: LiveBuckets) -> Indices:
    """Return all files of the ranges of row ids that have a file with a deletion vector."""
    files, rows = buckets.groups.files, buckets.groups.rows
    if files.names is None or files.first_row_ids is None:
        return np.zeros(0, np.int64)  # the snapshot has no deletion vectors
    names = [
        item.data_file
        for entries in buckets.vectors.values()
        for entry in entries
        for item in entry.ranges or ()
    ]
    has_vector = pc.is_in(files.names, value_set=pa.array(names, pa.string())).to_numpy(
        zero_copy_only=False
    )
    # two partitions have no common row id, so the first id identifies a range
    first_ids = files.first_row_ids[rows]
    selected: Indices = rows[np.isin(first_ids, first_ids[has_vector[rows]])]
    return selected


def _build_units(buckets: LiveBuckets, bins: Sequence[Indices]) -> Iterator[MaterializeUnit]:
    for entries in build_entries_of_bins(buckets, bins):
        bucket = entries[0].partition_bucket
        files = tuple(entry.file for entry in entries)
        yield MaterializeUnit(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=entries[0].total_buckets,
            partition_text=format_partition(bucket.partition, buckets.schema),
            reason=CompactReason.DELETED_ROWS,
            files_by_row_id=files,
            vectors=restrict_vectors_to_files(buckets.vectors.get(bucket, ()), files),
        )


def commit(
    table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units in one snapshot; drops global indexes of the partitions.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit changed rows
    of the same ranges.
    """
    if not plan:
        return CompactionResult(plan=plan)
    assert plan.reader is not None
    assert plan.snapshot_id is not None
    inputs = {file.file_name for unit in plan.units for file in unit.inputs}
    try:
        moved = rewrite_index_files(plan.reader, plan, drop=inputs, add={})
    except BaseException:
        discard_messages(table, messages)
        raise
    messages = [*messages, *moved]
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        entries=tuple(entry for message in messages for entry in message.entries),
        index=(
            *(entry for message in messages for entry in message.index),
            *_find_global_indexes(plan),
        ),
        column_guard=ColumnGuard(
            snapshot_id=plan.snapshot_id,
            schema_id=plan.state.schema.id,
            changes=_list_replaced_ranges(plan),
        ),
    )
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return build_append_result(plan, messages, snapshot)


def _list_replaced_ranges(plan: CompactionPlan) -> tuple[ColumnChange, ...]:
    """Return the rows that get new ids: no other commit may write columns of the old ids."""
    ranges = {
        (file.first_row_id or 0, file.row_count) for unit in plan.units for file in unit.inputs
    }
    return tuple(ColumnChange(first, first + rows, None) for first, rows in sorted(ranges))


def _find_global_indexes(plan: CompactionPlan) -> list[IndexManifestEntry]:
    """Return deletes of the global indexes of the partitions, which refer to the old ids."""
    partitions = {unit.partition for unit in plan.units}
    latest = plan.state.snapshots.latest()  # indexes that were created since the plan, too
    return [
        entry.deleted()
        for entry in plan.state.manifests.read_index_entries(latest)
        if entry.global_index is not None and entry.partition in partitions
    ]


MATERIALIZE_DELETION_VECTORS = Step(
    title="materialize deletion vectors of",
    planner=plan,
    work=collect_work,
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
)


@take_fields(PartitionRequest)
def materialize_deletion_vectors(
    table: Table, request: PartitionRequest, executor: Executor | None, progress: Progress | None
) -> CompactionResult:
    """Remove the deleted rows of a data-evolution table, in one snapshot.

    The other rows of their files get new row ids, and global indexes of these partitions are
    dropped. Commits no snapshot if there are no deletion vectors. Conflicts are handled as in
    :func:`paimon_orch.steps.compaction.compact.compact`.
    """
    planned = MATERIALIZE_DELETION_VECTORS.plan(table, request)
    return run_step(MATERIALIZE_DELETION_VECTORS, table, planned, executor, progress=progress)


DECLARATION = declare_step(
    MATERIALIZE_DELETION_VECTORS,
    PartitionRequest,
    help="Compactions of these tables keep deleted rows, because row ids must not change. The other "
    "rows of the rewritten files get new row ids, and global indexes of their partitions are dropped.",
    examples=["/lake db.events --dry-run"],
)
