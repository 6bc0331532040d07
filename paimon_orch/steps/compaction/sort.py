"""Sort compaction of append tables: the rows of a partition in order, or along a curve.

See docs/format/sort-compaction.md#sort-compaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.append_deletion_vectors import is_bucket_unaware
from paimon_orch.merge.sort.space_filling_curves import (
    decode_leading_words,
    encode_hilbert,
    encode_order_bytes,
    encode_z_order,
)
from paimon_orch.steps.common.retry import discard_files_on_conflict
from paimon_orch.steps.compaction.append import (
    AppendCompactionUnit,
    check_compactable,
    select_append_units,
)
from paimon_orch.steps.compaction.plan import CompactionPlan, PartitionSpecs, plan_splits
from paimon_orch.steps.row_level.row_level import TargetUnit, split_bucket_by_size
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.scan.scan_planner import BucketSplit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage

OrderStrategy = Literal["order", "zorder", "hilbert"]


@dataclass(frozen=True, slots=True)
class SortOrder:
    """By which columns rows are sorted, and how several columns become one order."""

    columns: tuple[str, ...]
    strategy: OrderStrategy = "order"

    def keys(self, rows: pa.Table, width: int) -> pa.Array:
        """Return the sort key of each row along a curve; of text ``width`` bytes count."""
        columns = [
            encode_order_bytes(rows.column(name).combine_chunks(), name, width)
            for name in self.columns
        ]
        if self.strategy == "hilbert":
            found = encode_hilbert([decode_leading_words(column) for column in columns])
        else:
            found = encode_z_order(columns)
        flat = pa.py_buffer(found.tobytes())
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(found.shape[1]), len(found), [None, flat]
        )
        return fixed.cast(pa.binary())


def plan(
    table: Table,
    order: SortOrder,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
) -> CompactionPlan:
    """Choose the partitions to sort, from metadata alone; each is rewritten as a whole. Also the dry run.

    Raises :class:`UnsupportedError` for other than append tables without buckets, :class:`InputError` for columns that
    nothing can be sorted by.
    """
    table.stores.check_step(StepKind.COMPACT)
    schema = table.schema
    _check_sortable(table, schema, order)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return CompactionPlan(None)
    splits = plan_splits(table, schema, snapshot=snapshot, partitions=partitions, where=where)
    schemas = table.stores.schemas.get_all(
        file.schema_id for split in splits for file in split.files
    )
    reader = FileReader(table.io, table.paths, schema, schemas)
    reason = f"{order.strategy} by {', '.join(order.columns)}"
    units = [
        AppendCompactionUnit(
            reader=reader,
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            reason=reason,
            groups=(split.files,),
            live=frozenset(file.file_name for file in split.files),
            vectors=split.vectors,
        )
        for split in splits
    ]
    return CompactionPlan(snapshot.id, tuple(units))


def _check_sortable(table: Table, schema: TableSchema, order: SortOrder) -> None:
    if not is_bucket_unaware(schema):
        raise UnsupportedError(
            f"{table.identifier}: only append tables without buckets can be sorted; the rows of others have their places"
        )
    check_compactable(schema)
    if not order.columns:
        raise InputError("a sort compaction needs at least one column to order by")
    empty = pa.Table.from_batches([], table.scan().arrow_schema)
    for name in order.columns:
        schema.field(name)
        if name in schema.partition_keys:
            raise InputError(
                f"rows cannot be ordered by {name!r}: a partition is sorted by itself, and has one value there"
            )
        encode_order_bytes(empty.column(name).combine_chunks(), name)


def plan_read_units(planned: CompactionPlan) -> list[TargetUnit]:
    """Return the parts of the chosen partitions to read, each worth a task."""
    return [
        TargetUnit(unit.reader, part, 0, None)
        for unit in select_append_units(planned)
        for part in split_bucket_by_size(_build_bucket_split(unit), unit.reader.schema)
    ]


def _build_bucket_split(unit: AppendCompactionUnit) -> BucketSplit:
    return BucketSplit(
        partition=unit.partition,
        bucket=unit.bucket,
        total_buckets=unit.total_buckets,
        files=unit.inputs,
        vectors=unit.vectors,
    )


def commit(table: Table, planned: CompactionPlan, messages: Sequence[CommitMessage]) -> Snapshot:
    """Replace the files that were read by the sorted ones, as an overwrite of exactly those files.

    Rows that arrived meanwhile stay. Raises :class:`CommitConflictError` if a file that was read is gone or has newly
    deleted rows; what was written is removed then.
    """
    removed = [
        ManifestEntry(
            kind=FileKind.DELETE,
            partition=unit.partition,
            bucket=unit.bucket,
            total_buckets=unit.total_buckets,
            file=file,
        )
        for unit in select_append_units(planned)
        for file in unit.inputs
    ]
    added = [entry for message in messages for entry in message.added]
    index = tuple(
        entry.deleted() for unit in select_append_units(planned) for entry in unit.vectors
    )
    changes = CommitChanges(kind=CommitKind.OVERWRITE, entries=(*removed, *added), index=index)
    with discard_files_on_conflict(table, messages):
        return table.stores.new_commit(StepKind.COMPACT).commit(changes)
