"""The files of one bucket to read: the unit of a scan.

See docs/format/scan.md.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.arrays import Positions
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import DeletionVectorRange, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.row_range_set import RowRanges
from paimon_orch.format.schema import TableSchema

_MAX_SELECTED_SHARE = 1 / 16  # if more rows are selected, reading all rows of a file is faster


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOrigin:
    """Where a chain table stores a file that is read as a file of another partition."""

    file_name: str
    partition: bytes
    is_anchor: bool
    """Whether the file belongs to the snapshot branch, not the delta branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSplit:
    """The live files of one bucket, and the index files of their deletion vectors."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    vectors: tuple[IndexManifestEntry, ...] = ()

    is_fallback: bool = False
    """Whether the files belong to the fallback branch (``scan.fallback-branch``)."""

    postponed_files: tuple[DataFileMeta, ...] = ()
    """Postponed files of the partition to merge with, in order (``postpone.merge-on-read``)."""

    origins: tuple[FileOrigin, ...] = ()
    """The origins of the files of chain tables; empty if all are stored in :attr:`partition`."""

    row_ids: RowRanges | None = field(default=None, compare=False)
    """The rows that may match the filter by global indexes (data evolution); None for all rows."""

    file_rows: Mapping[str, RowRanges] | None = field(default=None, compare=False)
    """The rows of files that may match the filter by indexes (primary keys), by file name."""

    @property
    def is_chained(self) -> bool:
        """Return whether the rows of a chain table must be merged.

        This is the case for files of several partitions or branches, and with deleted rows.
        """
        sources = {(origin.partition, origin.is_anchor) for origin in self.origins}
        return len(sources) > 1 or bool(sources and self.vectors)

    @property
    def partition_bucket(self) -> PartitionBucket:
        """Return the partition and bucket of the split."""
        return PartitionBucket(self.partition, self.bucket)

    @property
    def row_count(self) -> int:
        """Return the number of physical rows, including deleted ones."""
        return sum(file.row_count for file in self.files)


def clip_to_files(row_ids: RowRanges | None, files: Iterable[DataFileMeta]) -> RowRanges | None:
    """Return the selected rows between the first and the last row of some files."""
    ranges = [(f.first_row_id, f.row_count) for f in files if f.first_row_id is not None]
    if row_ids is None or not ranges:
        return row_ids
    return row_ids.clip(min(ranges)[0], max(first + count for first, count in ranges))


def find_selected_rows(file: DataFileMeta, split: BucketSplit) -> Positions | None:
    """Return the positions of the rows of a file that indexes select.

    None means that all rows should be read: all are selected, or many.
    """
    start, rows = 0, (split.file_rows or {}).get(file.file_name)
    if split.row_ids is not None and file.first_row_id is not None:
        start, rows = file.first_row_id, split.row_ids
    if rows is None:
        return None
    rows = rows.clip(start, start + file.row_count)
    if rows.count > _MAX_SELECTED_SHARE * file.row_count:
        return None
    return rows.to_positions(start, start + file.row_count)


def count_visible_rows(split: BucketSplit, schema: TableSchema) -> int | None:
    """Count the live rows; return None if this requires a merge or the deletion vectors."""
    needs_merge = not is_raw_convertible(split.files, schema)
    # With data evolution, several files contain columns of the same rows.
    if (
        split.is_chained
        or needs_merge
        or split.postponed_files
        or schema.typed_options.get(DATA_EVOLUTION_ENABLED)
    ):
        return None
    for file in split.files:
        if file.row_count < 0:
            raise CorruptFileError(file.file_name, f"has {file.row_count} rows, by its manifest")
    deleted = count_deleted_rows(split, {file.file_name for file in split.files})
    return None if deleted is None else split.row_count - deleted


def count_deleted_rows(split: BucketSplit, names: Container[str]) -> int | None:
    """Count the rows that deletion vectors delete from data files with these names.

    Returns None if old metadata lacks the number. Raises :class:`CorruptFileError` for a number
    that is greater than the number of rows.
    """
    row_counts = {file.file_name: file.row_count for file in split.files}
    total = 0
    for item in (item for entry in split.vectors for item in entry.ranges or ()):
        if item.data_file not in names:
            continue
        if item.cardinality is None:
            return None
        check_cardinality(item, row_counts[item.data_file])
        total += item.cardinality
    return total


def check_cardinality(vector: DeletionVectorRange, row_count: int) -> None:
    """Raise :class:`CorruptFileError` if a vector deletes more rows than its data file has."""
    if not 0 <= (vector.cardinality or 0) <= row_count:
        raise CorruptFileError(
            vector.data_file,
            f"has {row_count} rows, but its deletion vector deletes {vector.cardinality} rows, "
            "according to the index manifest",
        )


def is_raw_convertible(files: Sequence[DataFileMeta], schema: TableSchema) -> bool:
    """Return whether a bucket can be read without a merge: unique keys, and no retracts.

    Tables without a primary key never merge rows. See docs/format/scan.md.
    """
    if not schema.primary_keys:
        return True
    if any(file.level == 0 or file.delete_row_count for file in files):
        return len(files) == 1 and files[0].delete_row_count == 0
    options = schema.typed_options
    one_level = len({file.level for file in files}) == 1
    return one_level or options.has_deletion_vectors or options.merge_engine == "first-row"


def is_file_raw_convertible(
    files: Sequence[DataFileMeta], file: DataFileMeta, schema: TableSchema
) -> bool:
    """Return whether all rows of the file, except deleted ones, are rows of the table."""
    if schema.typed_options.get(DATA_EVOLUTION_ENABLED):
        return False
    return is_raw_convertible(files, schema) and has_known_retracts((file,), schema)


def has_known_retracts(files: Iterable[DataFileMeta], schema: TableSchema) -> bool:
    """Return whether the retracts of all files are counted, which old releases do not do."""
    return not schema.primary_keys or all(file.delete_row_count is not None for file in files)
