"""Compacts primary-key tables, bucket by bucket.

See docs/format/universal-compaction.md and docs/format/lookup-compaction.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.arrays import Indices
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import format_count
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind
from paimon_orch.format.options.core_options import CHAIN_TABLE_ENABLED
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_compaction import BucketCompaction, CompactionTask
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.compact.compaction_splitter import split_task
from paimon_orch.merge.compact.pk_clustering_compaction import (
    CLUSTERED_LEVEL,
    ClusteredCompaction,
    plan_clustered_compaction,
)
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.compact_strategy import (
    get_delete_ratio,
    plan_full_compaction,
    plan_minor_compaction,
)
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.common.bucket_scan import BucketScan, Judgment
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionUnit,
    CompactRequest,
    order_by_size,
)
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.steps.expiration.expire_partitions import exclude_expired_partitions
from paimon_orch.steps.inspection.unmerged_levels import find_unmerged_levels
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import open_reader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage

_UnitResult = tuple["PrimaryKeyCompactionUnit", CommitMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKeyCompactionUnit(CompactionUnit):
    """The work in one bucket of a primary-key table, or in a part of a large bucket."""

    task: CompactionTask

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files to compact."""
        return self.task.inputs

    @property
    def output_level(self) -> int:
        """Return the level of the new files."""
        return self.task.output_level

    def run(self, reader: FileReader) -> bytes:
        """Compact and return an encoded :class:`CommitMessage`; may run repeatedly."""
        is_clustered = reader.schema.typed_options.is_pk_clustering_override
        compaction = ClusteredCompaction if is_clustered else BucketCompaction
        outcome = compaction(reader, self.task).run()
        return CommitMessage(
            entries=(
                *self.build_entries(FileKind.DELETE, outcome.before),
                *self.build_entries(FileKind.ADD, outcome.after),
            ),
            index=() if outcome.index is None else (outcome.index,),
            changelog=self.build_entries(FileKind.ADD, outcome.changelog),
            new_deletion_vectors=outcome.new_deletion_vectors,
        ).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKeyJudge:
    """Chooses the buckets that may have work, and counts all buckets that are not expired."""

    identifier: str
    strategy: CompactionStrategy
    now: datetime
    current_time: datetime
    """``now`` as the local wall clock time of the caller."""
    merges_levels: bool = False
    """Whether buckets with several sorted runs are chosen, regardless of the table's options."""

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        """Judge some buckets."""
        in_buckets = buckets.take(np.flatnonzero(buckets.groups.buckets >= 0))
        current = exclude_expired_partitions(self.identifier, in_buckets, self.current_time)
        current.check_levels()
        if self.merges_levels:
            candidates = np.flatnonzero(current.levels.sorted_runs > 1)
        else:
            candidates = _find_candidates(current, self.strategy, self.now)
        return Judgment(chosen=current.take(candidates), values={"buckets": len(current)})


def build_judge(scan: BucketScan, request: CompactRequest) -> PrimaryKeyJudge:
    """Return the judge of a plan."""
    return PrimaryKeyJudge(
        identifier=scan.state.identifier,
        strategy=request.chosen_strategy,
        now=scan.now,
        current_time=scan.now.astimezone().replace(tzinfo=None),
        merges_levels=request.up_to_level is not None,
    )


def plan(state: TableState, request: CompactRequest, scan: BucketScan | None) -> CompactionPlan:
    """Plan a compaction of the latest snapshot of a primary-key table."""
    state.check_step(StepKind.COMPACT)
    schema = state.schema
    options = schema.typed_options
    check_compactable(schema)
    if scan is None:
        return CompactionPlan(request=request, state=state)
    judged = scan.judge(build_judge(scan, request))
    _check_merged_levels(state, judged.chosen, request.chosen_strategy)
    reader = open_reader(state, schema, judged.chosen)
    units, guards = list[PrimaryKeyCompactionUnit](), list[BucketGuard]()
    needs_guards = options.has_deletion_vectors or options.is_pk_clustering_override
    planned = 0
    for split in scan.build_splits(judged.chosen):
        unit = plan_bucket_unit(
            reader, split, request.chosen_strategy, scan.now, up_to_level=request.up_to_level
        )
        if unit is not None:
            units += _split_unit(reader, unit)
            planned += 1
            if needs_guards or split.vectors:
                guards.append(BucketGuard.of(split.partition_bucket, split.files, split.vectors))
    return CompactionPlan(
        request=request,
        state=state,
        snapshot_id=scan.snapshot.id,
        reader=reader,
        units=tuple(order_by_size(units)),
        guards=tuple(guards),
        skipped_buckets=judged.sum("buckets") - planned,
    )


def _check_merged_levels(
    state: TableState, buckets: LiveBuckets, strategy: CompactionStrategy
) -> None:
    """Refuse to compact rows of several levels that readers do not merge any more.

    The compaction would drop the values of the higher levels, or leave older rows that a repair
    does not find. A full compaction is right if the newest or the first row of a key counts.
    """
    unmerged = find_unmerged_levels(state, buckets)
    if not len(unmerged):
        return
    engine = create_merge_engine(state.schema)
    if strategy == "full" and (engine.is_deduplicate or engine.is_first_row):
        return
    raise UnsupportedError(
        f"{state.identifier}: {format_count(len(unmerged), 'bucket')} with overlapping files on "
        "several levels, which were merged by readers under the options of older schemas and are "
        "not merged now. A compaction would drop values or leave several rows of a key; run "
        f"{state.label.format_command('repair')} first. Nothing was changed"
    )


def check_compactable(schema: TableSchema) -> None:
    """Raise an error for tables whose rows cannot be merged with their options."""
    create_merge_engine(schema)


def select_buckets(
    buckets: LiveBuckets, strategy: CompactionStrategy, now: datetime
) -> LiveBuckets:
    """Return the buckets that may have work, without postponed rows."""
    in_buckets = buckets.take(np.flatnonzero(buckets.groups.buckets >= 0))
    return in_buckets.take(_find_candidates(in_buckets, strategy, now))


def _find_candidates(buckets: LiveBuckets, strategy: CompactionStrategy, now: datetime) -> Indices:
    options, groups = buckets.schema.typed_options, buckets.groups
    may_compact = buckets.levels.may_compact(is_full=strategy == "full", now=now)
    ratio = 0.0 if strategy == "full" else get_delete_ratio(options)
    for number, entries in buckets.iterate_vectors():
        if not may_compact[number]:
            [rows] = groups.take(np.array([number])).split()
            limit = ratio * int(groups.files.row_counts[rows].min())
            counts = [item.cardinality for entry in entries for item in entry.ranges or ()]
            may_compact[number] = any(count is None or count > limit for count in counts)
    return np.flatnonzero(may_compact)


def plan_units(
    reader: FileReader, scan: BucketScan, chosen: LiveBuckets, strategy: CompactionStrategy
) -> list[PrimaryKeyCompactionUnit]:
    """Return the units of whole buckets; reads only metadata."""
    splits = scan.build_splits(chosen)
    units = (plan_bucket_unit(reader, split, strategy, scan.now) for split in splits)
    return [unit for unit in units if unit is not None]


def plan_bucket_unit(
    reader: FileReader,
    split: BucketSplit,
    strategy: CompactionStrategy,
    now: datetime | None = None,
    *,
    up_to_level: int | None = None,
) -> PrimaryKeyCompactionUnit | None:
    """Return the unit of a whole bucket, or None if there is no work; reads only metadata."""
    if reader.schema.typed_options.is_pk_clustering_override:
        return _plan_clustered_unit(reader, split, strategy)
    now, options = now or datetime.now().astimezone(), reader.schema.typed_options
    runs = build_bucket_runs(split.files, reader.schema)
    num_levels = max(options.num_levels, 1 + max(file.level for file in split.files))
    if strategy == "full":
        selection, rewritten = plan_full_compaction(
            reader, runs, vectors=split.vectors, num_levels=num_levels, now=now
        )
    else:
        selection, rewritten = plan_minor_compaction(
            options,
            runs,
            vectors=split.vectors,
            num_levels=num_levels,
            now=now,
            up_to_level=up_to_level,
        )
    files = tuple(file for run in runs[: selection.count] for file in run.files)
    higher_level_files = tuple(file for run in runs[selection.count :] for file in run.files)
    if not files and not rewritten:
        return None
    task = CompactionTask(
        partition_bucket=split.partition_bucket,
        files=files,
        higher_level_files=higher_level_files,
        output_level=selection.output_level,
        max_level=num_levels - 1,
        # the delta partitions of chain tables delete rows of other partitions
        drop_delete=not options.get(CHAIN_TABLE_ENABLED)
        and (not higher_level_files or not files or options.has_deletion_vectors),
        vectors=split.vectors,
        standalone_files=rewritten,
        now=int(now.timestamp()),
    )
    return _build_unit(reader, split, selection.reason, task)


def _plan_clustered_unit(
    reader: FileReader, split: BucketSplit, strategy: CompactionStrategy
) -> PrimaryKeyCompactionUnit | None:
    """Return the unit of a bucket whose files are sorted by ``clustering.columns``.

    Returns None if there is no work.
    """
    selection = plan_clustered_compaction(
        reader, split.files, split.vectors, full=strategy == "full"
    )
    if selection is None:
        return None
    groups, reason = selection
    merged = tuple(file for group in groups for file in group)
    task = CompactionTask(
        partition_bucket=split.partition_bucket,
        files=tuple(file for file in split.files if file.level == 0),
        higher_level_files=tuple(
            file for file in split.files if file.level > 0 and file not in merged
        ),
        output_level=CLUSTERED_LEVEL,
        max_level=CLUSTERED_LEVEL,
        drop_delete=True,
        vectors=split.vectors,
        standalone_files=merged,
        groups=tuple(groups),
    )
    return _build_unit(reader, split, reason, task)


def _build_unit(
    reader: FileReader, split: BucketSplit, reason: CompactReason, task: CompactionTask
) -> PrimaryKeyCompactionUnit:
    return PrimaryKeyCompactionUnit(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        partition_text=format_partition(split.partition, reader.schema),
        reason=reason,
        task=task,
    )


def _split_unit(
    reader: FileReader, unit: PrimaryKeyCompactionUnit
) -> list[PrimaryKeyCompactionUnit]:
    """Split the unit of a large bucket, so that it can use several cores."""
    options = reader.schema.typed_options
    if options.is_pk_clustering_override:
        return [unit]
    keys = reader.schema.key_fields
    part_bytes = max(1, options.target_file_size(primary_key=True) // 2)

    def read_lower_bounds(file: DataFileMeta) -> Sequence[object]:
        source = BucketFile(*unit.partition_bucket, file)
        return [group.bounds.min for group in reader.row_groups(source, keys[0])]

    parts = split_task(unit.task, keys, part_bytes, read_lower_bounds)
    return [replace(unit, task=part) for part in parts]


def commit(
    table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units.

    Raises :class:`CommitConflictError` if another commit changed the buckets.
    """
    by_bucket = _merge_messages_by_bucket(plan, messages)
    written = by_bucket.values()
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        entries=tuple(entry for message in written for entry in message.entries),
        changelog=tuple(entry for message in written for entry in message.changelog),
        index=tuple(entry for message in written for entry in message.index),
        guards=plan.guards,
    )
    if not changes.entries and not changes.index:
        return CompactionResult(plan=plan)
    with discard_files_on_conflict(table, written):
        snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return _build_result(plan, by_bucket, snapshot)


def select_primary_key_units(plan: CompactionPlan) -> list[PrimaryKeyCompactionUnit]:
    """Return the units of a plan for a primary-key table."""
    return [unit for unit in plan.units if isinstance(unit, PrimaryKeyCompactionUnit)]


def _merge_messages_by_bucket(
    plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> dict[PartitionBucket, CommitMessage]:
    """Return one message per bucket; write the index files of buckets with several units."""
    by_bucket: dict[PartitionBucket, list[_UnitResult]] = {}
    for unit, message in zip(select_primary_key_units(plan), messages, strict=True):
        by_bucket.setdefault(unit.partition_bucket, []).append((unit, message))
    return {
        bucket_id: parts[0][1] if len(parts) == 1 else _merge_messages(plan, parts)
        for bucket_id, parts in by_bucket.items()
    }


def _merge_messages(plan: CompactionPlan, parts: Sequence[_UnitResult]) -> CommitMessage:
    reader, task = plan.reader, parts[0][0].task
    assert reader is not None
    # Several parts of a section may have read the same file.
    entries = tuple(dict.fromkeys(entry for _, message in parts for entry in message.entries))
    changelog = tuple(entry for _, message in parts for entry in message.changelog)
    refusal = next((message.refusal for _, message in parts if message.refusal), None)
    merged = CommitMessage(entries=entries, changelog=changelog, refusal=refusal)
    if not reader.schema.typed_options.has_deletion_vectors and not task.vectors:
        return merged
    vectors = BucketDeletionVectors(
        read_deletion_vectors(reader.io, reader.paths, reader.schema, task.vectors)
    )
    for _, message in parts:
        vectors.add(message.new_deletion_vectors)
    for name in merged.replaced_file_names:
        vectors.drop(name)
    index = vectors.write(reader.io, reader.paths, reader.schema, *task.partition_bucket)
    return replace(merged, index=() if index is None else (index,))


def _build_result(
    plan: CompactionPlan, messages: Mapping[PartitionBucket, CommitMessage], snapshot: Snapshot
) -> CompactionResult:
    deleted = [entry.file for message in messages.values() for entry in message.deleted]
    added = [entry.file for message in messages.values() for entry in message.added]
    deleted_rows = _count_deleted_rows(plan, messages)
    return CompactionResult.of(
        plan, snapshot, deleted, added, buckets=len(messages), deleted_rows=deleted_rows
    )


def _count_deleted_rows(
    plan: CompactionPlan, messages: Mapping[PartitionBucket, CommitMessage]
) -> int:
    units = select_primary_key_units(plan)
    unchanged = {unit.partition_bucket: unit.task.vectors for unit in units}
    return sum(
        item.cardinality or 0
        for bucket_id, message in messages.items()
        for entry in message.index or unchanged[bucket_id]
        for item in entry.ranges or ()
    )
