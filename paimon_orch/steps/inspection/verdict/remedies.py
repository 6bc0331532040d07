"""What a scan of a table costs, and what it costs after a command; reads only metadata."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.options.core_options import MANIFEST_TARGET_FILE_SIZE
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.compaction import materialize_deletion_vectors
from paimon_orch.steps.compaction.compaction_effect import predict_compaction
from paimon_orch.steps.compaction.plan import CompactRequest
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_snapshot,
    read_retaining_consumers,
)
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.health_metrics import (
    COMPACT,
    COMPACT_FULLY,
    COMPACT_MANIFESTS,
    EXPIRE_SNAPSHOTS,
    MATERIALIZE_VECTORS,
    REWRITE_FILE_INDEX,
    HealthMetric,
)
from paimon_orch.steps.inspection.inspect import TableReport
from paimon_orch.steps.maintenance import compact_manifests, rewrite_file_index
from paimon_orch.steps.maintenance.rewrite_file_index import RewriteFileIndexRequest
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_OTHER_FILES = 5  # the hint, the snapshot, its schema and two manifest lists


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCost(Displayable):
    """What a scan of the newest snapshot reads; level 0 counts only if readers see it."""

    files: int = 0
    bytes: int = 0
    """The size of the data files."""
    manifests: int = 0
    vector_files: int = 0
    """The number of files with deletion vectors."""
    max_sorted_runs: int = 0
    """The maximum number of sorted runs that are merged in a bucket; 0 if none are merged."""

    @property
    def requests(self) -> int:
        """Return about how many requests the scan makes to a store; small files need one."""
        return self.files + self.manifests + self.vector_files + _OTHER_FILES

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON values."""
        return asdict(self) | {"requests": self.requests}

    @classmethod
    def of(cls, health: TableHealth, schema: TableSchema, vector_files: int) -> "ScanCost":
        """Return the cost of a table with these metrics."""
        return cls(
            files=health.files - (health.level0_files if schema.skips_level_0 else 0),
            bytes=health.bytes - (health.level0_bytes if schema.skips_level_0 else 0),
            manifests=health.manifests,
            vector_files=vector_files if health.deleted_ratio else 0,
            max_sorted_runs=0 if schema.skips_level_0 else health.max_sorted_runs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A command that changes something now, and the estimated state after it."""

    command: str
    """Without the catalog and the table, such as ``compact --strategy full``."""
    health: TableHealth
    after: ScanCost
    rewrite_files: int = 0
    rewrite_bytes: int = 0

    def heals(self, metric: HealthMetric, limit: float) -> bool:
        """Return whether a metric is within its limit afterwards."""
        value = metric.read(self.health)
        return value is not None and metric.is_within_limit(value, limit)

    def describe_saving(self, now: ScanCost) -> str:
        """Return what the command saves a scan, or an empty string."""
        requests, size = now.requests - self.after.requests, now.bytes - self.after.bytes
        parts = [f"about {format_count(requests, 'request')} fewer"] if requests > 0 else []
        parts += [f"{format_size(size)} less"] if size > 0 else []
        if self.after.max_sorted_runs < now.max_sorted_runs:
            parts.append(f"at most {format_count(self.after.max_sorted_runs, 'sorted run')}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A table that was inspected: its health and its live files."""

    table: Table
    state: TableState
    report: TableReport
    health: TableHealth
    now: float | None = None
    """The time in epoch seconds; None means the current time."""

    def compute_cost(self, health: TableHealth) -> ScanCost:
        """Return what a scan of the table costs with these metrics."""
        return ScanCost.of(health, self.state.schema, self._vector_files)

    @cached_property
    def _vector_files(self) -> int:
        live = self.report.live
        vectors = () if live is None else live.iterate_vectors()
        return len({entry.file_name for _, entries in vectors for entry in entries})

    def build_remedy(
        self, command: str, health: TableHealth, files: int = 0, size: int = 0
    ) -> Remedy:
        """Return a remedy after which the table has these metrics."""
        return Remedy(
            command=command,
            health=health,
            after=self.compute_cost(health),
            rewrite_files=files,
            rewrite_bytes=size,
        )


def find_remedy(inspection: Inspection, command: str) -> Remedy | None:
    """Plan a command; return None if it changes nothing now, or is refused."""
    if inspection.report.live is None:
        return None
    try:
        return _PREDICTIONS[command](inspection)
    except UnsupportedError:  # the command itself reports this
        return None


def predict_compaction_of(
    inspection: Inspection, command: str, request: CompactRequest
) -> Remedy | None:
    """Return the effect of a compaction; None if it changes nothing, or is refused."""
    live, health = inspection.report.live, inspection.health
    assert live is not None
    effect = predict_compaction(inspection.table, inspection.state, live, health, request)
    if effect is None:
        return None
    return inspection.build_remedy(
        command, effect.health, effect.rewrite_files, effect.rewrite_bytes
    )


def _predict_materialization(inspection: Inspection) -> Remedy | None:
    planned = materialize_deletion_vectors.plan(
        inspection.table, PartitionRequest(), state=inspection.state
    )
    if not planned:
        return None
    before, target = inspection.health, inspection.state.schema.target_file_size
    written = sum(max(1, round(unit.bytes / target)) for unit in planned.units)
    files = before.files - len(planned.inputs) + written
    health = replace(
        before,
        files=files,
        small_files=min(before.small_files, files),
        bytes=before.bytes - min(planned.bytes, int(before.bytes * before.deleted_ratio)),
        deleted_ratio=0.0,
        manifests=before.manifests + 1,
    )
    return inspection.build_remedy(MATERIALIZE_VECTORS, health, len(planned.inputs), planned.bytes)


def _predict_merged_manifests(inspection: Inspection) -> Remedy | None:
    state = inspection.state
    planned = compact_manifests.plan(inspection.table, EmptyRequest(), state=state)
    if not planned:
        return None
    target = max(1, state.schema.typed_options.get(MANIFEST_TARGET_FILE_SIZE))
    merged = planned.manifests - planned.small + max(1, -(-planned.bytes // target))
    return inspection.build_remedy(COMPACT_MANIFESTS, replace(inspection.health, manifests=merged))


def _predict_indexes(inspection: Inspection) -> Remedy | None:
    planned = rewrite_file_index.plan(
        inspection.table, RewriteFileIndexRequest(), state=inspection.state
    )
    if not planned:
        return None
    health = replace(inspection.health, index_coverage=1.0)
    return inspection.build_remedy(REWRITE_FILE_INDEX, health)


def _predict_expiration(inspection: Inspection) -> Remedy | None:
    now = time.time() if inspection.now is None else inspection.now
    snapshots, options = inspection.state.snapshots, inspection.state.schema.typed_options
    # as many as expire, because a run that stops at snapshot.expire.limit is continued by others
    limits = RetentionRequest(max_deletes=snapshots.latest_id())
    retention = Retention.of_snapshots(options, int(now * 1000), limits)
    consumers = read_retaining_consumers(inspection.state)
    end = find_first_retained_snapshot(snapshots, retention, consumers.values())
    oldest = None if end is None else snapshots.find(end)
    if end is None or oldest is None:
        return None
    health = replace(
        inspection.health,
        snapshots=sum(number >= end for number in snapshots.ids()),
        oldest_snapshot_age=now - oldest.time_millis / 1000,
    )
    return inspection.build_remedy(EXPIRE_SNAPSHOTS, health)


_PREDICTIONS: Mapping[str, Callable[[Inspection], Remedy | None]] = {
    COMPACT: lambda each: predict_compaction_of(each, COMPACT, CompactRequest()),
    COMPACT_FULLY: lambda each: predict_compaction_of(
        each, COMPACT_FULLY, CompactRequest(strategy="full")
    ),
    MATERIALIZE_VECTORS: _predict_materialization,
    COMPACT_MANIFESTS: _predict_merged_manifests,
    REWRITE_FILE_INDEX: _predict_indexes,
    EXPIRE_SNAPSHOTS: _predict_expiration,
}
