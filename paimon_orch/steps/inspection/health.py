"""Metrics that show which maintenance a table needs."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.display import Displayable, format_count, format_size
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import is_blob
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.metadata.live_buckets import LiveBuckets, group_vectors
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.table import Table
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth(Displayable):
    """Metrics of the newest snapshot and of the metadata; sizes in bytes, ages in seconds."""

    files: int = 0
    bytes: int = 0
    small_files: int = 0
    level0_files: int = 0
    level0_bytes: int = 0
    max_sorted_runs: int = 0
    """The maximum number of sorted runs that readers merge in a bucket."""
    deleted_ratio: float = 0.0
    """The share of physical rows that are deleted by deletion vectors or retract other rows."""
    bucket_skew: float = 1.0
    """The maximum ratio of a bucket's size to the mean bucket size of its partition."""
    index_coverage: float | None = None
    """The share of files with a file index, or None if the table's options define no index."""
    snapshots: int = 0
    oldest_snapshot_age: float = 0.0
    newest_snapshot_age: float = 0.0
    tags: int = 0
    branches: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    orphan_bytes: int | None = None
    """The total size of orphan files, or None if they were not searched."""

    def to_dict(self) -> dict[str, object]:
        """Return the metrics as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the metrics as one line of text."""
        covered = "" if self.index_coverage is None else f", indexed {self.index_coverage:.0%}"
        return (
            f"at most {format_count(self.max_sorted_runs, 'sorted run')}, "
            f"level 0 {format_size(self.level0_bytes)}, "
            f"deleted rows {self.deleted_ratio:.0%}, bucket skew {self.bucket_skew:.1f}{covered}; "
            f"snapshots {self.snapshots} (oldest {self.oldest_snapshot_age / 3600:,.1f} h), "
            f"tags {self.tags}, branches {self.branches}; "
            f"manifests {self.manifests} ({format_size(self.manifest_bytes)})"
        )


@repeat_if_expired
def compute_health(table: Table, *, orphans: bool = False, now: float | None = None) -> TableHealth:
    """Compute the health from the metadata of the newest snapshot; opens no data files.

    With ``orphans``, lists all files of the table to find orphan files.
    """
    state = table.load(with_lists=True)
    snapshot = state.snapshot
    if snapshot is None:
        return TableHealth(branches=len(state.branches.names()))
    read_history = start_history(state, snapshot)
    health = compute_snapshot_health(
        snapshot, read_live_buckets(state, snapshot), read_history(), now=now
    )
    if not orphans:
        return health
    from paimon_orch.steps.cleanup import remove_orphan_files
    from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest

    return replace(
        health, orphan_bytes=remove_orphan_files.plan(table, RemoveOrphanFilesRequest()).bytes
    )


def read_live_buckets(state: TableStores, snapshot: Snapshot) -> LiveBuckets:
    """Read the columns of a snapshot's live files that the health is computed from.

    Includes the names of files if the snapshot has deletion vectors.
    """
    schema, manifests = state.get_schema(), state.manifests
    vectors = group_vectors(manifests.read_index_entries(snapshot))
    files = manifests.read_live_files(
        snapshot,
        with_names=bool(vectors) or any(is_blob(field.type) for field in schema.fields),
        with_indexed=has_index_options(schema),
        with_row_ids=schema.typed_options.get(DATA_EVOLUTION_ENABLED),
        key_types=[field.type for field in schema.key_fields] or None,
    )
    return LiveBuckets(snapshot, manifests, schema, files.group_by_bucket(), vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """The older states of a table, as far as the health needs them."""

    snapshots: int
    oldest: Snapshot
    tags: int
    branches: int


def start_history(state: TableStores, newest: Snapshot) -> Callable[[], TableHistory]:
    """Start to read the history; the returned function waits for it."""
    count_tags = start_call(state.io, lambda: len(state.tags.names()))
    count_branches = start_call(state.io, lambda: len(state.branches.names()))
    read_snapshots = start_call(state.io, partial(_read_snapshots, state.snapshots, newest))

    def read() -> TableHistory:
        count, oldest = read_snapshots()
        return TableHistory(
            snapshots=count, oldest=oldest, tags=count_tags(), branches=count_branches()
        )

    return read


def _read_snapshots(store: SnapshotStore, newest: Snapshot) -> tuple[int, Snapshot]:
    """Return the number of snapshots that are not expired, and the oldest one that can be read.

    A damaged one is a finding of doctor and check, and does not matter for the others.
    """
    ids = store.list_retained_ids()
    expired = 0
    for number in sorted(ids):
        if number == newest.id:
            break
        with suppress(CorruptFileError):
            oldest = store.find(number)
            if oldest is not None:
                return len(ids) - expired, oldest
            expired += 1
    return len(ids) - expired, newest


def compute_snapshot_health(
    snapshot: Snapshot, buckets: LiveBuckets, history: TableHistory, *, now: float | None = None
) -> TableHealth:
    """Return the health of the newest snapshot with the given files.

    Raises :class:`CorruptFileError` if files of a level overlap.
    """
    current_time = time.time() if now is None else now
    metrics = BucketMetrics(buckets)
    manifests = buckets.groups.files.manifests
    return TableHealth(
        files=int(metrics.files.sum()),
        bytes=int(metrics.bytes.sum()),
        small_files=int(metrics.small_files.sum()),
        level0_files=int(metrics.level0_files.sum()),
        level0_bytes=int(metrics.level0_bytes.sum()),
        max_sorted_runs=metrics.compute_max_sorted_runs(),
        deleted_ratio=metrics.deleted_ratio,
        bucket_skew=metrics.skew,
        index_coverage=_compute_index_coverage(buckets),
        snapshots=history.snapshots,
        oldest_snapshot_age=current_time - history.oldest.time_millis / 1000,
        newest_snapshot_age=current_time - snapshot.time_millis / 1000,
        tags=history.tags,
        branches=history.branches,
        manifests=len(manifests),
        manifest_bytes=sum(meta.file_size for meta in manifests),
    )


def has_index_options(schema: TableSchema) -> bool:
    """Return whether the options of a table define a file index."""
    return any(key.startswith("file-index.") and key.endswith(".columns") for key in schema.options)


def _compute_index_coverage(buckets: LiveBuckets) -> float | None:
    indexed = buckets.groups.files.indexed
    if indexed is None:
        return None
    return float(indexed.mean()) if len(indexed) else 1.0
