"""The live files of a snapshot by bucket, as columns, with the index files of deletion vectors.

Steps choose buckets with these columns and build splits, which have objects, only for them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.live_files import BucketGroups
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.merge.tree.bucket_levels import BucketLevels
from paimon_orch.merge.tree.levels import build_sorted_runs
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.bucket_split import BucketSplit

_MAX_CHECKED_FILES = 20_000  # files whose key bounds are in memory together


def group_vectors(
    index: Iterable[IndexManifestEntry],
) -> Mapping[PartitionBucket, Sequence[IndexManifestEntry]]:
    """Return the index files of deletion vectors by bucket."""
    vectors = defaultdict[PartitionBucket, list[IndexManifestEntry]](list)
    for entry in index:
        if entry.index_type == DELETION_VECTORS_INDEX:
            vectors[entry.partition_bucket].append(entry)
    return vectors


@dataclass(frozen=True)
class LiveBuckets:
    """The buckets of some partitions; arrays have one item per bucket."""

    snapshot: Snapshot
    manifests: ManifestReader
    schema: TableSchema
    groups: BucketGroups
    vectors: Mapping[PartitionBucket, Sequence[IndexManifestEntry]]
    """The index files of deletion vectors by bucket, which may include other buckets."""

    def __len__(self) -> int:
        return len(self.groups)

    def take(self, buckets: Indices) -> "LiveBuckets":
        """Return some of the buckets."""
        return replace(self, groups=self.groups.take(buckets))

    @property
    def is_merged(self) -> Mask:
        """Return the buckets whose sorted runs readers merge by key: not the postponed ones."""
        return (self.groups.buckets >= 0) & bool(self.schema.primary_keys)

    def take_merged(self) -> "LiveBuckets":
        """Return the buckets whose sorted runs readers merge by key."""
        return self.take(np.flatnonzero(self.is_merged))

    def with_files(self, rows: Mask) -> "LiveBuckets":
        """Return the buckets with only some of their files, given as a mask of all files."""
        kept = rows[self.groups.rows]
        counts = self.groups.sum(rows.astype(np.int64))
        groups = replace(self.groups, rows=self.groups.rows[kept], lengths=counts[counts > 0])
        return replace(self, groups=groups)

    @property
    def partitions(self) -> Sequence[bytes]:
        """Return the distinct partitions of the buckets, in their order."""
        partitions = self.groups.files.partitions
        return [partitions[code] for code in dict.fromkeys(self.groups.partition_codes.tolist())]

    def iterate_vectors(self) -> Iterator[tuple[int, Sequence[IndexManifestEntry]]]:
        """Yield each bucket that has deletion vectors, with its index files."""
        if not self.vectors:
            return
        codes = {partition: code for code, partition in enumerate(self.groups.files.partitions)}
        pairs = zip(self.groups.partition_codes.tolist(), self.groups.buckets.tolist(), strict=True)
        numbers = {pair: number for number, pair in enumerate(pairs)}
        for (partition, bucket), entries in self.vectors.items():
            number = numbers.get((codes.get(partition, -1), bucket))
            if number is not None:
                yield number, entries

    @cached_property
    def levels(self) -> BucketLevels:
        """The levels of the buckets of a primary-key table."""
        return BucketLevels(self.groups, self.schema)

    def check_levels(self) -> None:
        """Raise :class:`CorruptFileError` if files of a level above 0 overlap."""
        suspects = self.levels.find_possible_overlaps()
        batch = max(1, _MAX_CHECKED_FILES // max(1, int(self.groups.lengths.max(initial=0))))
        for start in range(0, len(suspects), batch):
            for split in self.take(suspects[start : start + batch]).build_splits():
                build_sorted_runs(split.files, self.schema.key_fields)

    @property
    def schema_ids(self) -> list[int]:
        """Return the distinct schemas of the files."""
        ids: list[int] = np.unique(self.groups.files.schema_ids[self.groups.rows]).tolist()
        return ids

    def build_splits(self, buckets: Indices | None = None) -> list[BucketSplit]:
        """Return some or all of the buckets as splits; reads the manifests of their files again."""
        groups = self.groups if buckets is None else self.groups.take(buckets)
        entries = self.manifests.build_entries(groups.files.take(groups.rows))
        splits = []
        start = 0
        for length in groups.lengths.tolist():
            first = entries[start]
            splits.append(
                BucketSplit(
                    partition=first.partition,
                    bucket=first.bucket,
                    total_buckets=first.total_buckets,
                    files=tuple(entry.file for entry in entries[start : start + length]),
                    vectors=tuple(self.vectors.get(first.partition_bucket, ())),
                )
            )
            start += length
        return splits
