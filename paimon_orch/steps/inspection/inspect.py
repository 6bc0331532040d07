"""Reports the snapshot, files, levels, deletion vectors and health of a table."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.display import Displayable
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import type_to_sql
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.steps.inspection.health import (
    TableHealth,
    compute_snapshot_health,
    read_live_buckets,
    start_history,
)
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.bucket_split import BucketSplit, check_cardinality
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


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


class BucketSummary(NamedTuple):
    """Counts and sizes in bytes of a bucket."""

    partition: str
    bucket: int
    files_by_level: dict[int, int]
    rows: int
    deleted_rows: int
    """The number of rows that deletion vectors delete."""
    bytes: int


@dataclass(frozen=True, kw_only=True)
class TableReport(Displayable):
    """Counts and sizes in bytes of a snapshot."""

    identifier: str
    location: str
    schema: TableSchema
    snapshot: Snapshot | None
    live: LiveBuckets | None = None
    """The live files by bucket, ordered by partition and bucket; None if the table is empty."""
    health: TableHealth | None = None
    problem: str | None = None
    """The error in the table's metadata because of which the health could not be computed."""

    @property
    def snapshot_id(self) -> int | None:
        """Return the id of the snapshot, or None if the table is empty."""
        return None if self.snapshot is None else self.snapshot.id

    @cached_property
    def _metrics(self) -> BucketMetrics | None:
        return None if self.live is None else BucketMetrics(self.live)

    @property
    def bucket_count(self) -> int:
        """Return the number of buckets that have files."""
        return 0 if self.live is None else len(self.live)

    @property
    def file_count(self) -> int:
        """Return the number of live data files."""
        return 0 if self._metrics is None else int(self._metrics.files.sum())

    @property
    def bytes(self) -> int:
        """Return the total size of the live data files in bytes."""
        return 0 if self._metrics is None else int(self._metrics.bytes.sum())

    @property
    def physical_rows(self) -> int:
        """Return the number of rows in all live files."""
        return 0 if self._metrics is None else int(self._metrics.rows.sum())

    @property
    def deleted_rows(self) -> int:
        """Return the number of rows that deletion vectors delete."""
        return sum(self._deleted_rows.values())

    @cached_property
    def _deleted_rows(self) -> Mapping[int, int]:
        """The number of rows that deletion vectors delete, by the index of the bucket."""
        if self.live is None:
            return {}
        return {
            number: sum(_count_deleted_rows(entries, self._list_row_counts(number)).values())
            for number, entries in self.live.iterate_vectors()
        }

    def _list_row_counts(self, bucket: int) -> dict[str, int]:
        assert self.live is not None
        [rows] = self.live.groups.take(np.array([bucket])).split()
        files = self.live.groups.files
        assert files.names is not None
        names = files.names.take(pa.array(rows)).to_pylist()
        return dict(zip(names, files.row_counts[rows].tolist(), strict=True))

    @property
    def row_count(self) -> int | None:
        """Return the number of rows that a batch reader sees, or None if that requires a merge."""
        if self.live is None:
            return 0
        if not self.schema.primary_keys:
            return self.physical_rows - self.deleted_rows
        groups = self.live.groups
        files = groups.files.take(groups.rows)
        if self.schema.skips_level_0:
            files = files.take(np.flatnonzero(files.levels > 0))
        elif not self._has_single_levels:
            return None
        if (files.delete_row_counts > 0).any() or (files.levels == 0).any():
            return None
        return int(files.row_counts.sum()) - self.deleted_rows

    @property
    def _has_single_levels(self) -> bool:
        """Return whether all files of each bucket are on one level."""
        assert self.live is not None
        groups = self.live.groups
        first_levels = np.repeat(groups.files.levels[groups.first_rows], groups.lengths)
        return bool((groups.files.levels[groups.rows] == first_levels).all())

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that batch readers skip until they are compacted."""
        if self.live is None:
            return 0
        groups = self.live.groups
        files = groups.files.take(groups.rows)
        is_skipped = files.buckets < 0
        if self.schema.skips_level_0:
            is_skipped |= files.levels == 0
        return int(files.row_counts[is_skipped].sum())

    @property
    def level0_files(self) -> int:
        """Return the number of files on level 0, which are not compacted yet."""
        return 0 if self._metrics is None else int(self._metrics.level0_files.sum())

    @property
    def small_files(self) -> int:
        """Count files below 70 % of the target size, except the only file of a bucket."""
        return 0 if self._metrics is None else int(self._metrics.small_files.sum())

    @property
    def max_sorted_runs(self) -> int:
        """Return the maximum number of sorted runs that a reader merges in a bucket.

        Raises :class:`CorruptFileError` if files of a level overlap.
        """
        return 0 if self._metrics is None else self._metrics.compute_max_sorted_runs()

    @property
    def partitions(self) -> list[str]:
        """Return the partitions that have files, in the order of their buckets."""
        if self.live is None:
            return []
        return [format_partition(each, self.schema) for each in self.live.partitions]

    @property
    def buckets(self) -> list[BucketReport]:
        """Return the files of all buckets, with one object per file; reads manifests again."""
        if self.live is None:
            return []
        return [_build_bucket_report(split, self.schema) for split in self.live.build_splits()]

    def summarize_buckets(self, limit: int) -> Iterator[BucketSummary]:
        """Yield the counts of the first buckets."""
        if self.live is None or self._metrics is None:
            return
        groups, metrics = self.live.groups, self._metrics
        codes = groups.partition_codes[:limit].tolist()
        paths = {
            code: format_partition(groups.files.partitions[code], self.schema)
            for code in dict.fromkeys(codes)
        }
        numbers = groups.buckets[:limit].tolist()
        for index, rows in zip(range(limit), groups.split(), strict=False):
            levels, counts = np.unique(groups.files.levels[rows], return_counts=True)
            yield BucketSummary(
                partition=paths[codes[index]],
                bucket=numbers[index],
                files_by_level=dict(zip(levels.tolist(), counts.tolist(), strict=True)),
                rows=int(metrics.rows[index]),
                deleted_rows=self._deleted_rows.get(index, 0),
                bytes=int(metrics.bytes[index]),
            )

    def select_partition(self, path: str) -> "TableReport":
        """Return the part of the report for one partition."""
        if self.live is None:
            return self
        groups = self.live.groups
        partitions = groups.files.partitions
        is_selected = np.array([format_partition(p, self.schema) == path for p in partitions], bool)
        live = self.live.take(np.flatnonzero(is_selected[groups.partition_codes]))
        return replace(self, live=live)

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
                "buckets": self.bucket_count,
            },
            "health": None if self.health is None else self.health.to_dict(),
            "problem": self.problem,
            "partitions": [
                {"partition": name, "buckets": [bucket.to_dict() for bucket in buckets]}
                for name, buckets in groupby(self.buckets, key=lambda bucket: bucket.partition)
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


@repeat_if_expired
def inspect(table: Table, snapshot_id: int | None = None) -> TableReport:
    """Summarize the metadata of a snapshot, by default the newest; opens no data files.

    The health of the table is included only for its newest snapshot.
    """
    if snapshot_id is None:
        return inspect_newest(table.load(with_lists=True))
    state = table.load()
    return inspect_snapshot(state, state.snapshots.get(snapshot_id))


def inspect_snapshot(state: TableState, snapshot: Snapshot | None) -> TableReport:
    """Summarize the metadata of a snapshot, without the health of the table."""
    live = None if snapshot is None else _sort_buckets(read_live_buckets(state, snapshot))
    return _build_report(state, snapshot, live)


def inspect_newest(state: TableState) -> TableReport:
    """Summarize the metadata of the newest snapshot, as :func:`inspect` does."""
    snapshot = state.snapshot
    if snapshot is None:
        health = TableHealth(branches=len(state.branches.names()))
        return replace(_build_report(state, None, None), health=health)
    read_history = start_history(state, snapshot)
    live = _sort_buckets(read_live_buckets(state, snapshot))
    report, history = _build_report(state, snapshot, live), read_history()
    try:
        return replace(report, health=compute_snapshot_health(snapshot, live, history))
    except CorruptFileError as error:  # for example, overlapping files of a sorted run
        return replace(report, problem=str(error))


def _build_report(
    state: TableState, snapshot: Snapshot | None, live: LiveBuckets | None
) -> TableReport:
    return TableReport(
        identifier=state.identifier,
        location=state.paths.root,
        schema=state.schema,
        snapshot=snapshot,
        live=live,
    )


def _sort_buckets(buckets: LiveBuckets) -> LiveBuckets:
    """Return the buckets ordered by the text of their partition and their number."""
    groups = buckets.groups
    paths = [format_partition(each, buckets.schema) for each in groups.files.partitions]
    ranks = np.zeros(len(paths), np.int64)
    ranks[sorted(range(len(paths)), key=paths.__getitem__)] = np.arange(len(paths))
    return buckets.take(np.lexsort((groups.buckets, ranks[groups.partition_codes])))


def _count_deleted_rows(
    vectors: Iterable[IndexManifestEntry], row_counts: Mapping[str, int]
) -> dict[str, int]:
    """Return the number of deleted rows of live files by name, as the metadata states it.

    Raises :class:`CorruptFileError` for a number that is greater than the number of rows.
    """
    deleted = {}
    for vector in (each for item in vectors for each in item.ranges or ()):
        if vector.data_file in row_counts:
            check_cardinality(vector, row_counts[vector.data_file])
            deleted[vector.data_file] = vector.cardinality or 0
    return deleted


def _build_bucket_report(split: BucketSplit, schema: TableSchema) -> BucketReport:
    row_counts = {file.file_name: file.row_count for file in split.files}
    vectors = _count_deleted_rows(split.vectors, row_counts)
    files = tuple(sorted(split.files, key=lambda f: (f.level, -f.max_sequence_number, f.file_name)))
    return BucketReport(
        partition=format_partition(split.partition, schema),
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        files=files,
        vectors=vectors,
    )
