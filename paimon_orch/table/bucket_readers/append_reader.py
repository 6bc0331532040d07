"""Reads buckets of append tables, also those whose columns are in several files.

See docs/format/scan.md and docs/format/row-tracking.md.
"""

from collections.abc import Iterator

import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.storage.recent_inputs import iterate_ahead
from paimon_orch.table.bucket_readers.bucket_reader import BucketReader
from paimon_orch.table.scan.base_scan import ROW_KIND
from paimon_orch.table.scan.bucket_split import find_selected_rows
from paimon_orch.table.scan.data_evolution import DataEvolutionReader, group_files_by_rows


class AppendReader(BucketReader):
    """Reads the rows in the order in which they were appended."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows."""
        ordered = sorted(self._split.files, key=lambda f: f.min_sequence_number)
        for file in iterate_ahead(ordered, self._open_ahead):
            yield from self._read(file, self._fields, self._predicate, self._first)

    def read_audit_log(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows as inserts; the first column is ``rowkind``."""
        for batch in self.batches():
            yield add_constant_row_kind(batch, ROW_KIND_SYMBOLS[0])

    def _read_changes_of_file(self, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
        for batch in self._read(file, self._fields, self._predicate):
            yield add_constant_row_kind(batch, ROW_KIND_SYMBOLS[0])


class DataEvolutionBucketReader(AppendReader):
    """Reads rows whose columns may be in several files."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows."""
        split = self._split
        for group in group_files_by_rows(split.files):
            selected = find_selected_rows(group[0], split)
            rows = DataEvolutionReader(self._reader, split.partition, split.bucket, group, selected)
            yield from rows.batches(self._fields, self._vectors)

    def read_changes(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files, if each of them has all columns."""
        if any(file.write_cols for file in self._split.files):
            raise UnsupportedError(
                "reading the changes of rows whose columns are in several files "
                "('data-evolution.enabled' = true) is not supported; read the two snapshots"
            )
        return super().read_changes()


def add_constant_row_kind(batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Add a first column with the same row kind for all rows."""
    return pa.RecordBatch.from_arrays(
        [pa.repeat(kind, batch.num_rows), *batch.columns], [ROW_KIND.name, *batch.schema.names]
    )
