"""What makes a commit collide with the latest snapshot.

See docs/format/commit.md#conflicts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
from paimon_orch.merge.tree.levels import merge_order_key


@dataclass(frozen=True, slots=True)
class BucketGuard:
    """The state of a bucket that a compaction with deletion vectors was computed from.

    The format has no rule for vectors of bucketed tables. Without one, a compaction that rewrites files above level 0
    and another that marks rows in them could both win, and a deleted row would come back.
    """

    bucket: PartitionBucket
    files: frozenset[str]
    index_files: frozenset[str]

    @classmethod
    def of(
        cls,
        bucket: PartitionBucket,
        files: Iterable[tuple[int, str]],
        index: Iterable[IndexManifestEntry],
    ) -> "BucketGuard":
        """Take (level, name) of all files of the bucket; those of level 0 may come and stay."""
        return cls(
            bucket,
            frozenset(name for level, name in files if level > 0),
            frozenset(entry.file_name for entry in index),
        )


@dataclass(frozen=True, slots=True)
class HashIndexGuard:
    """The hash index file of a dynamic bucket that rows were assigned by; None if it had none.

    The format has no rule for it either: the later of two writers would replace the index of the earlier one, and keys
    would lose their bucket.
    """

    bucket: PartitionBucket
    file_name: str | None


def check_conflicts(
    schema: TableSchema,
    kind: CommitKind,
    base: Sequence[ManifestEntry],
    delta: Sequence[ManifestEntry],
) -> list[ManifestEntry]:
    """Return what is live after ``delta``; :class:`CommitConflictError` if it does not fit the live entries ``base``.

    ``base`` holds every live entry of the partitions that ``delta`` touches.
    """
    if kind is not CommitKind.OVERWRITE:
        check_bucket_counts(base, delta)
    live = {entry.identity: entry for entry in base}
    for entry in delta:
        if entry.kind is FileKind.DELETE:
            if live.pop(entry.identity, None) is None:
                raise CommitConflictError(
                    f"file {entry.file.file_name} was removed by another commit since this one was planned. "
                    "Nothing was changed; plan and run the step again."
                )
        elif entry.identity in live:
            raise CommitConflictError(f"file {entry.file.file_name} is already part of the table")
        else:
            live[entry.identity] = entry
    if schema.primary_keys:
        _check_level_overlaps(schema, live.values())
        if kind is CommitKind.COMPACT:
            _check_level_0_order(schema, live.values(), delta)
    return list(live.values())


def find_live_entry_per_partition(
    manifests: Iterable[Manifest], partitions: Iterable[bytes]
) -> list[ManifestEntry] | None:
    """Return a live entry of each of the partitions that has one; None if only all manifests together can tell.

    ``manifests`` come the newest first and are opened no further than needed: what the newest one adds that names a
    partition is live.
    """
    found, left = list[ManifestEntry](), set(partitions)
    for manifest in manifests:
        named: dict[bytes, int | None] = {}
        for row, partition in enumerate(manifest.partitions()):
            if partition in left and named.get(partition) is None:
                named[partition] = row if manifest.kinds[row] == FileKind.ADD else None
        if None in named.values():
            return None  # it only deletes of one: files of the partition may be left, or none
        rows = sorted(row for row in named.values() if row is not None)
        found += manifest.entries(np.array(rows, np.int64))
        left -= named.keys()
        if not left:
            break
    return found


def check_bucket_counts(base: Iterable[ManifestEntry], delta: Iterable[ManifestEntry]) -> None:
    """Refuse files for another number of buckets than their partition has: a key would live in two of them."""
    counts: dict[bytes, int] = {}
    for entry in (*base, *delta):
        if entry.total_buckets > 0:
            known = counts.setdefault(entry.partition, entry.total_buckets)
            if known != entry.total_buckets:
                raise CommitConflictError(
                    f"a partition has {known} buckets, but a file was written for {entry.total_buckets}. "
                    "Set the option 'bucket' to the former, or run rescale, which rewrites the partition"
                )


def _check_level_0_order(
    schema: TableSchema, live: Iterable[ManifestEntry], delta: Sequence[ManifestEntry]
) -> None:
    """Refuse a compaction of level 0 that leaves a file there which was behind one of its inputs.

    Writers that started from one snapshot number their rows alike. Of rows with equal numbers that of the compacted file
    counted, and now that of the file left on level 0 would: the value of a key would change by the compaction. Files that
    wait for a bucket are numbered from 0 each, and later ones are moved later.
    """
    compacted: dict[PartitionBucket, list[DataFileMeta]] = {}
    for entry in delta:
        waits = entry.bucket == POSTPONE_BUCKET
        if entry.kind is FileKind.DELETE and entry.file.level == 0 and not waits:
            compacted.setdefault(entry.partition_bucket, []).append(entry.file)
    for entry in live:
        left = entry.file
        for file in compacted.get(entry.partition_bucket, ()) if left.level == 0 else ():
            if merge_order_key(left) < merge_order_key(file) and _may_share_key_and_sequence(
                left, file, schema.key_fields
            ):
                raise CommitConflictError(
                    f"file {left.file_name} came to level 0 since this one was planned, and its rows may have the "
                    f"sequence numbers of newer ones in {file.file_name}. Nothing was changed; plan and run the step "
                    "again."
                )


def _may_share_key_and_sequence(
    one: DataFileMeta, two: DataFileMeta, key_fields: Sequence[Field]
) -> bool:
    """Tell whether two files may hold rows of one key and one sequence number."""
    if one.max_sequence_number < two.min_sequence_number:
        return False
    if two.max_sequence_number < one.min_sequence_number:
        return False
    low, high = decode_key_bounds(one, key_fields)
    other_low, other_high = decode_key_bounds(two, key_fields)
    return low <= other_high and other_low <= high


def _check_level_overlaps(schema: TableSchema, live: Iterable[ManifestEntry]) -> None:
    if schema.typed_options.is_pk_clustering_override:
        return  # such files may overlap; a guard of the bucket keeps compactions apart
    fields = schema.key_fields
    runs: dict[tuple[bytes, int, int], list[ManifestEntry]] = {}
    for entry in live:
        if entry.file.level > 0:
            runs.setdefault((entry.partition, entry.bucket, entry.file.level), []).append(entry)
    for entries in runs.values():
        if len(entries) < 2:
            continue
        files = (entry.file for entry in entries)
        ranges = sorted(
            ((*decode_key_bounds(file, fields), file) for file in files), key=lambda item: item[0]
        )
        for (_, end, one), (start, _, two) in pairwise(ranges):
            if end >= start:
                raise CommitConflictError(
                    f"files {one.file_name} and {two.file_name} would overlap on level "
                    f"{one.level}: another commit compacted the same bucket. Plan and run the step again."
                )


def check_bucket_guards(
    guards: Iterable[BucketGuard],
    base: Iterable[ManifestEntry],
    index: Iterable[IndexManifestEntry],
) -> None:
    """Raise :class:`CommitConflictError` if a guarded bucket changed above level 0."""
    files: dict[PartitionBucket, set[str]] = {}
    for entry in base:
        if entry.file.level > 0:
            files.setdefault(entry.partition_bucket, set()).add(entry.file.file_name)
    vectors: dict[PartitionBucket, set[str]] = {}
    for item in index:
        if item.index_type == DELETION_VECTORS_INDEX:
            vectors.setdefault(item.partition_bucket, set()).add(item.file_name)
    for guard in guards:
        has_other_files = files.get(guard.bucket, set()) != guard.files
        if has_other_files or vectors.get(guard.bucket, set()) != guard.index_files:
            raise CommitConflictError(
                f"bucket {guard.bucket.bucket} was compacted by another commit since this one was planned. "
                "Nothing was changed; plan and run the step again."
            )


def check_hash_index_guards(
    guards: Iterable[HashIndexGuard], index: Iterable[IndexManifestEntry]
) -> None:
    """Raise :class:`CommitConflictError` if the hash index of a guarded bucket is another one by now."""
    names = {e.partition_bucket: e.file_name for e in index if e.index_type == HASH_INDEX}
    for guard in guards:
        if names.get(guard.bucket) != guard.file_name:
            raise CommitConflictError(
                f"dynamic bucket {guard.bucket.bucket} got new keys from another commit since these rows were assigned to "
                "it, so a key could land in two buckets. Nothing was changed; write the rows again."
            )
