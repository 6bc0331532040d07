"""Finds the files of a snapshot to read, grouped by bucket.

See docs/format/scan.md.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.metadata.live_buckets import group_vectors
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.scan.bucket_split import BucketSplit, count_visible_rows
from paimon_orch.table.scan.file_pruner import FilePruner

ALL_LEVELS = range(2**31)
IndexSource = Callable[[], Sequence[IndexManifestEntry]]


def apply_limit(
    splits: Iterable[BucketSplit], schema: TableSchema, limit: int
) -> Iterator[BucketSplit]:
    """Yield splits until they have ``limit`` live rows; the last split may have only some files."""
    remaining = limit
    for split in splits:
        if remaining <= 0:
            return
        visible = count_visible_rows(split, schema)
        if visible is None or visible <= remaining:
            yield split
            remaining -= visible or 0
            continue
        files = list[DataFileMeta]()
        for file in split.files:
            if remaining > 0:
                files.append(file)
                remaining -= count_visible_rows(replace(split, files=(file,)), schema) or 0
        yield replace(split, files=tuple(files))


def build_bucket_splits(
    entries: Iterable[ManifestEntry], index: Iterable[IndexManifestEntry]
) -> list[BucketSplit]:
    """Group live files by bucket, ordered by the first file of each bucket."""
    groups = defaultdict[PartitionBucket, list[ManifestEntry]](list)
    for entry in entries:
        groups[entry.partition_bucket].append(entry)
    vectors = group_vectors(index)
    return [
        BucketSplit(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=group[0].total_buckets,
            files=tuple(entry.file for entry in group),
            vectors=tuple(vectors.get(bucket, ())),
        )
        for bucket, group in groups.items()
    ]


@dataclass(frozen=True, slots=True)
class ScanPlanner:
    """Finds the live files of a snapshot."""

    manifests: ManifestReader
    schema: TableSchema

    def splits(
        self,
        snapshot: Snapshot | None,
        pruner: FilePruner | None = None,
        *,
        levels: range = ALL_LEVELS,
        read_index: IndexSource | None = None,
    ) -> list[BucketSplit]:
        """Return the files of some levels by bucket, without files that ``pruner`` excludes.

        ``read_index`` returns the index files of the snapshot, if the caller reads them.
        """
        if snapshot is None:
            return []

        def select_manifests(manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
            in_levels = [
                meta
                for meta in manifests
                if meta.max_level is None or meta.max_level >= levels.start
            ]
            return in_levels if pruner is None else pruner.select_manifests(in_levels)

        if read_index is None:
            io = self.manifests.io
            read_index = start_call(io, lambda: self.manifests.read_index_entries(snapshot))
        is_unmerged = not self.schema.primary_keys
        live = self.manifests.read_live_entries(
            snapshot,
            manifests=select_manifests,
            partitions=None if pruner is None else pruner.select_partitions,
            levels=levels,
            choose=pruner.select_rows if pruner is not None and is_unmerged else None,
        )
        if pruner is not None:
            live = pruner.select_entries(live)
        splits = build_bucket_splits(live, read_index())
        if pruner is None or is_unmerged:
            return splits
        files_by_split = pruner.select_files([(split.partition, split.files) for split in splits])
        return [
            replace(split, files=files)
            for split, files in zip(splits, files_by_split, strict=True)
            if files
        ]
