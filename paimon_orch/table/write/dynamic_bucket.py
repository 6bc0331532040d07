"""Dynamic buckets: each key keeps the bucket of its first assignment.

The hash index file of a bucket lists the hashes of its keys. A writer loads the indexes of its
partitions, assigns new hashes to buckets with free capacity, and rewrites the indexes of changed
buckets. Concurrent writers could assign the same key to different buckets, so a commit conflicts if
another commit has replaced the index of one of its buckets.

See docs/format/dynamic-buckets.md#hash-index.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, InputError, UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.uncommitted_files import UncommittedFiles
from paimon_orch.format.arrays import Int16Array, Int32Array
from paimon_orch.format.bucket.bucket_function import hash_rows
from paimon_orch.format.bucket.hash_index import decode_hash_index, encode_hash_index
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import HASH_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileKind, ManifestEntry
from paimon_orch.format.options.core_options import (
    DYNAMIC_BUCKET_MAX_BUCKETS,
    DYNAMIC_BUCKET_TARGET_ROW_NUM,
)
from paimon_orch.format.paths import FileNameGenerator
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.commit.conflict_detection import HashIndexGuard

MAX_BUCKETS = 32767


def has_dynamic_buckets(schema: TableSchema) -> bool:
    """Return whether buckets are dynamic.

    Raises :class:`UnsupportedError` if the primary key lacks a partition column.
    """
    if not schema.is_bucket_dynamic:
        return False
    if schema.cross_partition:
        raise UnsupportedError(
            "writing tables with dynamic buckets ('bucket' = -1) whose primary key lacks a "
            "partition column is not supported: a key could be in any partition"
        )
    return True


def compute_key_hashes(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> Int32Array:
    """Return the hash of each row's primary key without the partition columns."""
    fields = schema.key_fields
    columns = [rows.column(key.name) for key in fields]
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return hash_rows(arrays, [key.type for key in fields])


class BucketAssigner:
    """Assigns the keys of one partition to buckets.

    Rows are assigned in order. A known hash keeps its bucket. A new hash is assigned to the first
    bucket with fewer than ``target`` hashes, or to a new bucket. If all of ``max_buckets`` buckets
    are full, the value of a new hash determines its bucket, so that a repeated task assigns the
    same buckets.
    """

    def __init__(
        self, hashes_by_bucket: Mapping[int, Int32Array], target: int, max_buckets: int = -1
    ) -> None:
        if target < 1:
            raise InputError(
                f"option 'dynamic-bucket.target-row-num' = {target} must be at least 1"
            )
        self._target, self._max_buckets = target, MAX_BUCKETS if max_buckets < 0 else max_buckets
        self._counts = {bucket: len(hashes) for bucket, hashes in hashes_by_bucket.items()}
        hashes = np.concatenate([np.empty(0, np.int32), *hashes_by_bucket.values()])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._buckets = np.repeat(
            np.array([*hashes_by_bucket], np.int16),
            [len(part) for part in hashes_by_bucket.values()],
        )[order]
        self._changed: set[int] = set()

    @property
    def changed(self) -> dict[int, Int32Array]:
        """Return all hashes of each bucket that has new hashes."""
        return {b: self._hashes[self._buckets == b] for b in sorted(self._changed)}

    def assign(self, hashes: Int32Array) -> Int16Array:
        """Return the bucket of each row, and record new hashes."""
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        positions = np.searchsorted(self._hashes, distinct)
        exists = positions < len(self._hashes)
        exists[exists] = self._hashes[positions[exists]] == distinct[exists]
        buckets = np.empty(len(distinct), np.int16)
        buckets[exists] = self._buckets[positions[exists]]
        new = np.flatnonzero(~exists)
        if len(new):
            in_order = new[np.argsort(first[new])]
            buckets[in_order] = self._assign_new_hashes(distinct[in_order])
            self._hashes = np.insert(self._hashes, positions[new], distinct[new])
            self._buckets = np.insert(self._buckets, positions[new], buckets[new])
        return buckets[inverse]

    def _assign_new_hashes(self, hashes: Int32Array) -> Int16Array:
        """Return buckets for new hashes: existing buckets with free capacity, then new buckets."""
        result = np.empty(len(hashes), np.int16)
        start = 0
        for bucket in self._list_free_buckets():
            count = min(self._target - self._counts.get(bucket, 0), len(hashes) - start)
            result[start : start + count] = bucket
            self._count(bucket, count)
            start += count
            if start == len(hashes):
                return result
        return np.concatenate([result[:start], self._spread_over_full_buckets(hashes[start:])])

    def _list_free_buckets(self) -> Iterable[int]:
        existing = dict.fromkeys(sorted(self._counts))
        yield from (bucket for bucket in existing if self._counts[bucket] < self._target)
        yield from (bucket for bucket in range(self._max_buckets) if bucket not in existing)

    def _spread_over_full_buckets(self, hashes: Int32Array) -> Int16Array:
        existing = np.array(sorted(self._counts), np.int16)
        if self._max_buckets == MAX_BUCKETS or not len(existing):
            raise InputError(
                f"a partition has {len(existing)} buckets of {self._target} keys, the maximum "
                "number of buckets; raise the option 'dynamic-bucket.target-row-num'"
            )
        result: Int16Array = existing[np.mod(hashes.astype(np.int64), len(existing))]
        for bucket, count in zip(*np.unique(result, return_counts=True), strict=True):
            self._count(int(bucket), int(count))
        return result

    def _count(self, bucket: int, added: int) -> None:
        self._counts[bucket] = self._counts.get(bucket, 0) + added
        self._changed.add(bucket)


@dataclass(frozen=True, slots=True)
class HashIndex:
    """The hash indexes of a snapshot; has only metadata, and is sent to tasks."""

    reader: FileReader
    files: Mapping[PartitionBucket, IndexManifestEntry]
    """The hash index file of each bucket."""

    unindexed_files: Mapping[PartitionBucket, tuple[DataFileMeta, ...]]
    """The data files of buckets without an index file; the writer reads their keys."""

    def guards(
        self, entries: Iterable[ManifestEntry], index: Iterable[IndexManifestEntry]
    ) -> tuple[HashIndexGuard, ...]:
        """Return the guards of a commit of new files and indexes.

        The guards cover the buckets of new files, and all buckets of partitions with new keys,
        because an overwrite may have added the same keys.
        """
        grown = {item.partition for item in index}
        written = dict.fromkeys(entry.partition_bucket for entry in entries)
        buckets = (*self.files, *self.unindexed_files)
        written |= {bucket: None for bucket in buckets if bucket.partition in grown}
        names = {bucket: entry.file_name for bucket, entry in self.files.items()}
        return tuple(HashIndexGuard(bucket, names.get(bucket)) for bucket in written)

    def load_assigner(self, partition: bytes) -> BucketAssigner:
        """Load the index of one partition."""
        hashes_by_bucket, used = dict[int, Int32Array](), set[str]()
        for bucket, entry in self.files.items():
            if bucket.partition != partition:
                continue
            path = self.path(entry)
            if path in used:  # any number of buckets could share a few bytes
                raise CorruptFileError(path, "has the hashes of two buckets")
            used.add(path)
            hashes_by_bucket[bucket.bucket] = decode_hash_index(
                self.reader.io.read_bytes(path), path
            )
        for bucket in self.unindexed_files:
            if bucket.partition == partition:
                hashes_by_bucket[bucket.bucket] = self.read_keys(bucket)
        for number in hashes_by_bucket:
            if not 0 <= number <= MAX_BUCKETS:
                raise CorruptFileError(
                    self.reader.paths.root,
                    f"a file belongs to the bucket {number}, but dynamic buckets have "
                    f"numbers from 0 to {MAX_BUCKETS}; overwrite the partition with its rows",
                )
        options = self.reader.schema.typed_options
        target = options.get(DYNAMIC_BUCKET_TARGET_ROW_NUM)
        return BucketAssigner(hashes_by_bucket, target, options.get(DYNAMIC_BUCKET_MAX_BUCKETS))

    def read_keys(self, bucket: PartitionBucket) -> Int32Array:
        """Return the distinct hashes of the keys in a bucket without an index file."""
        schema = self.reader.schema
        parts = [
            compute_key_hashes(batch, schema)
            for file in self.unindexed_files[bucket]
            for batch in self.reader.read(BucketFile(*bucket, file), schema.key_fields)
        ]
        return np.unique(np.concatenate([np.empty(0, np.int32), *parts]))

    def path(self, entry: IndexManifestEntry) -> str:
        """Return the path of an index file."""
        return self.reader.paths.index_file(self.reader.schema, entry)


def write_hash_index(
    reader: FileReader,
    bucket: PartitionBucket,
    hashes: Int32Array,
    written: list[IndexManifestEntry],
) -> None:
    """Write the index file of a bucket, and add its ADD entry to ``written`` before."""
    data, name = encode_hash_index(hashes), FileNameGenerator().next("index-")
    place = reader.paths.new_index_file(reader.schema, *bucket, name)
    entry = IndexManifestEntry(
        kind=FileKind.ADD,
        partition=bucket.partition,
        bucket=bucket.bucket,
        index_type=HASH_INDEX,
        file_name=name,
        file_size=len(data),
        row_count=len(hashes),
        external_path=place.external,
    )
    written.append(entry)
    with reader.io.open_output(place.path) as file:
        file.write(data)


@dataclass(slots=True)
class HashIndexWriter(UncommittedFiles):
    """Assigns the rows of one job or task, which must be the only writer of its partitions."""

    index: HashIndex
    _assigners: dict[bytes, BucketAssigner] = field(default_factory=dict)
    _written: list[IndexManifestEntry] = field(default_factory=list)

    def assign(self, partition: bytes, rows: pa.Table) -> Int16Array:
        """Return the bucket of each row of one partition."""
        if partition not in self._assigners:
            self._assigners[partition] = self.index.load_assigner(partition)
        return self._assigners[partition].assign(compute_key_hashes(rows, self.index.reader.schema))

    def close(self) -> list[IndexManifestEntry]:
        """Write the index of each bucket with new keys; return an ADD entry for each index."""
        for partition, assigner in self._assigners.items():
            for bucket, hashes in assigner.changed.items():
                bucket_id = PartitionBucket(partition, bucket)
                write_hash_index(self.index.reader, bucket_id, hashes, self._written)
        return self._written

    def delete_files(self) -> None:
        """Delete all written files."""
        for entry in self._written:
            self.index.reader.io.delete(self.index.path(entry))
