"""Which compaction improves a metric of table health, judged by what its plan would change.

Doctor, checks and the command ``compact`` name a command only if it changes something now, and if
the metric is within its limit afterwards.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.steps.compaction.compact import plan
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionUnit,
    CompactRequest,
)
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.steps.inspection.bucket_metrics import SMALL_FILE_RATIO, BucketMetrics
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.health_metrics import HealthMetric
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

COMPACTIONS: tuple[CompactionStrategy, ...] = ("minor", "full")


class Remedies:
    """The compactions of a table that change something now; each is planned when it is asked for."""

    def __init__(
        self, table: Table, state: TableState, live: LiveBuckets, health: TableHealth
    ) -> None:
        self.predict = cache(partial(_predict, table, state, live, health))
        """Return the health after a compaction; None if it changes nothing, or is refused."""

    def find_compaction(self, metric: HealthMetric, limit: float) -> CompactionStrategy | None:
        """Return the cheapest compaction after which a metric is within its limit."""
        for strategy in COMPACTIONS:
            health = self.predict(strategy)
            value = None if health is None else metric.read(health)
            if value is not None and metric.is_within_limit(value, limit):
                return strategy
        return None

    def find_any(self) -> CompactionStrategy | None:
        """Return the cheapest compaction that changes something."""
        return next((each for each in COMPACTIONS if self.predict(each) is not None), None)


def _predict(
    table: Table,
    state: TableState,
    live: LiveBuckets,
    health: TableHealth,
    strategy: CompactionStrategy,
) -> TableHealth | None:
    """Return the health after a compaction; None if it changes nothing, or is refused."""
    try:
        planned = plan(table, CompactRequest(strategy=strategy), state=state)
    except UnsupportedError:  # the compaction itself reports this
        return None
    has_work = planned or planned.postponed
    return _predict_health(planned, live, health) if has_work else None


def _predict_health(planned: CompactionPlan, live: LiveBuckets, health: TableHealth) -> TableHealth:
    """Return the metrics of files, runs and deleted rows after a compaction.

    It is assumed that a work unit writes one file, or files of the target size.
    """
    metrics, schema = BucketMetrics(live), live.schema
    target = max(1, schema.typed_options.target_file_size(primary_key=bool(schema.primary_keys)))
    small_size = SMALL_FILE_RATIO * target
    files, small = metrics.files.copy(), metrics.small_files.copy()
    level0, runs = metrics.level0_files.copy(), metrics.sorted_runs.copy()
    deleted = metrics.deleted_rows.copy()
    numbers = _number_buckets(live)
    for (partition, bucket), units in _group_units(planned).items():
        number = numbers[partition, bucket]
        inputs = {file.file_name: file for unit in units for file in unit.inputs}.values()
        written = sum(max(1, round(unit.bytes / target)) for unit in units)
        files[number] += written - len(inputs)
        small[number] -= sum(file.file_size < small_size for file in inputs)
        small[number] += sum(unit.bytes < small_size for unit in units)
        level0[number] -= sum(file.level == 0 for file in inputs) if level0[number] else 0
        runs[number] -= _count_runs(inputs) - 1 if runs[number] else 0
        if not has_data_evolution(schema):  # its compactions keep deleted rows
            deleted[number] = sum(unit.remaining_deleted_rows for unit in units)
    small = np.where(files > 1, np.minimum(small, files), 0)
    rows = int(metrics.rows.sum())
    return replace(
        health,
        files=int(files.sum()),
        small_files=int(small.sum()),
        level0_files=int(level0.sum()),
        max_sorted_runs=int(runs.max(initial=0)),
        deleted_ratio=int(deleted.sum()) / rows if rows else 0.0,
    )


def _number_buckets(live: LiveBuckets) -> dict[tuple[bytes, int], int]:
    """Return the numbers of the buckets by partition and bucket."""
    groups = live.groups
    partitions = [groups.files.partitions[code] for code in groups.partition_codes.tolist()]
    keys = zip(partitions, groups.buckets.tolist(), strict=True)
    return {key: number for number, key in enumerate(keys)}


def _group_units(planned: CompactionPlan) -> dict[tuple[bytes, int], list[CompactionUnit]]:
    grouped: dict[tuple[bytes, int], list[CompactionUnit]] = {}
    for unit in planned.units:
        grouped.setdefault((unit.partition, unit.bucket), []).append(unit)
    return grouped


def _count_runs(files: Iterable[DataFileMeta]) -> int:
    """Return the number of sorted runs that files of one bucket are in."""
    levels = [file.level for file in files]
    return levels.count(0) + len(set(levels) - {0})
