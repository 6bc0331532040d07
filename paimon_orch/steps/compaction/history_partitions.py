"""Partitions without new files that a compaction of other partitions sorts as a whole.

See docs/format/sort-compaction.md#history-partitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from paimon_orch.format.manifest.live_files import NO_TIME
from paimon_orch.format.options.core_options import (
    CLUSTERING_HISTORY_PARTITION_IDLE_TIME,
    CLUSTERING_HISTORY_PARTITION_LIMIT,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.cluster_strategy import ClusterStrategy
from paimon_orch.steps.common.bucket_scan import BucketScan, Judgment
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.compaction import clustering
from paimon_orch.steps.compaction.append_unit import ClusteringUnit
from paimon_orch.steps.expiration.expire_partitions import exclude_expired_partitions
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.partition_selection import PartitionSelection, open_reader


@dataclass(frozen=True, slots=True)
class HistoryUnits:
    """The units of history partitions, and the schemas of their files."""

    units: tuple[ClusteringUnit, ...] = ()
    schemas: Mapping[int, TableSchema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HistoryJudge:
    """Chooses idle partitions, and lists the times of their newest files."""

    identifier: str
    current_time: datetime
    idle_before: int

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        buckets = exclude_expired_partitions(self.identifier, buckets, self.current_time)
        newest = ClusterStrategy.of(buckets.schema).find_newest_files(buckets.groups)
        is_idle = (newest != NO_TIME) & (newest < self.idle_before)
        idle = buckets.take(np.flatnonzero(is_idle))
        times = {
            partition.hex(): time
            for partition, time in zip(idle.partitions, newest[is_idle].tolist(), strict=True)
        }
        return Judgment(chosen=idle, values=times)


def plan_units(scan: BucketScan) -> HistoryUnits:
    """Return the units of history partitions if the request of a scan names other partitions.

    Selects the partitions whose newest files are oldest; reads only metadata.
    """
    schema, options = scan.schema, scan.schema.typed_options
    idle_before = clustering.find_idle_limit(
        scan.now, options.get(CLUSTERING_HISTORY_PARTITION_IDLE_TIME)
    )
    select_named = PartitionSelection(schema, scan.request).partition_selector
    is_possible = schema.is_clustered and schema.is_bucket_unaware
    if idle_before is None or select_named is None or not is_possible:
        return HistoryUnits()
    everything = replace(scan, request=PartitionRequest())
    judged = everything.judge(
        _HistoryJudge(
            identifier=scan.state.identifier,
            current_time=scan.now.astimezone().replace(tzinfo=None),
            idle_before=idle_before,
        )
    )
    times = {bytes.fromhex(name): time for part in judged.values for name, time in part.items()}
    named = select_named(list(times))
    history = sorted(times.keys() - named, key=lambda each: (times[each], each))
    selected = set(history[: options.get(CLUSTERING_HISTORY_PARTITION_LIMIT)])
    chosen = judged.chosen
    is_selected = [partition in selected for partition in chosen.partitions]
    chosen = chosen.take(np.flatnonzero(is_selected))
    reader = open_reader(scan.state, schema, chosen)
    splits = everything.build_splits(chosen)
    units = clustering.plan_units(reader, splits, "minor", idle_before)
    return HistoryUnits(tuple(units), reader.schemas)
