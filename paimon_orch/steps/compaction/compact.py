"""Compaction: plan from metadata, one work unit a bucket or a part of one, one snapshot."""

from collections.abc import Sequence
from datetime import datetime

from paimon_orch.format.partition_path import format_partition_values
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.compaction import append as append_compact
from paimon_orch.steps.compaction import primary_key as merge_compact
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionStrategy,
    CompactionUnit,
    PartitionSpecs,
    run,
    run_compaction,
)
from paimon_orch.steps.compaction.postpone import move_postponed
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets

__all__ = [
    "CompactionPlan",
    "CompactionResult",
    "CompactionStrategy",
    "CompactionUnit",
    "PartitionSpecs",
    "commit",
    "compact",
    "compact_written_partitions",
    "plan",
    "run",
]


def plan(
    table: Table,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    strategy: CompactionStrategy = "minor",
    now: datetime | None = None,
) -> CompactionPlan:
    """Choose what to compact in the newest snapshot, from metadata alone.

    ``partitions`` are specs (``"dt=a"`` or mappings, full or partial), ``where`` a filter over partition columns.
    ``minor`` follows the table's options: with deletion vectors level 0 always moves up, and files whose rows are
    mostly hidden are rewritten; ``full`` rewrites everything to the highest level. An append table's small files are
    packed: by ``minor`` when they are worth it, by ``full`` at once. Rows expire as of ``now``. Raises
    :class:`UnsupportedError` for tables that cannot be compacted yet.
    """
    if not table.schema.primary_keys:
        return append_compact.plan(table, partitions=partitions, where=where, strategy=strategy)
    return merge_compact.plan(table, partitions=partitions, where=where, strategy=strategy, now=now)


def commit(
    table: Table, planned: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units, in their order, in one snapshot, and tell what was done.

    Raises :class:`CommitConflictError` if another commit changed the same buckets; what was written is removed.
    """
    if not table.schema.primary_keys:
        return append_compact.commit(table, planned, messages)
    return merge_compact.commit(table, planned, messages)


def compact_written_partitions(
    table: Table, snapshot_id: int, executor: Executor, *, progress: Progress | None = None
) -> CompactionResult:
    """Compact the partitions that a commit wrote to, as ``minor`` does."""
    schema, snapshot = table.schema, table.stores.snapshots.get(snapshot_id)
    written = dict.fromkeys(
        e.partition for e in table.stores.manifests.read_delta_entries(snapshot)
    )
    fields = schema.partition_fields
    types = [field.type for field in fields]
    specs = [
        format_partition_values(deserialize_row(partition, types), fields, schema.typed_options)
        for partition in written
    ]
    return compact(table, executor, partitions=specs if fields else None, progress=progress)


def compact(
    table: Table,
    executor: Executor,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    strategy: CompactionStrategy = "minor",
    progress: Progress | None = None,
    now: datetime | None = None,
) -> CompactionResult:
    """Plan, run and commit a compaction; see :func:`plan` for the arguments.

    Rows that wait in postpone buckets are moved first. Idempotent: with nothing to do nothing is committed. A conflict
    with another committer is answered by a fresh plan, three times at most, then :class:`CommitConflictError` is raised
    and the table is unchanged.
    """
    if has_postpone_buckets(table.schema):
        move_postponed(table, executor, partitions=partitions, where=where, progress=progress)

    def plan_again() -> CompactionPlan:
        return plan(table, partitions=partitions, where=where, strategy=strategy, now=now)

    def finish(planned: CompactionPlan, messages: Sequence[CommitMessage]) -> CompactionResult:
        return commit(table, planned, messages)

    return run_compaction(table, executor, plan=plan_again, commit=finish, progress=progress)
