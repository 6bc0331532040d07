"""Reads the layout of all partitions of a table that compactions may change, as columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from paimon_orch.format.arrays import Indices, Int64Array
from paimon_orch.format.manifest.live_files import NO_TIME
from paimon_orch.steps.autopilot.level_merges import LevelMerges
from paimon_orch.steps.common.bucket_scan import BucketScan, Judgment
from paimon_orch.steps.compaction.decide import PolicyJudge
from paimon_orch.steps.compaction.kind_compaction import find_compaction
from paimon_orch.steps.expiration.expire_partitions import find_expired_partitions
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets

NO_UNSEEN_FILE = int(np.iinfo(np.int64).max)
"""The time of the oldest file that readers leave out, if there is none."""
_SUMS = ("buckets", "full_buckets", "full_files", "full_bytes")


class PartitionMerge(NamedTuple):
    """The merge of the sorted runs up to a level, in all buckets of a partition."""

    files: int
    bytes: int
    buckets: int
    """The number of buckets with at least two runs to merge."""
    remaining_runs: int
    """The maximum number of sorted runs of a bucket after the merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWork:
    """What a partition's decision needs besides the metrics of the policy."""

    buckets: int = 0
    full_buckets: int = 0
    full_files: int = 0
    full_bytes: int = 0
    """The size of the files that a full compaction rewrites."""
    newest: int = NO_TIME
    """The creation time of the newest file, in epoch milliseconds of local time."""
    oldest_unseen: int = NO_UNSEEN_FILE
    """The creation time of the oldest file that batch readers leave out before a compaction."""
    is_expiring: bool = False
    merges: tuple[PartitionMerge, ...] = ()
    """The merge of the sorted runs up to each level; empty for tables that are not merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkJudge:
    """Chooses no bucket, and computes :class:`PartitionWork` of all partitions as columns."""

    identifier: str
    now: datetime
    expires_at: datetime
    """Partitions that expire before this local wall clock time are about to expire."""

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        """Judge some buckets."""
        partitions = buckets.partitions
        expiring = find_expired_partitions(self.identifier, buckets, self.expires_at)
        full = find_compaction(buckets.schema).select_buckets(buckets, "full", self.now)
        metrics, numbers = BucketMetrics(full), _number_partitions(full, partitions)
        count, all_numbers = len(partitions), _number_partitions(buckets, partitions)
        columns = {
            "path": [format_partition(each, buckets.schema) for each in partitions],
            "buckets": np.bincount(all_numbers, minlength=count).tolist(),
            "full_buckets": np.bincount(numbers, minlength=count).tolist(),
            "full_files": _sum_by_partition(numbers, metrics.files, count),
            "full_bytes": _sum_by_partition(numbers, metrics.bytes, count),
            "newest": _find_newest(buckets, all_numbers, count),
            "oldest_unseen": _find_oldest_unseen(buckets, all_numbers, count),
            "is_expiring": [each in expiring for each in partitions],
            "merges": _compute_merges(buckets, all_numbers, count),
        }
        return Judgment(chosen=buckets.take(np.zeros(0, np.int64)), values=columns)


def read_partition_work(scan: BucketScan, expiring_within: timedelta) -> dict[str, PartitionWork]:
    """Return the work of all partitions by path; reads the manifests once for the policy, too."""
    local = scan.now.astimezone().replace(tzinfo=None)
    judge = WorkJudge(
        identifier=scan.state.identifier, now=scan.now, expires_at=local + expiring_within
    )
    scan.judge_together([PolicyJudge(now=scan.now), judge])
    by_path: dict[str, PartitionWork] = {}
    for part in scan.judge(judge).values:
        for path, work in _iterate_work(part):
            by_path[path] = _add(by_path[path], work) if path in by_path else work
    return by_path


def compute_local_millis(time: datetime) -> int:
    """Return the local wall clock time as creation times of files have it."""
    return int(time.astimezone().replace(tzinfo=UTC).timestamp() * 1000)


def _iterate_work(part: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, PartitionWork]]:
    """Yield path and work of each partition."""
    names = [name for name in part if name not in ("path", "merges")]
    columns = (part["path"], part["merges"], *(part[name] for name in names))
    for path, merges, *row in zip(*columns, strict=True):
        levels = tuple(PartitionMerge(*level) for level in merges)
        yield path, PartitionWork(merges=levels, **dict(zip(names, row, strict=True)))


def _add(one: PartitionWork, other: PartitionWork) -> PartitionWork:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMS}
    return PartitionWork(
        **sums,
        newest=max(one.newest, other.newest),
        oldest_unseen=min(one.oldest_unseen, other.oldest_unseen),
        merges=tuple(map(_add_merges, one.merges, other.merges)),
        is_expiring=one.is_expiring and other.is_expiring,
    )


def _add_merges(one: PartitionMerge, other: PartitionMerge) -> PartitionMerge:
    return PartitionMerge(
        files=one.files + other.files,
        bytes=one.bytes + other.bytes,
        buckets=one.buckets + other.buckets,
        remaining_runs=max(one.remaining_runs, other.remaining_runs),
    )


def _number_partitions(buckets: LiveBuckets, partitions: Sequence[bytes]) -> Indices:
    """Return the partition of each bucket, as an index of ``partitions``."""
    numbers = {partition: number for number, partition in enumerate(partitions)}
    by_code = [numbers.get(each, 0) for each in buckets.groups.files.partitions]
    return np.array(by_code, np.int64)[buckets.groups.partition_codes]


def _sum_by_partition(numbers: Indices, values: Int64Array, count: int) -> list[int]:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, numbers, values)
    return [*map(int, sums.tolist())]


def _compute_merges(buckets: LiveBuckets, numbers: Indices, count: int) -> list[list[list[int]]]:
    """Return the fields of the merges up to each level of the partitions that readers merge."""
    schema = buckets.schema
    if schema.typed_options.needs_lookup or not schema.has_runs_sorted_by_key:
        return [[]] * count
    merges = _compute_bucket_merges(buckets.take_merged())
    numbers, shape = numbers[buckets.is_merged], (count, merges.files.shape[1])
    columns = [np.zeros(shape, np.int64) for _ in range(4)]
    for column, values in zip(
        columns, (merges.files, merges.bytes, merges.files > 0), strict=False
    ):
        np.add.at(column, numbers, values)
    np.maximum.at(columns[3], numbers, merges.remaining_runs)
    merges_by_level: list[list[list[int]]] = np.stack(columns, axis=2).tolist()
    return merges_by_level


def _compute_bucket_merges(buckets: LiveBuckets) -> LevelMerges:
    groups, level_count = buckets.groups, buckets.schema.typed_options.num_levels
    levels = np.minimum(groups.files.levels[groups.rows], level_count - 1)
    numbers = np.repeat(np.arange(len(groups)), groups.lengths)
    files, sizes = (np.zeros((len(groups), level_count), np.int64) for _ in range(2))
    np.add.at(files, (numbers, levels), 1)
    np.add.at(sizes, (numbers, levels), groups.files.file_sizes[groups.rows])
    return LevelMerges.compute(files, sizes)


def _find_oldest_unseen(buckets: LiveBuckets, numbers: Indices, count: int) -> list[int]:
    """Return the time of the oldest file of level 0 or postpone buckets that readers leave out.

    A file without a time counts as older than all others.
    """
    oldest = np.full(count, NO_UNSEEN_FILE)
    groups, rows = buckets.groups, buckets.groups.rows
    is_unseen = groups.files.buckets[rows] < 0
    if buckets.schema.skips_level_0:
        is_unseen |= groups.files.levels[rows] == 0
    row_numbers = np.repeat(numbers, groups.lengths)[is_unseen]
    np.minimum.at(oldest, row_numbers, groups.files.creation_times[rows[is_unseen]])
    return [*map(int, oldest.tolist())]


def _find_newest(buckets: LiveBuckets, numbers: Indices, count: int) -> list[int]:
    times = buckets.groups.files.creation_times
    # A file without a time may be new.
    times = np.where(times == NO_TIME, np.iinfo(np.int64).max, times)
    newest = np.full(count, NO_TIME)
    np.maximum.at(newest, numbers, buckets.groups.max(times))
    return [*map(int, newest.tolist())]
