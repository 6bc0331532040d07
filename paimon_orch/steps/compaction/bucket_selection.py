"""Restricts a compaction to numbered buckets, and to partitions without recent files.

See docs/format/procedures.md#compact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.format.manifest.live_files import NO_TIME
from paimon_orch.format.partition_path import format_partition_values
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.common.bucket_scan import BucketScan, Judgment
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactRequest
from paimon_orch.table.metadata.live_buckets import LiveBuckets


@dataclass(frozen=True, slots=True)
class _NewestFileJudge:
    """Chooses no bucket, and returns the creation time of the newest file of each partition."""

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        groups = buckets.groups
        files = groups.files.take(groups.rows)
        newest = np.full(len(files.partitions), NO_TIME)
        # A file without a time may be new.
        times = np.where(
            files.creation_times == NO_TIME, np.iinfo(np.int64).max, files.creation_times
        )
        np.maximum.at(newest, files.partition_codes, times)
        names = [partition.hex() for partition in files.partitions]
        values = dict(zip(names, newest.tolist(), strict=True))
        return Judgment(chosen=buckets.take(np.zeros(0, np.int64)), values=values)


def find_idle_partitions(scan: BucketScan, idle_for: timedelta) -> list[bytes]:
    """Return the partitions whose newest file is at least as old as ``idle_for``.

    Creation times are local wall clock times, as in Java Paimon. Leaves out partitions with a file
    of unknown age.
    """
    newest: dict[str, int] = {}
    for part in scan.judge(_NewestFileJudge()).values:
        for partition, time in part.items():
            newest[partition] = max(time, newest.get(partition, time))
    local = scan.now.astimezone().replace(tzinfo=UTC)
    latest = int((local - idle_for).timestamp() * 1000)
    return [bytes.fromhex(partition) for partition, time in newest.items() if time <= latest]


def select_idle(request: CompactRequest, scan: BucketScan) -> CompactRequest:
    """Return a request for those partitions of another request that are idle."""
    assert request.idle_for is not None
    partitions, fields = find_idle_partitions(scan, request.idle_for), scan.schema.partition_fields
    selection = replace(request, idle_for=None, where=None)
    if partitions and not fields:
        return selection
    options = scan.schema.typed_options
    specs = [
        format_partition_values(scan.schema.decode_partition(partition), fields, options)
        for partition in partitions
    ]
    return replace(selection, partitions=specs)


def check_buckets(schema: TableSchema, buckets: Sequence[int], identifier: str) -> None:
    """Raise :class:`InputError` unless the table has a fixed number of buckets, with these."""
    count = schema.typed_options.bucket
    if count < 1:
        raise InputError(
            f"{identifier} has 'bucket' = {count}; buckets can be selected only in tables with a "
            "fixed number of buckets"
        )
    wrong = [number for number in buckets if not 0 <= number < count]
    if wrong or not buckets:
        raise InputError(
            f"{identifier} has the buckets 0 to {count - 1}; "
            f"{'no bucket is selected' if not buckets else f'there is no bucket {wrong[0]}'}"
        )


def restrict_to_buckets(plan: CompactionPlan, buckets: Sequence[int]) -> CompactionPlan:
    """Return a plan for some of the buckets."""
    chosen = frozenset(buckets)
    units = tuple(unit for unit in plan.units if unit.bucket in chosen)
    guards = tuple(guard for guard in plan.guards if guard.bucket.bucket in chosen)
    return replace(plan, units=units, guards=guards)
