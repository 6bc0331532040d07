"""Compacts append tables: merges small files into large ones, and removes deleted rows.

See docs/format/append-table-compaction.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.tree.append_compact_strategy import (
    AppendCompactStrategy,
    DeletionVectorRef,
    FileGroup,
    collect_deletion_vector_refs,
)
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.bucket_scan import BucketScan, Judgment
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict, discard_messages
from paimon_orch.steps.compaction import clustering, history_partitions, row_ranges
from paimon_orch.steps.compaction.append_unit import AppendCompactionUnit
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionUnit,
    CompactRequest,
    order_by_size,
)
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.steps.expiration.expire_partitions import exclude_expired_partitions
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.partition_selection import open_reader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage


def check_compactable(schema: TableSchema) -> None:
    """Raise an error for append tables that cannot be compacted with their options."""
    if schema.is_clustered:
        clustering.check_clusterable(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendJudge:
    """Chooses the buckets that may have work, and counts all buckets that are not expired."""

    identifier: str
    strategy: CompactionStrategy
    current_time: datetime
    """The local wall clock time of the caller."""
    idle_before: int | None = None
    """The limit of :func:`find_idle_limit`; older buckets are sorted as a whole."""

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        """Judge some buckets."""
        current = exclude_expired_partitions(self.identifier, buckets, self.current_time)
        chosen = select_candidates(current, self.strategy, self.idle_before)
        return Judgment(chosen=chosen, values={"buckets": len(current)})


def build_judge(scan: BucketScan, request: CompactRequest) -> AppendJudge:
    """Return the judge of a plan."""
    return AppendJudge(
        identifier=scan.state.identifier,
        strategy=request.chosen_strategy,
        current_time=scan.now.astimezone().replace(tzinfo=None),
        idle_before=clustering.find_idle_limit(scan.now, request.cluster_idle_for),
    )


def plan(state: TableState, request: CompactRequest, scan: BucketScan | None) -> CompactionPlan:
    """Plan a compaction of an append table; ``minor`` requires enough small files or deletes."""
    state.check_step(StepKind.COMPACT)
    schema = state.schema
    check_compactable(schema)
    if scan is None:
        return CompactionPlan(request=request, state=state)
    judge = build_judge(scan, request)
    judged = scan.judge(judge)
    reader = open_reader(state, schema, judged.chosen)
    units = plan_units(reader, scan, judged.chosen, request.chosen_strategy, judge.idle_before)
    history = history_partitions.plan_units(scan)
    if history.units:
        reader = replace(reader, schemas={**reader.schemas, **history.schemas})
    plan = CompactionPlan(
        request=request,
        state=state,
        snapshot_id=scan.snapshot.id,
        reader=reader,
        units=tuple(order_by_size([*units, *history.units])),
        skipped_buckets=judged.sum("buckets") - len({unit.partition_bucket for unit in units}),
    )
    if has_data_evolution(schema):
        return row_ranges.add_moved_vectors(plan, judged.chosen)
    if schema.is_bucket_unaware or schema.is_clustered:
        return plan
    guards = (
        BucketGuard.of(x.partition_bucket, None, x.vectors) for x in select_append_units(plan)
    )
    return replace(plan, guards=tuple(guards))


def select_buckets(
    buckets: LiveBuckets, strategy: CompactionStrategy, _now: datetime
) -> LiveBuckets:
    """Return the buckets that may have work, whenever they were written."""
    return select_candidates(buckets, strategy)


def plan_units(
    reader: FileReader,
    scan: BucketScan,
    chosen: LiveBuckets,
    strategy: CompactionStrategy,
    idle_before: int | None = None,
) -> Sequence[CompactionUnit]:
    """Return the units of chosen buckets; reads only metadata."""
    if has_data_evolution(reader.schema):
        return row_ranges.plan_units(chosen, reader.schemas, strategy)
    if reader.schema.is_clustered:
        return clustering.plan_units(reader, scan.build_splits(chosen), strategy, idle_before)
    return [
        unit
        for split in scan.build_splits(chosen)
        for unit in plan_bucket_units(reader, split, strategy)
    ]


def select_candidates(
    buckets: LiveBuckets, strategy: CompactionStrategy, idle_before: int | None = None
) -> LiveBuckets:
    """Return the buckets that may have work, without objects for files.

    In tables without buckets, they have only the files that may be rewritten.
    """
    if has_data_evolution(buckets.schema):
        return row_ranges.select_candidates(buckets, strategy)
    if buckets.schema.is_clustered:
        return clustering.select_candidates(buckets, strategy, idle_before)
    select = AppendCompactStrategy.of(buckets.schema.typed_options)
    is_unaware = buckets.schema.is_bucket_unaware
    with_vectors = np.zeros(len(buckets), bool)
    for number, _ in buckets.iterate_vectors():
        with_vectors[number] = True
    may_rewrite, is_candidate = select.find_candidates(
        buckets.groups, with_vectors, full=strategy == "full", is_unaware=is_unaware
    )
    selected = buckets.take(np.flatnonzero(is_candidate))
    return selected.with_files(may_rewrite) if is_unaware else selected


def plan_bucket_units(
    reader: FileReader, split: BucketSplit, strategy: CompactionStrategy
) -> list[AppendCompactionUnit]:
    """Return the units of a bucket; reads only metadata.

    In tables without buckets, each group of files is a unit, as groups share no index file. In
    tables with buckets, a bucket is one unit.
    """
    planner = _BucketPlanner(
        split=split,
        refs=collect_deletion_vector_refs(split.vectors),
        is_full=strategy == "full",
        is_unaware=reader.schema.is_bucket_unaware,
    )
    return planner.plan(AppendCompactStrategy.of(reader.schema.typed_options), reader.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BucketPlanner:
    split: BucketSplit
    refs: Mapping[str, DeletionVectorRef]
    is_full: bool
    is_unaware: bool

    def plan(
        self, strategy: AppendCompactStrategy, schema: TableSchema
    ) -> list[AppendCompactionUnit]:
        select = strategy.select_bucket_unaware if self.is_unaware else strategy.select_bucketed
        groups = select(self.split.files, self.refs, full=self.is_full)
        if not groups:
            return []
        rewritten = {file.file_name for group in groups for file in group}
        names = {file.file_name for file in self.split.files} - rewritten
        remaining = sum(self.refs[name].cardinality or 0 for name in names & set(self.refs))
        partition_text = format_partition(self.split.partition, schema)
        parts = [(group,) for group in groups] if self.is_unaware else [tuple(groups)]
        return [
            self._build_unit(part, partition_text, 0 if number else remaining)
            for number, part in enumerate(parts)
        ]

    def _build_unit(
        self, groups: tuple[FileGroup, ...], partition_text: str, remaining_deleted_rows: int
    ) -> AppendCompactionUnit:
        split = self.split
        names = {file.file_name for group in groups for file in group}
        index_files = {self.refs[name].index_file for name in names & set(self.refs)}
        vectors = tuple(
            entry
            for entry in split.vectors
            if not self.is_unaware or entry.file_name in index_files
        )
        with_vectors = {item.data_file for entry in vectors for item in entry.ranges or ()}
        live = (file.file_name for file in split.files)
        reason = CompactReason.DELETED_ROWS if index_files else CompactReason.SMALL_FILES
        return AppendCompactionUnit(
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            partition_text=partition_text,
            reason=CompactReason.FULL if self.is_full else reason,
            groups=groups,
            vectors=vectors,
            live_names=frozenset(name for name in live if name in with_vectors),
            remaining_deleted_rows=remaining_deleted_rows,
        )


def select_append_units(plan: CompactionPlan) -> tuple[AppendCompactionUnit, ...]:
    """Return the units of a plan for an append table."""
    return tuple(unit for unit in plan.units if isinstance(unit, AppendCompactionUnit))


def build_deletes(plan: CompactionPlan) -> list[ManifestEntry]:
    """Return the manifest entries that delete the files of all :class:`AppendCompactionUnit`."""
    units = select_append_units(plan)
    return [entry for unit in units for entry in unit.build_entries(FileKind.DELETE, unit.inputs)]


def commit(
    table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units in one snapshot.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit removed a file
    or deleted rows of it.
    """
    if not messages:
        return CompactionResult(plan=plan)
    if plan.vectors:
        messages = [*messages, *_move_deletion_vectors(table, plan, messages)]
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        entries=(*build_deletes(plan), *(entry for each in messages for entry in each.entries)),
        index=tuple(entry for message in messages for entry in message.index),
        guards=plan.guards,
    )
    with discard_files_on_conflict(table, messages):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return build_append_result(plan, messages, snapshot)


def _move_deletion_vectors(
    table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    assert plan.reader is not None
    try:
        return row_ranges.move_deletion_vectors(plan.reader, plan, messages)
    except BaseException:
        discard_messages(table, messages)
        raise


def build_append_result(
    plan: CompactionPlan, messages: Sequence[CommitMessage], snapshot: Snapshot
) -> CompactionResult:
    """Return the result of a plan whose files were replaced by the files of the messages."""
    deleted = [file for unit in plan.units for file in unit.inputs]
    added = [entry.file for message in messages for entry in message.added]
    deleted_rows = sum(unit.remaining_deleted_rows for unit in plan.units)
    return CompactionResult.of(
        plan, snapshot, deleted, added, buckets=plan.buckets, deleted_rows=deleted_rows
    )
