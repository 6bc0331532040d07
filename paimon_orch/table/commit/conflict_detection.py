"""Detects conflicts between a commit and the latest snapshot.

See docs/format/commit.md#conflicts.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.errors import CommitConflictError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    IndexManifestEntry,
)
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.sort.key_order import decode_key_bounds
from paimon_orch.merge.tree.levels import find_overlaps, merge_order_key, sort_by_key_range


@dataclass(frozen=True, slots=True)
class BucketGuard:
    """The state of a bucket that a compaction with deletion vectors was computed from.

    The format has no rule for deletion vectors of bucketed tables. Without this guard, a compaction
    that rewrites files above level 0 and a compaction that deletes rows of these files could both
    succeed, and deleted rows would reappear.
    """

    bucket: PartitionBucket
    files: frozenset[str] | None
    """The files above level 0; None for append tables, whose levels only clustering uses."""
    index_files: frozenset[str]

    @classmethod
    def of(
        cls,
        bucket: PartitionBucket,
        files: Iterable[DataFileMeta] | None,
        index: Iterable[IndexManifestEntry],
    ) -> "BucketGuard":
        """Return the guard of a bucket with some files, of which those of level 0 are ignored."""
        return cls(
            bucket,
            None if files is None else frozenset(x.file_name for x in files if x.level > 0),
            frozenset(entry.file_name for entry in index),
        )


@dataclass(frozen=True, slots=True)
class HashIndexGuard:
    """The hash index file that a writer used to assign rows to a dynamic bucket, if it had one.

    The format has no rule for hash indexes. Without this guard, the later of two writers would
    replace the index of the earlier one, and the index would lack keys of the bucket.
    """

    bucket: PartitionBucket
    file_name: str | None


def check_conflicts(
    kind: CommitKind,
    base: Sequence[ManifestEntry],
    delta: Sequence[ManifestEntry],
) -> list[ManifestEntry]:
    """Return the live entries after ``delta``.

    ``base`` must have all live entries of the buckets that ``delta`` changes, and an entry of each
    partition to which it adds files. Raises
    :class:`CommitConflictError` if ``delta`` does not fit them.
    """
    if kind is not CommitKind.OVERWRITE:
        check_bucket_counts(base, delta)
    live = {entry.identity: entry for entry in base}
    for entry in delta:
        if entry.kind is FileKind.DELETE:
            current = live.pop(entry.identity, None)
            if current is None:
                raise CommitConflictError(
                    f"file {entry.file.file_name} was removed by another commit since this one was "
                    "planned. Nothing was changed; plan and run the step again."
                )
            if current.file.first_row_id != entry.file.first_row_id:
                raise CommitConflictError(
                    f"the rows of file {entry.file.file_name} got new ids from another commit since "
                    "this one was planned. Nothing was changed; plan and run the step again."
                )
        elif entry.identity in live:
            raise CommitConflictError(f"file {entry.file.file_name} is already part of the table")
        else:
            live[entry.identity] = entry
    return list(live.values())


def find_live_entry_per_partition(
    manifests: Iterable[Manifest], partitions: Iterable[bytes]
) -> list[ManifestEntry] | None:
    """Return a live entry of each partition with files, or None if this requires all manifests."""
    # If the newest manifest with entries of a partition adds a file, this file is live.
    entries, missing = list[ManifestEntry](), set(partitions)
    for manifest in manifests:
        row_by_partition: dict[bytes, int | None] = {}
        for row, partition in enumerate(manifest.partitions()):
            if partition in missing and row_by_partition.get(partition) is None:
                row_by_partition[partition] = row if manifest.kinds[row] == FileKind.ADD else None
        if None in row_by_partition.values():
            # The manifest only deletes files of the partition, but the partition may have live files.
            return None
        rows = sorted(row for row in row_by_partition.values() if row is not None)
        entries += manifest.entries(np.array(rows, np.int64))
        missing -= row_by_partition.keys()
        if not missing:
            break
    return entries


def check_bucket_counts(base: Iterable[ManifestEntry], delta: Iterable[ManifestEntry]) -> None:
    """Refuse files whose bucket count differs from that of their partition."""
    counts: dict[bytes, int] = {}
    for entry in (*base, *delta):
        if entry.total_buckets > 0:
            count = counts.setdefault(entry.partition, entry.total_buckets)
            if count != entry.total_buckets:
                raise CommitConflictError(
                    f"a partition has {count} buckets, but a file was written for "
                    f"{entry.total_buckets} buckets. Set the option 'bucket' to {count}, or run "
                    "rescale, which rewrites the partition"
                )


def check_level_0_order(
    schema: TableSchema, live: Iterable[ManifestEntry], delta: Sequence[ManifestEntry]
) -> None:
    """Refuse a compaction of level 0 if a remaining level-0 file precedes one of its inputs.

    Writers that start from the same snapshot assign the same sequence numbers. Before the
    compaction, the row of the compacted file wins among rows with equal numbers. Afterwards, the
    row of the remaining file would win: the compaction would change the value of a key. Files in
    postpone buckets are exempt: each of them is numbered from 0, and their order is kept otherwise.
    So are buckets whose files are written again on level 0, with the same order.
    """
    compacted: dict[PartitionBucket, list[DataFileMeta]] = {}
    for entry in delta:
        is_postponed = entry.bucket == POSTPONE_BUCKET
        if entry.kind is FileKind.DELETE and entry.file.level == 0 and not is_postponed:
            compacted.setdefault(entry.partition_bucket, []).append(entry.file)
    for entry in delta:
        if entry.kind is FileKind.ADD and entry.file.level == 0:
            compacted.pop(entry.partition_bucket, None)
    for entry in live:
        remaining = entry.file
        for file in compacted.get(entry.partition_bucket, ()) if remaining.level == 0 else ():
            if merge_order_key(remaining) < merge_order_key(file) and _may_share_key_and_sequence(
                remaining, file, schema.key_fields
            ):
                raise CommitConflictError(
                    f"file {remaining.file_name} was added to level 0 since this compaction was "
                    "planned, and its rows may have the sequence numbers of newer rows in "
                    f"{file.file_name}. Nothing was changed; plan and run the step again."
                )


def _may_share_key_and_sequence(
    file: DataFileMeta, other: DataFileMeta, key_fields: Sequence[Field]
) -> bool:
    """Return whether two files may hold rows with the same key and sequence number."""
    if file.max_sequence_number < other.min_sequence_number:
        return False
    if other.max_sequence_number < file.min_sequence_number:
        return False
    low, high = decode_key_bounds(file, key_fields)
    other_low, other_high = decode_key_bounds(other, key_fields)
    return low <= other_high and other_low <= high


def check_level_overlaps(
    schema: TableSchema, live: Iterable[ManifestEntry], delta: Sequence[ManifestEntry]
) -> None:
    """Refuse files that overlap others of their level.

    Levels without new files are not checked: files that overlap already must not prevent that
    missing files are removed.
    """
    if schema.typed_options.is_pk_clustering_override:
        return  # these files may overlap; a bucket guard prevents concurrent compactions
    fields = schema.key_fields
    runs: dict[tuple[bytes, int, int], list[ManifestEntry]] = {
        (entry.partition, entry.bucket, entry.file.level): []
        for entry in delta
        if entry.kind is FileKind.ADD and entry.file.level > 0
    }
    for entry in live:
        run = runs.get((entry.partition, entry.bucket, entry.file.level))
        if run is not None:
            run.append(entry)
    for entries in runs.values():
        if len(entries) < 2:
            continue
        ranges = sort_by_key_range((entry.file for entry in entries), fields)
        for file, next_file in find_overlaps(ranges):
            raise CommitConflictError(
                f"files {file.file_name} and {next_file.file_name} would overlap on level "
                f"{file.level}: another commit compacted the same bucket. Plan and run the "
                "step again."
            )


def check_bucket_guards(
    guards: Iterable[BucketGuard],
    base: Iterable[ManifestEntry],
    index: Iterable[IndexManifestEntry],
) -> None:
    """Raise :class:`CommitConflictError` if a guarded bucket changed above level 0."""
    files = defaultdict[PartitionBucket, set[str]](set)
    vectors = defaultdict[PartitionBucket, set[str]](set)
    for entry in base:
        if entry.file.level > 0:
            files[entry.partition_bucket].add(entry.file.file_name)
    for item in index:
        if item.index_type == DELETION_VECTORS_INDEX:
            vectors[item.partition_bucket].add(item.file_name)
    for guard in guards:
        has_other_files = guard.files is not None and files[guard.bucket] != guard.files
        if has_other_files or vectors[guard.bucket] != guard.index_files:
            raise CommitConflictError(
                f"bucket {guard.bucket.bucket} was compacted by another commit since this one was "
                "planned. Nothing was changed; plan and run the step again."
            )


def check_hash_index_guards(
    guards: Iterable[HashIndexGuard], index: Iterable[IndexManifestEntry]
) -> None:
    """Raise :class:`CommitConflictError` if the hash index of a guarded bucket was replaced."""
    names = {e.partition_bucket: e.file_name for e in index if e.index_type == HASH_INDEX}
    for guard in guards:
        if names.get(guard.bucket) != guard.file_name:
            raise CommitConflictError(
                f"dynamic bucket {guard.bucket.bucket} got new keys from another commit since "
                "these rows were assigned to it, so a key could be in two buckets. Nothing was "
                "changed; write the rows again."
            )
