"""Puts rows aside that a repair replaces by newer rows of their keys, as Parquet files.

The files are in a dated folder of the table's quarantine, which engines ignore.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_orch.files.data_file_reader import SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import build_sorted_batch
from paimon_orch.merge.tree.levels import sort_oldest_first
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.table.table import Table

FILE_COLUMN = "_FILE"
"""The column with the name of the data file of a row."""


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """Finds the rows of some files of a bucket that a merge replaces."""

    reader: FileReader
    bucket: PartitionBucket
    files: Sequence[DataFileMeta]
    deletions: Mapping[str, DeletionVector] = field(default_factory=dict)

    def find(self) -> Iterator[pa.Table]:
        """Yield the rows of each file that another row of the same key replaces.

        Rows that deletion vectors delete are left out.
        """
        for file, mask in self._find_masks():
            yield from self._read_rows(file, mask)

    def find_positions(self) -> dict[str, DeletionVector]:
        """Return the positions of these rows by file name."""
        positions = {}
        for file, mask in self._find_masks():
            is_live = np.ones(file.row_count, bool)
            vector = self._vector(file)
            if vector is not None:
                is_live[vector.positions().astype(np.int64)] = False
            positions[file.file_name] = DeletionVector.of(np.flatnonzero(is_live)[mask])
        return positions

    def _find_masks(self) -> Iterator[tuple[DataFileMeta, Mask]]:
        """Yield the files with such rows, and which of the live rows these are."""
        files = [file for run in sort_oldest_first([[f] for f in self.files]) for file in run]
        keys = [(file, self._read_keys(file)) for file in files]
        keys = [(file, batches) for file, batches in keys if batches]
        if not keys:
            return
        mask = self._find_replaced(pa.Table.from_batches([b for _, part in keys for b in part]))
        ends = np.cumsum([sum(batch.num_rows for batch in part) for _, part in keys])
        for (file, _), of_file in zip(keys, np.split(mask, ends[:-1]), strict=True):
            if of_file.any():
                yield file, of_file

    def _find_replaced(self, keys: pa.Table) -> Mask:
        engine = create_merge_engine(self.reader.schema)
        names = self.reader.schema.trimmed_primary_keys
        batch = build_sorted_batch(keys, names, engine.sequence)
        kept: Indices = batch.newest_row_per_key
        if engine.is_first_row:
            kept = batch.order[batch.starts]
        mask = np.ones(keys.num_rows, bool)
        mask[kept] = False
        return mask

    def _read_keys(self, file: DataFileMeta) -> list[pa.RecordBatch]:
        schema = self.reader.schema
        order = create_merge_engine(schema).sequence.names
        of_sequence = [each for each in schema.fields if each.name in order]
        names = {each.name for each in schema.key_fields}
        fields = [
            *SYSTEM_FIELDS,
            *schema.key_fields,
            *(each for each in of_sequence if each.name not in names),
        ]
        return list(self.reader.read(self._bucket_file(file), fields, self._vector(file)))

    def _read_rows(self, file: DataFileMeta, mask: Mask) -> Iterator[pa.Table]:
        fields, start = [*SYSTEM_FIELDS, *self.reader.schema.fields], 0
        for batch in self.reader.read(self._bucket_file(file), fields, self._vector(file)):
            rows = pa.Table.from_batches([batch])
            selected = rows.filter(pa.array(mask[start : start + batch.num_rows]))
            start += batch.num_rows
            if selected.num_rows:
                names = pa.array([file.file_name] * selected.num_rows, pa.string())
                yield selected.append_column(FILE_COLUMN, names)

    def _bucket_file(self, file: DataFileMeta) -> BucketFile:
        return BucketFile(*self.bucket, file)

    def _vector(self, file: DataFileMeta) -> DeletionVector | None:
        return self.deletions.get(file.file_name)


def put_rows_aside(table: Table, folder: str, name: str, parts: Iterator[pa.Table]) -> int:
    """Write rows to a Parquet file of the quarantine; return their number.

    Writes no file if there are no rows.
    """
    first = next(parts, None)
    if first is None:
        return 0
    count = 0
    with (
        Quarantine.of(table).open_rows(folder, name) as sink,
        pq.ParquetWriter(sink, first.schema) as writer,
    ):
        for part in (first, *parts):
            writer.write_table(part)
            count += part.num_rows
    return count
