"""Estimates what readers of partitions save by a rewrite, with columns of metrics.

The cost of a read is the number of bytes that one scan reads: the bytes of a bucket once for each
sorted run that it merges, and the bytes that opening a file costs, as the planner of reads assumes
(``source.split.open-file-cost``).
"""

from dataclasses import dataclass

import numpy as np

from paimon_orch.format.arrays import Float64Array, Int64Array, Mask
from paimon_orch.format.display import format_count, format_size

ACTION_OVERHEAD_BYTES = 32 << 20
"""The fixed cost of an action in rewritten bytes: its plan, its commit and its snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    """Metrics of partitions and of a rewrite; one item per partition, sizes are in bytes."""

    files: Int64Array
    bytes: Int64Array
    sorted_runs: Int64Array
    """The maximum number of sorted runs in a bucket; 0 if readers do not merge."""
    deleted_ratio: Float64Array
    """The share of rows that are deleted or retracted."""
    rewrite_files: Int64Array
    rewrite_bytes: Int64Array
    rewrite_buckets: Int64Array
    """The number of buckets that the rewrite may change."""
    is_full: Mask
    """Whether the rewrite leaves one sorted run, without deleted rows."""
    remaining_runs: Int64Array
    """The maximum number of sorted runs after the rewrite; negative if it must be estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSavings:
    """What one scan of each partition saves; one item per partition."""

    cost: Float64Array
    """The cost of a read in bytes, with the merges and the opening of files."""
    files: Float64Array
    """The number of files that are not opened any more."""
    sorted_runs: Float64Array
    """The number of sorted runs that are not merged any more."""
    bytes: Float64Array

    def describe(self, number: int) -> str:
        """Return what one scan of a partition saves as text."""
        files, runs = (round(float(each[number])) for each in (self.files, self.sorted_runs))
        parts = [format_count(files, "file")] if files > 0 else []
        parts += [format_count(runs, "sorted run")] if runs > 0 else []
        parts += [format_size(int(self.bytes[number]))] if self.bytes[number] >= 1 else []
        return f"saves each read {', '.join(parts) or 'nothing'}"


def compute_read_cost(
    size: Float64Array, files: Float64Array, sorted_runs: Float64Array, open_file_bytes: int
) -> Float64Array:
    """Return the cost of one scan of each partition."""
    cost: Float64Array = size * np.maximum(sorted_runs, 1) + files * open_file_bytes
    return cost


def estimate_savings(
    layout: PartitionLayout, *, target_file_bytes: int, open_file_bytes: int, packs_files: bool
) -> ReadSavings:
    """Return how much less one scan of each partition costs after the rewrite; at least 0.

    :param packs_files: whether the table is an append table without buckets, whose compaction
        merges groups of files
    """
    runs = layout.sorted_runs.astype(np.float64)
    before = compute_read_cost(
        layout.bytes.astype(np.float64), layout.files.astype(np.float64), runs, open_file_bytes
    )
    share = np.where(layout.is_full, 1.0 - layout.deleted_ratio, 1.0)
    new_bytes = layout.rewrite_bytes * share
    buckets = np.minimum(layout.rewrite_buckets, layout.rewrite_files)
    new_files = np.maximum(np.ceil(new_bytes / target_file_bytes), buckets)
    if packs_files:
        group_sizes = new_bytes + layout.rewrite_files * open_file_bytes
        new_files = np.maximum(new_files, np.rint(group_sizes / (2 * target_file_bytes)))
    files_per_bucket = np.ceil(layout.rewrite_files / np.maximum(buckets, 1))
    merged_runs = np.maximum(np.minimum(runs, files_per_bucket), 1)
    estimated_runs = np.where(layout.is_full, 1, np.maximum(runs, 1) - merged_runs + 1)
    new_runs = np.where(layout.remaining_runs < 0, estimated_runs, layout.remaining_runs)
    saved_bytes: Float64Array = layout.rewrite_bytes.astype(np.float64) - new_bytes
    saved_files: Float64Array = layout.rewrite_files.astype(np.float64) - new_files
    after = compute_read_cost(
        layout.bytes - saved_bytes, layout.files - saved_files, new_runs, open_file_bytes
    )
    return ReadSavings(
        cost=np.maximum(before - after, 0.0),
        files=saved_files,
        sorted_runs=runs - new_runs,
        bytes=saved_bytes,
    )


def compute_scores(
    savings: Float64Array, rewrite_bytes: Int64Array, reads: Float64Array
) -> Float64Array:
    """Return the read cost that each action saves for a byte that it rewrites.

    :param reads: how often each partition is read in comparison with others
    """
    scores: Float64Array = savings * reads / (rewrite_bytes + ACTION_OVERHEAD_BYTES)
    return scores
