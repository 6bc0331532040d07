"""Compaction of primary-key tables: what their merge trees need, bucket by bucket.

See docs/format/universal-compaction.md and docs/format/lookup-compaction.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_compaction import BucketCompaction, CompactionTask
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.compact.clustered_compaction import (
    CLUSTERED_LEVEL,
    ClusteredCompaction,
    plan_clustered_compaction,
)
from paimon_orch.merge.compact.splitter import split_task
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.tree.compact_strategy import plan_full_compaction, plan_minor_compaction
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.common.retry import discard_files_on_conflict
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionStrategy,
    CompactionUnit,
    PartitionSpecs,
    plan_splits,
)
from paimon_orch.steps.expiration.expire_partitions import exclude_expired_partitions
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.scan.scan_planner import BucketSplit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKeyCompactionUnit(CompactionUnit):
    """The work in one bucket of a primary-key table, or in a part of a large one."""

    task: CompactionTask

    @property
    def inputs(self) -> tuple[DataFileMeta, ...]:
        """Return the files to compact."""
        return self.task.inputs

    @property
    def output_level(self) -> int:
        """Return the level that the result goes to."""
        return self.task.output_level

    def run(self) -> bytes:
        """Compact and return a :class:`CommitMessage`, encoded. Running it twice is harmless."""
        clusters = self.reader.schema.typed_options.is_pk_clustering_override
        compaction = ClusteredCompaction if clusters else BucketCompaction
        outcome = compaction(self.reader, self.task).run()
        return CommitMessage(
            entries=(
                *self._entries(FileKind.DELETE, outcome.before),
                *self._entries(FileKind.ADD, outcome.after),
            ),
            index=() if outcome.index is None else (outcome.index,),
            changelog=self._entries(FileKind.ADD, outcome.changelog),
            marks=outcome.marks,
        ).encode()

    def _entries(self, kind: FileKind, files: Sequence[DataFileMeta]) -> tuple[ManifestEntry, ...]:
        return tuple(
            ManifestEntry(
                kind=kind,
                partition=self.partition,
                bucket=self.bucket,
                total_buckets=self.total_buckets,
                file=file,
            )
            for file in files
        )


def plan(
    table: Table,
    *,
    partitions: PartitionSpecs | None,
    where: str | None,
    strategy: CompactionStrategy,
    now: datetime | None,
) -> CompactionPlan:
    """Choose what to compact in the newest snapshot; see :func:`paimon_orch.steps.compaction.compact.plan`."""
    table.stores.check_step(StepKind.COMPACT)
    schema, options = table.schema, table.schema.typed_options
    create_merge_engine(schema)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return CompactionPlan(None)
    splits = [
        s
        for s in plan_splits(table, schema, snapshot=snapshot, partitions=partitions, where=where)
        if s.bucket >= 0
    ]
    splits = exclude_expired_partitions(table, splits, now)
    schemas = table.stores.schemas.get_all(
        file.schema_id for split in splits for file in split.files
    )
    reader = FileReader(table.io, table.paths, schema, schemas)
    units, guards = list[PrimaryKeyCompactionUnit](), []
    for split in splits:
        unit = plan_bucket_unit(reader, split, strategy, now)
        if unit is not None:
            units += _split_unit(unit)
            guards.append(_build_guard(split))
    return CompactionPlan(
        snapshot.id,
        tuple(sorted(units, key=lambda unit: -unit.bytes)),  # the largest first
        tuple(guards) if options.has_deletion_vectors or options.is_pk_clustering_override else (),
        len(splits) - len(guards),
    )


def _build_guard(split: BucketSplit) -> BucketGuard:
    files = [(file.level, file.file_name) for file in split.files]
    return BucketGuard.of(split.partition_bucket, files, split.vectors)


def plan_bucket_unit(
    reader: FileReader,
    split: BucketSplit,
    strategy: CompactionStrategy,
    now: datetime | None = None,
) -> PrimaryKeyCompactionUnit | None:
    """Return the work in a bucket, whole, or None; no data file is opened."""
    now, options = now or datetime.now().astimezone(), reader.schema.typed_options
    if options.is_pk_clustering_override:
        return _plan_clustered_unit(reader, split, strategy)
    runs = build_bucket_runs(split.files, reader.schema)
    num_levels = max(options.num_levels, 1 + max(file.level for file in split.files))
    if strategy == "full":
        found, alone = plan_full_compaction(
            reader, runs, vectors=split.vectors, num_levels=num_levels, now=now
        )
    else:
        found, alone = plan_minor_compaction(
            options, runs, vectors=split.vectors, num_levels=num_levels, now=now
        )
    files = tuple(file for run in runs[: found.count] for file in run.files)
    above = tuple(file for run in runs[found.count :] for file in run.files)
    if not files and not alone:
        return None
    task = CompactionTask(
        partition=split.partition,
        bucket=split.bucket,
        files=files,
        above=above,
        output_level=found.output_level,
        max_level=num_levels - 1,
        drop_delete=not above or not files or options.has_deletion_vectors,
        vectors=split.vectors,
        alone=alone,
        now=int(now.timestamp()),
    )
    return PrimaryKeyCompactionUnit(
        reader=reader,
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        reason=found.reason,
        task=task,
    )


def _plan_clustered_unit(
    reader: FileReader, split: BucketSplit, strategy: CompactionStrategy
) -> PrimaryKeyCompactionUnit | None:
    """Return the work in a bucket whose files are sorted by ``clustering.columns``, or None."""
    chosen = plan_clustered_compaction(reader, split.files, split.vectors, full=strategy == "full")
    if chosen is None:
        return None
    groups, reason = chosen
    merged = tuple(file for group in groups for file in group)
    task = CompactionTask(
        partition=split.partition,
        bucket=split.bucket,
        files=tuple(file for file in split.files if file.level == 0),
        above=tuple(file for file in split.files if file.level > 0 and file not in merged),
        output_level=CLUSTERED_LEVEL,
        max_level=CLUSTERED_LEVEL,
        drop_delete=True,
        vectors=split.vectors,
        alone=merged,
        groups=tuple(groups),
    )
    return PrimaryKeyCompactionUnit(
        reader=reader,
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        reason=reason,
        task=task,
    )


def _split_unit(unit: PrimaryKeyCompactionUnit) -> list[PrimaryKeyCompactionUnit]:
    """Split a large bucket, so that it can use more than one core."""
    if unit.reader.schema.typed_options.is_pk_clustering_override:
        return [unit]
    reader, keys = unit.reader, unit.reader.schema.key_fields
    part_bytes = max(1, reader.schema.typed_options.target_file_size(primary_key=True) // 2)

    def starts(file: DataFileMeta) -> Sequence[object]:
        groups = reader.row_groups(BucketFile(unit.partition, unit.bucket, file), keys[0])
        return [group.bounds.min for group in groups]

    return [replace(unit, task=part) for part in split_task(unit.task, keys, part_bytes, starts)]


def commit(
    table: Table, planned: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units in one snapshot; see :func:`paimon_orch.steps.compaction.compact.commit`."""
    buckets = _merge_messages_by_bucket(planned, messages)
    entries = tuple(entry for message in buckets.values() for entry in message.entries)
    index = tuple(item for message in buckets.values() for item in message.index)
    if not entries and not index:
        return CompactionResult(plan=planned)
    changelog = tuple(entry for message in buckets.values() for entry in message.changelog)
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        entries=entries,
        changelog=changelog,
        index=index,
        guards=planned.guards,
    )
    with discard_files_on_conflict(table, buckets.values()):
        snapshot = table.stores.new_commit(StepKind.COMPACT).commit(changes)
    return _build_result(planned, buckets, snapshot)


def _merge_messages_by_bucket(
    planned: CompactionPlan, messages: Sequence[CommitMessage]
) -> dict[PartitionBucket, CommitMessage]:
    """Return one message a bucket; where its work was split, its index file is written here."""
    found: dict[PartitionBucket, list[tuple[PrimaryKeyCompactionUnit, CommitMessage]]] = {}
    for unit, message in zip(select_primary_key_units(planned), messages, strict=True):
        found.setdefault(PartitionBucket(unit.partition, unit.bucket), []).append((unit, message))
    return {
        at: parts[0][1] if len(parts) == 1 else _merge_messages(parts)
        for at, parts in found.items()
    }


def select_primary_key_units(planned: CompactionPlan) -> list[PrimaryKeyCompactionUnit]:
    """Return the units of a plan for a primary-key table."""
    return [unit for unit in planned.units if isinstance(unit, PrimaryKeyCompactionUnit)]


def _merge_messages(
    parts: Sequence[tuple[PrimaryKeyCompactionUnit, CommitMessage]],
) -> CommitMessage:
    reader, task = parts[0][0].reader, parts[0][0].task
    # slices of one section may have read the same file
    entries = tuple(dict.fromkeys(entry for _, message in parts for entry in message.entries))
    changelog = tuple(entry for _, message in parts for entry in message.changelog)
    refusal = next((message.refusal for _, message in parts if message.refusal), None)
    joined = CommitMessage(entries=entries, changelog=changelog, refusal=refusal)
    if not reader.schema.typed_options.has_deletion_vectors:
        return joined
    vectors = BucketDeletionVectors(
        read_deletion_vectors(reader.io, reader.paths, reader.schema, task.vectors)
    )
    for _, message in parts:
        vectors.add(message.marks)
    for name in joined.replaced_file_names:
        vectors.drop(name)
    index = vectors.write(reader.io, reader.paths, reader.schema, task.partition, task.bucket)
    return replace(joined, index=() if index is None else (index,))


def _build_result(
    planned: CompactionPlan, messages: Mapping[PartitionBucket, CommitMessage], snapshot: Snapshot
) -> CompactionResult:
    vectors = {
        PartitionBucket(unit.partition, unit.bucket): unit.task.vectors
        for unit in select_primary_key_units(planned)
    }
    hidden = sum(
        r.cardinality or 0
        for at, message in messages.items()
        for item in message.index or vectors[at]
        for r in item.ranges or ()
    )
    deleted = [entry.file for message in messages.values() for entry in message.deleted]
    added = [entry.file for message in messages.values() for entry in message.added]
    moved = {file.file_name for file in deleted} & {file.file_name for file in added}
    written = [file for file in added if file.file_name not in moved]
    return CompactionResult(
        plan=planned,
        snapshot_id=snapshot.id,
        buckets=len(messages),
        files_before=len(deleted),
        files_after=len(added),
        bytes_read=sum(file.file_size for file in deleted if file.file_name not in moved),
        bytes_written=sum(file.file_size for file in written),
        rows_written=sum(file.row_count for file in written),
        deleted_rows=hidden,
        level0_before=sum(file.level == 0 for file in deleted),
        level0_after=sum(file.level == 0 for file in added),
    )
