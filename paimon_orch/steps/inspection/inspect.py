"""Reports the snapshot, files, levels, deletion vectors and health of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.steps.inspection.health import TableHealth, compute_health, compute_snapshot_health
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.unseen_rows import Visibility
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketReport:
    """The files of a bucket."""

    partition: str
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    vectors: dict[str, int]
    """The number of deleted rows, by data file name."""

    @property
    def deleted_rows(self) -> int:
        """Return the number of rows that deletion vectors delete."""
        return sum(self.vectors.values())

    def to_dict(self) -> dict[str, object]:
        """Return the bucket as JSON values."""
        return {
            "bucket": self.bucket,
            "total_buckets": self.total_buckets,
            "rows": sum(file.row_count for file in self.files),
            "deleted_rows": self.deleted_rows,
            "bytes": sum(file.file_size for file in self.files),
            "files": [
                {
                    "name": file.file_name,
                    "level": file.level,
                    "rows": file.row_count,
                    "delete_rows": file.delete_row_count,
                    "bytes": file.file_size,
                    "sequence": [file.min_sequence_number, file.max_sequence_number],
                    "schema_id": file.schema_id,
                    "deleted_rows": self.vectors.get(file.file_name, 0),
                }
                for file in self.files
            ],
            "deletion_vectors": [
                {"file": name, "cardinality": count} for name, count in sorted(self.vectors.items())
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """Counts and sizes in bytes of a snapshot."""

    identifier: str
    location: str
    schema: TableSchema
    snapshot: Snapshot | None
    buckets: tuple[BucketReport, ...]
    health: TableHealth | None = None
    problem: str | None = None
    """The error in the table's metadata because of which the health could not be computed."""

    @property
    def snapshot_id(self) -> int | None:
        """Return the id of the snapshot, or None if the table is empty."""
        return None if self.snapshot is None else self.snapshot.id

    @property
    def files(self) -> list[DataFileMeta]:
        """Return all live data files."""
        return [file for bucket in self.buckets for file in bucket.files]

    @property
    def file_count(self) -> int:
        """Return the number of live data files."""
        return len(self.files)

    @property
    def bytes(self) -> int:
        """Return the total size of the live data files in bytes."""
        return sum(file.file_size for file in self.files)

    @property
    def physical_rows(self) -> int:
        """Return the number of rows in all live files."""
        return sum(file.row_count for file in self.files)

    @property
    def deleted_rows(self) -> int:
        """Return the number of rows that deletion vectors delete."""
        return sum(bucket.deleted_rows for bucket in self.buckets)

    @property
    def row_count(self) -> int | None:
        """Return the number of rows that a batch reader sees, or None if that requires a merge."""
        if not self.schema.primary_keys:
            return self.physical_rows - self.deleted_rows
        visible = self.files
        if self.schema.typed_options.should_skip_level0:
            visible = [file for file in visible if file.level > 0]
        elif any(len({file.level for file in bucket.files}) > 1 for bucket in self.buckets):
            return None
        if any(file.delete_row_count or file.level == 0 for file in visible):
            return None
        return sum(file.row_count for file in visible) - self.deleted_rows

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that batch readers skip until they are compacted."""
        skips = Visibility(self.schema).skips_level_0
        return sum(
            file.row_count
            for bucket in self.buckets
            for file in bucket.files
            if bucket.bucket < 0 or (skips and file.level == 0)
        )

    @property
    def level0_files(self) -> int:
        """Return the number of files on level 0, which are not compacted yet."""
        return sum(file.level == 0 for file in self.files) if self.schema.primary_keys else 0

    @property
    def small_files(self) -> int:
        """Count files below 70 % of the target size, except the only file of a bucket."""
        target = self.schema.typed_options.target_file_size(
            primary_key=bool(self.schema.primary_keys)
        )
        return sum(
            sum(file.file_size < 0.7 * target for file in bucket.files)
            for bucket in self.buckets
            if len(bucket.files) > 1
        )

    @property
    def partitions(self) -> list[str]:
        """Return the partitions that have files, in the order of their buckets."""
        return list(dict.fromkeys(bucket.partition for bucket in self.buckets))

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "table": self.identifier,
            "location": self.location,
            "schema": _schema_to_dict(self.schema),
            "snapshot": None if self.snapshot is None else _snapshot_to_dict(self.snapshot),
            "totals": {
                "rows": self.row_count,
                "physical_rows": self.physical_rows,
                "deleted_rows": self.deleted_rows,
                "rows_not_visible": self.rows_not_visible,
                "files": self.file_count,
                "bytes": self.bytes,
                "level0_files": self.level0_files,
                "small_files": self.small_files,
                "partitions": len(self.partitions),
                "buckets": len(self.buckets),
            },
            "health": None if self.health is None else self.health.to_dict(),
            "problem": self.problem,
            "partitions": [
                {
                    "partition": name,
                    "buckets": [b.to_dict() for b in self.buckets if b.partition == name],
                }
                for name in self.partitions
            ],
        }


def _schema_to_dict(schema: TableSchema) -> dict[str, object]:
    return {
        "id": schema.id,
        "columns": [{"name": f.name, "type": type_to_sql(f.type)} for f in schema.fields],
        "primary_key": list(schema.primary_keys),
        "partition_by": list(schema.partition_keys),
        "options": hide_secrets(schema.options),
    }


def _snapshot_to_dict(snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": snapshot.id,
        "kind": snapshot.commit_kind.value,
        "time_millis": snapshot.time_millis,
        "commit_user": snapshot.commit_user,
        "total_record_count": snapshot.total_record_count,
        "delta_record_count": snapshot.delta_record_count,
    }


def inspect(table: Table, snapshot_id: int | None = None) -> TableReport:
    """Summarize the metadata of a snapshot, by default the newest; opens no data files.

    The health of the table is included only for its newest snapshot.
    """
    snapshot = table.snapshot(snapshot_id)
    schema = table.schema
    splits: Sequence[BucketSplit] = [] if snapshot is None else table.files(snapshot)
    reports = [_build_bucket_report(split, schema) for split in splits]
    reports.sort(key=lambda report: (report.partition, report.bucket))
    health, problem = None, None
    if snapshot_id is None:
        health, problem = _try_health(table, snapshot, splits)
    return TableReport(
        identifier=table.identifier,
        location=table.paths.root,
        schema=schema,
        snapshot=snapshot,
        buckets=tuple(reports),
        health=health,
        problem=problem,
    )


def _try_health(
    table: Table, snapshot: Snapshot | None, splits: Sequence[BucketSplit]
) -> tuple[TableHealth | None, str | None]:
    """Return the health, or the problem that prevents computing it."""
    try:
        if snapshot is None:
            return compute_health(table), None
        return compute_snapshot_health(table, snapshot, splits), None
    except CorruptFileError as error:  # for example, overlapping files of a sorted run
        return None, str(error)


def _build_bucket_report(split: BucketSplit, schema: TableSchema) -> BucketReport:
    live = {file.file_name for file in split.files}
    vectors = {
        entry.data_file: entry.cardinality or 0
        for item in split.vectors
        for entry in item.ranges or ()
        if entry.data_file in live
    }
    files = tuple(sorted(split.files, key=lambda f: (f.level, -f.max_sequence_number, f.file_name)))
    return BucketReport(
        partition=format_partition(split.partition, schema),
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        files=files,
        vectors=vectors,
    )
