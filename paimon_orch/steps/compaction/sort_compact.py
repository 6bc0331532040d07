"""Sort compaction of append tables, by columns or along a curve: plans and commits it.

Spark sorts and writes the rows (:mod:`paimon_orch.spark.sort_compact`).

See docs/format/sort-compaction.md#sort-compaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.merge.sort.space_filling_curves import encode_curve_keys, encode_order_bytes
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction.append import (
    build_append_result,
    build_deletes,
    select_append_units,
)
from paimon_orch.steps.compaction.append_unit import AppendCompactionUnit
from paimon_orch.steps.compaction.clustering import check_not_clustered
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionResult
from paimon_orch.steps.compaction.policy import OrderStrategy
from paimon_orch.steps.row_level.row_level_plan import TargetUnit
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.partition_selection import open_reader, plan_splits
from paimon_orch.table.scan.split_generator import split_bucket_by_size
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The columns to sort by, and the strategy to combine several columns into one order."""

    columns: tuple[str, ...]
    strategy: OrderStrategy = "order"

    def keys(self, rows: pa.Table, width: int) -> pa.Array:
        """Return the sort keys of rows along a curve; uses the first ``width`` bytes of strings."""
        curve: Literal["zorder", "hilbert"] = "zorder" if self.strategy == "zorder" else "hilbert"
        return encode_curve_keys(rows, self.columns, curve, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortRequest(PartitionRequest):
    """Selects the partitions to sort, and the order."""

    order: SortOrder


@repeat_if_expired
def plan(table: Table, request: SortRequest, *, state: TableState | None = None) -> CompactionPlan:
    """Select the files to rewrite; reads only metadata. Refuses tables that cannot be sorted.

    ``state`` is the table, if the caller has loaded it.
    """
    state = state or table.load()
    state.check_step(StepKind.COMPACT)
    schema, snapshot = state.schema, state.snapshot
    _check_sortable(table, schema, request.order)
    if snapshot is None:
        return CompactionPlan(request=request, state=state)
    splits = plan_splits(state, schema, snapshot, request)
    return CompactionPlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        reader=open_reader(state, schema, splits),
        units=tuple(_build_unit(split, schema, request.order) for split in splits),
    )


def _build_unit(split: BucketSplit, schema: TableSchema, order: SortOrder) -> AppendCompactionUnit:
    return AppendCompactionUnit(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        partition_text=format_partition(split.partition, schema),
        reason=CompactReason.SORT,
        reason_details=f"{order.strategy} by {', '.join(order.columns)}",
        groups=(split.files,),
        vectors=split.vectors,
        live_names=frozenset(file.file_name for file in split.files),
    )


def _check_sortable(table: Table, schema: TableSchema, order: SortOrder) -> None:
    if not schema.is_bucket_unaware:
        raise UnsupportedError(
            f"{table.identifier}: only append tables without buckets can be sorted; buckets and "
            "primary keys determine where rows are stored"
        )
    check_not_clustered(schema, "a sort compaction")
    if has_data_evolution(schema):
        raise UnsupportedError(
            f"{table.identifier}: the rows of tables with {DATA_EVOLUTION_ENABLED.key!r} = true "
            "cannot be sorted, because they are ordered by row id"
        )
    if not order.columns:
        raise InputError("a sort compaction requires at least one column to sort by")
    empty = pa.Table.from_batches([], to_arrow_schema(schema.fields))
    for name in order.columns:
        schema.field(name)
        if name in schema.partition_keys:
            raise InputError(
                f"rows cannot be sorted by {name!r}: it is a partition column, and each partition "
                "is sorted separately"
            )
        encode_order_bytes(empty.column(name).combine_chunks(), name)


def plan_read_units(plan: CompactionPlan) -> list[TargetUnit]:
    """Return the files of the selected partitions as units that are large enough for a task."""
    assert plan.reader is not None
    return [
        TargetUnit(part, 0)
        for unit in select_append_units(plan)
        for part in split_bucket_by_size(_build_bucket_split(unit), plan.reader.schema)
    ]


def _build_bucket_split(unit: AppendCompactionUnit) -> BucketSplit:
    return BucketSplit(
        partition=unit.partition,
        bucket=unit.bucket,
        total_buckets=unit.total_buckets,
        files=unit.inputs,
        vectors=unit.vectors,
    )


def commit(
    table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Replace the planned files with sorted files, in an OVERWRITE snapshot.

    Keeps the rows of concurrent commits. Raises :class:`CommitConflictError`, and deletes the new
    files, if another commit removed a planned file or deleted rows of it.
    """
    if not plan:
        return CompactionResult(plan=plan)
    added = [entry for message in messages for entry in message.added]
    vectors = [entry for unit in select_append_units(plan) for entry in unit.vectors]
    changes = CommitChanges(
        kind=CommitKind.OVERWRITE,
        entries=(*build_deletes(plan), *added),
        index=tuple(entry.deleted() for entry in vectors),
    )
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return build_append_result(plan, messages, snapshot)
