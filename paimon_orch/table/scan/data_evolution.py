"""Reads rows whose columns are in several files (data evolution).

An update of some columns adds files with only these columns. Files of the same rows have the same
row ids. The newest file with a column has its values. A deletion vector belongs to the oldest file
and deletes rows of all files.

See docs/format/row-tracking.md.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from paimon_orch.decode_limits import check_row_count
from paimon_orch.errors import CorruptFileError, UnsupportedError
from paimon_orch.files.blob.blob_column import BlobColumn
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.row_tracking import ROW_TRACKING_FIELDS
from paimon_orch.files.schema_evolution.evolve import find_source_field
from paimon_orch.format.arrays import Positions
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import BLOB_AS_DESCRIPTOR, DATA_EVOLUTION_ENABLED
from paimon_orch.format.paths import is_blob_file
from paimon_orch.format.row_range_set import MAX_ROW_ID
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import build_record_batch
from paimon_orch.format.types.data_types import Field, is_blob

RowIdGroup = tuple[DataFileMeta, ...]


def has_data_evolution(schema: TableSchema) -> bool:
    """Return whether the columns of a row may be in several files."""
    return schema.typed_options.get(DATA_EVOLUTION_ENABLED)


def group_files_by_rows(files: Collection[DataFileMeta]) -> list[RowIdGroup]:
    """Group files of the same rows, newest file first.

    BLOB files follow the other files of a group, and may have a part of its rows. Raises
    :class:`CorruptFileError` for row ids that are out of range, and :class:`UnsupportedError` if files
    have only a part of their rows in common.
    """
    single_files = [(file,) for file in files if file.first_row_id is None]
    numbered = [file for file in files if file.first_row_id is not None]
    for file in numbered:
        _check_row_ids(file)
    blob_files = [file for file in numbered if is_blob_file(file.file_name)]
    numbered = [file for file in numbered if not is_blob_file(file.file_name)]
    numbered.sort(key=lambda f: (f.first_row_id, f.row_count, -f.max_sequence_number, f.file_name))
    groups = [
        tuple(group) for _, group in groupby(numbered, lambda f: (f.first_row_id, f.row_count))
    ]
    end = 0
    for group in groups:
        first = group[0].first_row_id or 0
        if first < end:
            names = ", ".join(file.file_name for file in group)
            raise UnsupportedError(
                f"the files {names} have only a part of their rows in common with other files; "
                "this is not supported"
            )
        end = first + group[0].row_count
    return [*single_files, *_add_blob_files(groups, blob_files)]


def _check_row_ids(file: DataFileMeta) -> None:
    """Refuse row ids whose ranges would be empty, and a filter would leave out the rows."""
    first = file.first_row_id or 0
    if file.row_count < 0 or not 0 <= first <= first + file.row_count <= MAX_ROW_ID:
        raise CorruptFileError(
            file.file_name,
            f"its metadata states {file.row_count} rows with ids from {first}, which is out of range",
        )


def _add_blob_files(
    groups: list[RowIdGroup], blob_files: Iterable[DataFileMeta]
) -> list[RowIdGroup]:
    """Append BLOB files to the groups that have their rows."""
    starts = [group[0].first_row_id or 0 for group in groups]
    added = defaultdict[int, list[DataFileMeta]](list)
    for file in sorted(blob_files, key=lambda f: (-f.max_sequence_number, f.first_row_id or 0)):
        first = file.first_row_id or 0
        number = bisect_right(starts, first) - 1
        if number < 0 or first + file.row_count > starts[number] + groups[number][0].row_count:
            raise UnsupportedError(
                f"the BLOB file {file.file_name} has rows of several other files, or of none; "
                "this is not supported"
            )
        added[number].append(file)
    return [(*group, *added[number]) for number, group in enumerate(groups)]


def find_anchor_file(files: Iterable[DataFileMeta]) -> DataFileMeta:
    """Return the oldest of the files of the same rows; deletion vectors of the rows belong to it.

    A BLOB file is never the anchor.
    """
    return min(
        (file for file in files if not is_blob_file(file.file_name)),
        key=lambda file: (file.max_sequence_number, file.file_name),
    )


@dataclass(frozen=True, slots=True)
class DataEvolutionReader:
    """Reads the rows of one group of files."""

    reader: FileReader
    partition: bytes
    bucket: int
    files: RowIdGroup
    rows: Positions | None = None
    """The ascending positions of the rows to read; None for all rows."""

    def batches(
        self, fields: Sequence[Field], vectors: Mapping[str, DeletionVector]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are not deleted; reads each column from the newest file with it."""
        oldest = find_anchor_file(self.files)
        deletions = vectors.get(oldest.file_name)
        blob_files = {x.name: self._find_blob_files(x) for x in fields if is_blob(x.type)}
        files = [file for file in self.files if not is_blob_file(file.file_name)]
        holders = {
            x.name: next((f for f in files if self._has_column(f, x)), oldest)
            for x in fields
            if not blob_files.get(x.name)
        }
        sources = [
            self._read_blobs(name, of_column, oldest, deletions)
            for name, of_column in blob_files.items()
            if of_column
        ]
        for file in files:
            held_fields = [x for x in fields if holders.get(x.name) is file]
            if held_fields:
                bucket_file = BucketFile(self.partition, self.bucket, file, rows=self.rows)
                sources.append(self.reader.read(bucket_file, held_fields, deletions))
        names = [field.name for field in fields]
        for parts in _align_batches(sources, oldest.file_name):
            columns = {name: part.column(name) for part in parts for name in part.schema.names}
            yield build_record_batch([columns[name] for name in names], names, parts[0].num_rows)

    def _find_blob_files(self, field: Field) -> list[BucketFile]:
        return [
            BucketFile(self.partition, self.bucket, file)
            for file in self.files
            if is_blob_file(file.file_name) and self._has_column(file, field)
        ]

    def _read_blobs(
        self,
        name: str,
        files: Sequence[BucketFile],
        anchor: DataFileMeta,
        deletions: DeletionVector | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a BLOB column of the selected rows that are not deleted."""
        check_row_count(anchor.row_count, anchor.file_size, anchor.file_name)
        column = BlobColumn.of(self.reader, files, anchor.first_row_id or 0, anchor.row_count)
        rows = np.arange(anchor.row_count) if self.rows is None else self.rows
        if deletions is not None:
            deletions.check_rows(anchor.row_count, anchor.file_name)
            mask = DeletedRowMask.of(deletions).build_live_mask(0, anchor.row_count)
            rows = rows if mask is None else rows[np.asarray(mask)[rows]]
        as_descriptors = self.reader.schema.typed_options.get(BLOB_AS_DESCRIPTOR)
        return column.read(name, rows, as_descriptors=as_descriptors)

    def _has_column(self, file: DataFileMeta, field: Field) -> bool:
        if field in ROW_TRACKING_FIELDS:
            return True  # the newest file has the sequence numbers of the rows
        source = find_source_field(field, self.reader.schemas[file.schema_id].fields)
        return source is not None and (file.write_cols is None or source.name in file.write_cols)


def _align_batches(
    sources: Sequence[Iterator[pa.RecordBatch]], name: str
) -> Iterator[list[pa.RecordBatch]]:
    """Yield one batch of each source with the same rows; sources have different batch sizes."""
    pending: list[pa.RecordBatch | None] = [next(source, None) for source in sources]
    while True:
        parts = [part for part in pending if part is not None]
        if len(parts) < len(pending):
            if parts:
                raise CorruptFileError(
                    name, "and the other files of its rows have different row counts"
                )
            return
        rows = min(part.num_rows for part in parts)
        yield [part.slice(0, rows) for part in parts]
        for index, part in enumerate(parts):
            pending[index] = (
                part.slice(rows) if part.num_rows > rows else next(sources[index], None)
            )
