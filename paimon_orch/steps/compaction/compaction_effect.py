"""What a compaction would change now, and the health of the table after it; reads only metadata."""

from dataclasses import dataclass, replace

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.steps.compaction.compact import plan
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactionUnit, CompactRequest
from paimon_orch.steps.inspection.bucket_metrics import SMALL_FILE_RATIO, BucketMetrics
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEffect:
    """What a compaction rewrites, and the estimated health of the table after it."""

    health: TableHealth
    rewrite_files: int
    rewrite_bytes: int


def predict_compaction(
    table: Table,
    state: TableState,
    live: LiveBuckets,
    health: TableHealth,
    request: CompactRequest,
) -> CompactionEffect | None:
    """Return the effect of a compaction; None if it changes nothing, or is refused."""
    try:
        planned = plan(table, request, state=state)
    except UnsupportedError:  # the compaction itself reports this
        return None
    postponed = planned.postponed.units if planned.postponed else ()
    if not planned and not postponed:
        return None
    return CompactionEffect(
        health=_predict_health(planned, live, health),
        rewrite_files=len(planned.inputs) + sum(len(unit.files) for unit in postponed),
        rewrite_bytes=planned.bytes + sum(unit.bytes for unit in postponed),
    )


def _predict_health(planned: CompactionPlan, live: LiveBuckets, health: TableHealth) -> TableHealth:
    """Return the metrics of files, runs and deleted rows after a compaction.

    It is assumed that a work unit writes one file, or files of the target size.
    """
    metrics, schema = BucketMetrics(live), live.schema
    target = max(1, schema.target_file_size)
    small_size = SMALL_FILE_RATIO * target
    files, small = metrics.files.copy(), metrics.small_files.copy()
    level0, runs = metrics.level0_files.copy(), metrics.sorted_runs.copy()
    removed_rows, saved_bytes = 0, 0
    numbers = _number_buckets(live)
    deleted_by_file = _count_deleted_rows(live)
    for (partition, bucket), units in _group_units(planned).items():
        number = numbers[partition, bucket]
        inputs = {file.file_name: file for unit in units for file in unit.inputs}.values()
        written = sum(max(1, round(unit.bytes / target)) for unit in units)
        files[number] += written - len(inputs)
        small[number] -= sum(file.file_size < small_size for file in inputs)
        small[number] += sum(unit.bytes < small_size for unit in units)
        level0[number] -= sum(file.level == 0 for file in inputs) if level0[number] else 0
        if runs[number]:
            levels = [file.level for file in inputs]
            runs[number] -= levels.count(0) + len(set(levels) - {0}) - 1
        if has_data_evolution(schema):  # its compactions keep deleted rows
            continue
        keeps_retractions = bool(
            schema.primary_keys
            and len(inputs) < metrics.files[number]
            and not schema.typed_options.has_deletion_vectors
        )
        for file in () if keeps_retractions else inputs:
            gone = deleted_by_file.get(file.file_name, 0) + (file.delete_row_count or 0)
            removed_rows += gone
            saved_bytes += file.file_size * gone // max(1, file.row_count)
    small = np.where(files > 1, np.minimum(small, files), 0)
    rows = int(metrics.rows.sum()) - removed_rows
    deleted_rows = max(0, int(metrics.deleted_rows.sum()) - removed_rows)
    return replace(
        health,
        files=int(files.sum()),
        bytes=health.bytes - saved_bytes,
        small_files=int(small.sum()),
        level0_files=int(level0.sum()),
        max_sorted_runs=int(runs.max(initial=0)),
        manifests=health.manifests + 1,
        deleted_ratio=deleted_rows / rows if rows > 0 else 0.0,
    )


def _count_deleted_rows(live: LiveBuckets) -> dict[str, int]:
    """Return the number of rows that deletion vectors delete, by file."""
    return {
        vector.data_file: vector.cardinality or 0
        for _, entries in live.iterate_vectors()
        for entry in entries
        for vector in entry.ranges or ()
    }


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
