"""Selects the manifests, partitions and files to read by statistics, buckets and indexes.

A file is skipped only if none of its rows can match; the rows of other files are filtered when they
are read. If files must be merged, a file is skipped because of its keys, or together with all files
that may have the same keys.

See docs/format/statistics.md#use-on-read and docs/format/scan.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from paimon_orch.files.stats.file_bounds import (
    find_manifest_bounds,
    find_partition_bounds,
    group_by_layout,
)
from paimon_orch.files.stats.file_stats import FileStats, SchemaLookup
from paimon_orch.files.stats.stats_evaluator import may_match
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.file_fields import FileFields, ObjectFileFields, build_file_fields
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.predicate import Predicate, restrict_to_columns
from paimon_orch.merge.tree.levels import plan_merge_sections
from paimon_orch.table.scan.bucket_pruner import BucketPruner
from paimon_orch.table.scan.bucket_split import is_raw_convertible

if TYPE_CHECKING:
    from paimon_orch.files.file_index_reader import FileIndexEvaluator

_BATCH_SIZE = 8_192  # number of files whose statistics and indexes are in memory at the same time


@dataclass(frozen=True)
class FilePruner:
    """Selects manifests, partitions and files that may have rows that match a bound predicate."""

    schema: TableSchema
    predicate: Predicate
    schema_of: SchemaLookup
    use_indexes: bool = True

    def select_manifests(self, manifests: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Return the manifests that may name files with matching rows."""
        counts = [meta.num_added_files + meta.num_deleted_files for meta in manifests]
        bounds_of = find_manifest_bounds(manifests, self.schema)
        matches = may_match(self.predicate, bounds_of, np.array(counts, np.int64))
        return list(compress(manifests, matches))

    def select_partitions(self, partitions: Iterable[bytes]) -> set[bytes]:
        """Return the partitions that may have matching rows."""
        distinct = list(set(partitions))
        bounds_of = find_partition_bounds(distinct, self._stats)
        matches = may_match(self.predicate, bounds_of, np.ones(len(distinct), np.int64))
        return set(compress(distinct, matches))

    def select_entries(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return the entries whose bucket and key statistics allow matching keys."""
        in_buckets = self._buckets.select_entries(entries)
        if self._key_predicate is None:
            return in_buckets
        files, partitions = _split_entries(in_buckets)
        return list(compress(in_buckets, self._match_stats(self._key_predicate, files, partitions)))

    def select_rows(self, manifest: Manifest, rows: Indices) -> Indices:
        """Return the rows of a manifest whose files may have matching rows before a merge."""
        if not len(rows):
            return rows
        partitions = [b""] * len(rows)
        if self.schema.partition_keys:
            by_row = manifest.partitions()
            partitions = [by_row[row] for row in rows.tolist()]
        return rows[self._match(build_file_fields(manifest, rows), partitions)]

    def select_unmerged(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return the entries whose files may have matching rows before a merge."""
        return list(compress(entries, self._match(*_split_entries(entries))))

    def select_files(
        self, buckets: Sequence[tuple[bytes, Sequence[DataFileMeta]]]
    ) -> list[tuple[DataFileMeta, ...]]:
        """Return the files to read of each bucket; a bucket is a partition and all its files."""
        files = [file for _, bucket in buckets for file in bucket]
        partitions = [partition for partition, bucket in buckets for _ in bucket]
        matches = iter(self._match(ObjectFileFields(files), partitions).tolist())
        return [tuple(self._select_bucket_files(bucket, matches)) for _, bucket in buckets]

    def _select_bucket_files(
        self, files: Sequence[DataFileMeta], matches: Iterator[bool]
    ) -> Iterable[DataFileMeta]:
        """Return the files of a bucket to read; ``matches`` yields one value per file."""
        matching = [file for file in files if next(matches)]
        if is_raw_convertible(files, self.schema):
            return matching
        return self._select_sections(files, {file.file_name for file in matching})

    def _select_sections(
        self, files: Sequence[DataFileMeta], matching: set[str]
    ) -> Iterator[DataFileMeta]:
        """Yield the files to merge: matching files of single-run sections, and whole sections.

        An engine that combines the rows of a key may produce values that are in no file, so its
        sections are never skipped.
        """
        combines = self.schema.typed_options.combines_rows
        for section in plan_merge_sections(files, self.schema):
            merged = [file for run in section for file in run]
            if len(section) == 1:
                yield from (file for file in merged if file.file_name in matching)
            elif combines or any(file.file_name in matching for file in merged):
                yield from merged

    def _match(self, files: FileFields, partitions: Sequence[bytes]) -> Mask:
        """Return which files may have matching rows, by statistics and embedded indexes."""
        masks = [np.zeros(0, bool)]
        for start in range(0, len(partitions), _BATCH_SIZE):
            rows = np.arange(start, min(start + _BATCH_SIZE, len(partitions)))
            batch = files.take(rows)
            matches = self._match_stats(
                self.predicate, batch, partitions[start : start + _BATCH_SIZE]
            )
            if self.use_indexes:
                matching = np.flatnonzero(matches)
                excluded = self._indexes.find_excluded_files(batch.take(matching))
                matches[matching[excluded]] = False
            masks.append(matches)
        return np.concatenate(masks)

    def _match_stats(
        self, predicate: Predicate, files: FileFields, partitions: Sequence[bytes]
    ) -> Mask:
        row_counts = np.array(files.get("_ROW_COUNT"), np.int64)
        matches = np.zeros(len(row_counts), bool)
        for rows, bounds_of in group_by_layout(files, partitions, self._stats):
            matches[rows] = may_match(predicate, bounds_of, row_counts[rows])
        return matches

    @cached_property
    def _key_predicate(self) -> Predicate | None:
        """The part of the predicate that only depends on keys, or None if it has no such part."""
        if not self.schema.primary_keys:
            return None
        return restrict_to_columns(self.predicate, self.schema.identifying_names)

    @cached_property
    def _indexes(self) -> "FileIndexEvaluator":
        from paimon_orch.files.file_index_reader import FileIndexEvaluator

        return FileIndexEvaluator(self.schema, self.schema_of, self.predicate)

    @cached_property
    def _stats(self) -> FileStats:
        return FileStats(self.schema, self.schema_of)

    @cached_property
    def _buckets(self) -> BucketPruner:
        return BucketPruner(self.schema, self.predicate, self.schema_of)


def _split_entries(entries: Sequence[ManifestEntry]) -> tuple[FileFields, list[bytes]]:
    files = ObjectFileFields([entry.file for entry in entries])
    return files, [entry.partition for entry in entries]
