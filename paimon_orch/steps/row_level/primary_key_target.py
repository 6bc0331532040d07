"""Row-level changes of tables with a primary key: written rows replace and delete those of a key.

See docs/format/merge-engines.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.arrays import to_numpy
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.types.data_types import Field
from paimon_orch.steps.row_level.engine_rules import (
    build_delete_rows,
    build_rows_to_write,
    check_engine_supports,
)
from paimon_orch.steps.row_level.row_target import (
    AddressedBatch,
    RowSource,
    RowTarget,
    count_deleted,
)
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowLevelTaskResult,
    collect_changed_rows,
    first_row_address,
)
from paimon_orch.table.bucket_readers.primary_key_reader import PrimaryKeyReader
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.table_write import TableWriter
from paimon_orch.table.write.write_builder import WriteBuilder
from paimon_orch.table.write.write_plan import WritePlan


@dataclass(frozen=True, slots=True)
class PrimaryKeyTarget(RowTarget):
    """Finds the merged rows of buckets, and writes new records of their keys."""

    def check_supported(self, operation: str) -> None:
        """Raise :class:`UnsupportedError` for operations that the merge engine does not apply."""
        check_engine_supports(self.schema, operation)

    def split_bucket(self, split: BucketSplit) -> Iterator[BucketSplit]:
        """Yield the bucket, because its files must be merged."""
        yield split

    def list_addressed_files(self, split: BucketSplit) -> Sequence[BucketFile]:
        """Return one file of the bucket; addresses are positions in its merged rows."""
        return [BucketFile(split.partition, split.bucket, split.files[0])]

    def read(
        self, source: RowSource, split: BucketSplit, number: int, fields: Sequence[Field]
    ) -> Iterator[AddressedBatch]:
        """Yield the merged rows of the bucket."""
        start = first_row_address(number)
        for batch in PrimaryKeyReader(source.reader, split, fields, source.predicate).batches():
            yield np.arange(start, start + batch.num_rows), batch
            start += batch.num_rows

    @property
    def row_kind_column(self) -> str | None:
        """Return the column of the kinds, which data files store."""
        return KIND_COLUMN

    @property
    def columns_to_delete(self) -> Sequence[Field]:
        """Return all columns: -D records have the values of the deleted row."""
        return self.schema.fields

    def read_next_sequences(self, state: TableState) -> Mapping[PartitionBucket, int]:
        """Return the next sequence number of each bucket."""
        return WriteBuilder(state).read_next_sequences()

    def delete_rows(
        self,
        source: RowSource,
        split: BucketSplit,
        read: Iterable[pa.Table],
        sequences: Mapping[PartitionBucket, int],
    ) -> RowLevelTaskResult:
        """Write the -D records of rows."""
        bucket_id = split.partition_bucket
        factory = FileWriterFactory.for_rewrite(source.reader, bucket_id, split.files)
        with TableWriter(WritePlan(factory=factory, first_sequence=sequences)) as writer:
            addresses = []
            for rows in read:
                addresses.append(to_numpy(rows.column(ADDRESS_COLUMN)))
                deletes = build_delete_rows(self.schema, rows.drop_columns(ADDRESS_COLUMN))
                writer.write_bucket(bucket_id, deletes)
            message = writer.close()
        return RowLevelTaskResult(message, counts=count_deleted(addresses))

    def prepare_changes(
        self, planned: WritePlan, batches: Iterable[pa.RecordBatch], first_row: int | None
    ) -> Iterator[pa.Table]:
        """Convert rows of all kinds, numbered from ``first_row``."""
        return planned.prepare(batches, first_row)

    def build_rows_to_write(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the records from which the merge engine produces the new rows."""
        return build_rows_to_write(self.schema, rows)

    def collect_rows_to_delete(
        self, files: Sequence[BucketFile], results: Iterable[RowLevelTaskResult]
    ) -> Mapping[PartitionBucket, Mapping[str, DeletionVector]]:
        """Return nothing: the new records replace the old ones. Checks that each row is new once."""
        collect_changed_rows(files, results)
        return {}

    def build_read_guard(
        self, snapshot_id: int, entries: Iterable[ManifestEntry]
    ) -> ReadGuard | None:
        """Return the buckets of the new files, whose rows were computed from the old ones."""
        return ReadGuard(snapshot_id, frozenset(entry.partition_bucket for entry in entries))
