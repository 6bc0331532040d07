"""Sizes and read amplification of buckets, computed with the columns of their live files."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paimon_orch.format.arrays import Int64Array
from paimon_orch.table.metadata.live_buckets import LiveBuckets

SMALL_FILE_RATIO = 0.7  # files below this share of the target size are small files


@dataclass(frozen=True)
class BucketMetrics:
    """Metrics of buckets; arrays have one item per bucket, sizes are in bytes."""

    buckets: LiveBuckets

    @property
    def files(self) -> Int64Array:
        """Return the number of files."""
        return self.buckets.groups.lengths

    @cached_property
    def bytes(self) -> Int64Array:
        """The size of the files."""
        return self.buckets.groups.sum(self.buckets.groups.files.file_sizes)

    @cached_property
    def rows(self) -> Int64Array:
        """The number of physical rows, including deleted ones."""
        return self.buckets.groups.sum(self.buckets.groups.files.row_counts)

    @cached_property
    def small_files(self) -> Int64Array:
        """The number of small files, except those that are the only file of their bucket."""
        schema, groups = self.buckets.schema, self.buckets.groups
        is_small = groups.files.file_sizes < SMALL_FILE_RATIO * schema.target_file_size
        counts = groups.sum(is_small.astype(np.int64))
        return np.where(groups.lengths > 1, counts, 0)

    @cached_property
    def level0_files(self) -> Int64Array:
        """The number of files on level 0; 0 for tables without levels."""
        if not self.buckets.schema.has_levels:
            return np.zeros(len(self.buckets), np.int64)
        return self.buckets.levels.level0_files

    @cached_property
    def level0_bytes(self) -> Int64Array:
        """The size of the files on level 0; 0 for tables without levels."""
        if not self.buckets.schema.has_levels:
            return np.zeros(len(self.buckets), np.int64)
        files = self.buckets.groups.files
        return self.buckets.groups.sum(np.where(files.levels == 0, files.file_sizes, 0))

    @cached_property
    def sorted_runs(self) -> Int64Array:
        """The number of sorted runs that readers merge; 0 for buckets that are not merged."""
        runs = np.zeros(len(self.buckets), np.int64)
        runs[self.buckets.is_merged] = self.buckets.take_merged().levels.sorted_runs
        return runs

    @cached_property
    def deleted_rows(self) -> Int64Array:
        """The number of rows that deletion vectors delete, or that retract other rows."""
        files = self.buckets.groups.files
        counts = self.buckets.groups.sum(np.maximum(files.delete_row_counts, 0))
        for number, entries in self.buckets.iterate_vectors():
            counts[number] += sum(
                item.cardinality or 0 for entry in entries for item in entry.ranges or ()
            )
        return counts

    @property
    def deleted_ratio(self) -> float:
        """Return the share of physical rows that are deleted or that retract other rows."""
        rows = int(self.rows.sum())
        return int(self.deleted_rows.sum()) / rows if rows else 0.0

    def compute_max_sorted_runs(self) -> int:
        """Return the maximum number of sorted runs in a bucket.

        Raises :class:`CorruptFileError` if files of a level overlap.
        """
        self.buckets.take_merged().check_levels()
        return int(self.sorted_runs.max(initial=0))

    @property
    def skew(self) -> float:
        """Return the maximum ratio of a bucket's size to the mean of its partition's buckets."""
        groups = self.buckets.groups
        count = len(groups.files.partitions)
        codes = groups.partition_codes
        largest, totals, last = (np.zeros(count, np.int64) for _ in range(3))
        np.maximum.at(largest, codes, self.bytes)
        np.add.at(totals, codes, self.bytes)
        present = np.bincount(codes, minlength=count)
        # later buckets of a partition overwrite the number of earlier ones
        last[codes] = groups.files.total_buckets[groups.first_rows]
        has_bytes = totals > 0
        bucket_counts = np.maximum(last, present)[has_bytes]
        skews = largest[has_bytes].astype(np.float64) * bucket_counts / totals[has_bytes]
        return float(skews.max()) if len(skews) else 1.0
