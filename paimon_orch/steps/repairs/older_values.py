"""Finds the rows that become visible when other files of a primary-key table are lost.

They are older, except with a ``sequence.field`` or a merge engine for which the order of the writes
does not decide which values readers see.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import format_count
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.options.core_options import (
    MERGE_ENGINE,
    SEQUENCE_FIELD,
    SEQUENCE_SNAPSHOT_ORDERING,
)
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.sort.key_order import Key, KeyColumns, decode_key_bounds
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderValues:
    """The rows of other files that may have the keys of a lost file."""

    bucket: PartitionBucket
    place: str
    """The partition and bucket, as text."""
    min_key: str
    max_key: str
    bounds: tuple[Key, Key]
    rows: int
    """The number of physical rows of the other files."""
    are_older: bool
    """Whether all of them are older than those of the lost file."""

    def __str__(self) -> str:
        """Return a line for the plan of a repair."""
        rows, files = format_count(self.rows, "row"), "older" if self.are_older else "other"
        return f"{self.place}, keys {self.min_key} to {self.max_key}: {rows} of {files} files"

    def to_dict(self) -> dict[str, object]:
        """Return JSON values."""
        return {
            "bucket": self.place,
            "min_key": self.min_key,
            "max_key": self.max_key,
            "rows": self.rows,
        }


def find_older_values(
    state: TableState, missing: Sequence[ManifestEntry]
) -> tuple[OlderValues, ...]:
    """Return the rows in the key ranges of missing files that these may have hidden.

    Rows that a compaction has deleted by deletion vectors stay deleted.
    """
    schema, options = state.schema, state.schema.typed_options
    if not missing or not schema.has_runs_sorted_by_key:
        return ()
    lost: dict[PartitionBucket, list[DataFileMeta]] = {}
    for entry in missing:
        if not (options.has_deletion_vectors and entry.file.level):
            bucket = PartitionBucket(entry.partition, entry.bucket)
            lost.setdefault(bucket, []).append(entry.file)
    names = {entry.file.file_name for entry in missing}
    found = (
        _compare(schema, split.partition_bucket, file, split.files, names)
        for split in state.files()
        for file in lost.get(split.partition_bucket, ())
    )
    return tuple(older for older in found if older.rows)


def _compare(
    schema: TableSchema,
    bucket: PartitionBucket,
    lost: DataFileMeta,
    files: Sequence[DataFileMeta],
    missing: set[str],
) -> OlderValues:
    fields = schema.key_fields
    low, high = decode_key_bounds(lost, fields)
    rows, only_older = 0, keeps_newest_write(schema)
    for file in files:
        is_newer = file.min_sequence_number > lost.max_sequence_number
        if file.file_name in missing or (only_older and is_newer):
            continue
        start, end = decode_key_bounds(file, fields)
        rows += file.row_count * (low <= end and start <= high)
    partition = format_partition(bucket.partition, schema)
    types = [field.type for field in fields]
    keys = (deserialize_row(key, types) for key in (lost.min_key, lost.max_key))
    min_key, max_key = (f"({', '.join(map(str, key))})" for key in keys)
    return OlderValues(
        bucket=bucket,
        place=f"{partition}/bucket-{bucket.bucket}".lstrip("/"),
        min_key=min_key,
        max_key=max_key,
        bounds=(low, high),
        rows=rows,
        are_older=only_older,
    )


def keeps_newest_write(schema: TableSchema) -> bool:
    """Return whether readers see the row of each key that was written last."""
    options = schema.typed_options
    return (
        options.get(MERGE_ENGINE) == "deduplicate"
        and not options.get(SEQUENCE_FIELD)
        and not options.get(SEQUENCE_SNAPSHOT_ORDERING)
    )


def read_older_values(
    table: Table,
    schema: TableSchema,
    older: Sequence[OlderValues],
    missing: Sequence[ManifestEntry],
) -> Iterator[pa.Table]:
    """Yield the rows in the lost key ranges that readers see without the missing files."""
    names = {entry.file.file_name for entry in missing}
    keys = schema.trimmed_primary_keys
    scan = table.scan()
    for split in scan.plan():
        bounds = [each.bounds for each in older if each.bucket == split.partition_bucket]
        files = tuple(file for file in split.files if file.file_name not in names)
        if not bounds or not files:
            continue
        postponed = tuple(file for file in split.postponed_files if file.file_name not in names)
        for batch in scan.read_split(replace(split, files=files, postponed_files=postponed)):
            columns = KeyColumns.of(batch, keys)
            in_range = np.any([columns.find_between(*each) for each in bounds], axis=0)
            rows = pa.Table.from_batches([batch]).filter(pa.array(in_range))
            if rows.num_rows:
                yield rows
