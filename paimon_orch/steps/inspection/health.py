"""Metrics that show which maintenance a table needs."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.cleanup import remove_orphan_files
from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table import Table

SMALL_FILE_RATIO = 0.7  # files below this share of the target size are small files


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
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
            f"at most {self.max_sorted_runs} sorted runs, "
            f"level 0 {self.level0_bytes / 1e6:,.1f} MB, "
            f"deleted rows {self.deleted_ratio:.0%}, bucket skew {self.bucket_skew:.1f}{covered}; "
            f"snapshots {self.snapshots} (oldest {self.oldest_snapshot_age / 3600:,.1f} h), "
            f"tags {self.tags}, branches {self.branches}; "
            f"manifests {self.manifests} ({self.manifest_bytes / 1e6:,.1f} MB)"
        )


def compute_health(table: Table, *, orphans: bool = False, now: float | None = None) -> TableHealth:
    """Compute the health from the metadata of the newest snapshot; opens no data files.

    With ``orphans``, lists all files of the table to find orphan files.
    """
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return TableHealth(branches=len(table.branches.names()))
    health = compute_snapshot_health(table, snapshot, table.files(snapshot), now=now)
    if not orphans:
        return health
    return replace(
        health, orphan_bytes=remove_orphan_files.plan(table, RemoveOrphanFilesRequest()).bytes
    )


def compute_snapshot_health(
    table: Table, snapshot: Snapshot, splits: Sequence[BucketSplit], *, now: float | None = None
) -> TableHealth:
    """Return the health of the newest snapshot with the given files."""
    schema, current_time = table.schema, time.time() if now is None else now
    files = [file for split in splits for file in split.files]
    ids = table.stores.snapshots.ids()
    earliest = table.stores.snapshots.earliest_id() or snapshot.id
    manifests = table.stores.manifests.manifests(snapshot)
    level0 = [file for file in files if file.level == 0] if schema.primary_keys else []
    return TableHealth(
        files=len(files),
        bytes=sum(file.file_size for file in files),
        small_files=count_small_files(splits, schema),
        level0_files=len(level0),
        level0_bytes=sum(file.file_size for file in level0),
        max_sorted_runs=compute_max_sorted_runs(splits, schema),
        deleted_ratio=compute_deleted_ratio(splits),
        bucket_skew=_compute_bucket_skew(splits),
        index_coverage=_compute_index_coverage(files, schema),
        snapshots=sum(number >= earliest for number in ids),
        oldest_snapshot_age=current_time - table.stores.snapshots.get(earliest).time_millis / 1000,
        newest_snapshot_age=current_time - snapshot.time_millis / 1000,
        tags=len(table.tags.names()),
        branches=len(table.branches.names()),
        manifests=len(manifests),
        manifest_bytes=sum(meta.file_size for meta in manifests),
    )


def count_small_files(splits: Sequence[BucketSplit], schema: TableSchema) -> int:
    """Count small files, except those that are the only file of their bucket."""
    target = schema.typed_options.target_file_size(primary_key=bool(schema.primary_keys))
    return sum(
        sum(file.file_size < SMALL_FILE_RATIO * target for file in split.files)
        for split in splits
        if len(split.files) > 1
    )


def compute_max_sorted_runs(splits: Sequence[BucketSplit], schema: TableSchema) -> int:
    """Return the maximum number of sorted runs in a bucket."""
    if not schema.primary_keys:
        return 0
    merged = [split for split in splits if split.bucket >= 0]
    return max((len(build_bucket_runs(split.files, schema)) for split in merged), default=0)


def compute_deleted_ratio(splits: Sequence[BucketSplit]) -> float:
    """Return the share of physical rows that are deleted or that retract other rows."""
    rows = sum(split.row_count for split in splits)
    deleted = sum(
        entry.cardinality or 0
        for split in splits
        for item in split.vectors
        for entry in item.ranges or ()
    )
    retracts = sum(file.delete_row_count or 0 for split in splits for file in split.files)
    return (deleted + retracts) / rows if rows else 0.0


def _compute_bucket_skew(splits: Sequence[BucketSplit]) -> float:
    """Return the maximum ratio of a bucket's size to the mean of its partition's buckets."""
    sizes_by_partition: dict[bytes, list[int]] = {}
    totals: dict[bytes, int] = {}
    for split in splits:
        sizes_by_partition.setdefault(split.partition, []).append(
            sum(f.file_size for f in split.files)
        )
        totals[split.partition] = max(split.total_buckets, len(sizes_by_partition[split.partition]))
    skews = [
        max(bucket_sizes) * totals[partition] / sum(bucket_sizes)
        for partition, bucket_sizes in sizes_by_partition.items()
        if sum(bucket_sizes)
    ]
    return max(skews, default=1.0)


def _compute_index_coverage(files: Sequence[DataFileMeta], schema: TableSchema) -> float | None:
    has_index_options = any(
        key.startswith("file-index.") and key.endswith(".columns") for key in schema.options
    )
    if not has_index_options:
        return None
    covered = sum(
        file.embedded_index is not None or any(name.endswith(".index") for name in file.extra_files)
        for file in files
    )
    return covered / len(files) if files else 1.0
