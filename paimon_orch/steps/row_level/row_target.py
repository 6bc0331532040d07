"""What row-level changes need to know about a kind of table: one class for each kind.

The classes are in the modules ``append_target``, ``data_evolution_target`` and
``primary_key_target``; ``find_target`` selects one by the schema.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.arrays import to_numpy
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowAddresses,
    RowLevelTaskResult,
    collect_changed_rows,
    group_rows_by_file,
)
from paimon_orch.table.commit.row_level_conflicts import ReadGuard
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.split_generator import split_bucket_by_size
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.bucket_routing import BUCKET_COLUMN
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_plan import WritePlan

AddressedBatch = tuple[RowAddresses, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class RowSource:
    """The reader of a plan's files, and the predicate of the rows to change."""

    reader: FileReader
    predicate: Predicate | None = None


@dataclass(frozen=True, slots=True)
class RowTarget(ABC):
    """Finds the rows to change in tables of a kind, and writes the changes.

    By default, new versions of rows are appended, and the commit deletes the old ones.
    """

    schema: TableSchema

    @abstractmethod
    def check_supported(self, operation: str) -> None:
        """Raise :class:`UnsupportedError` if rows of the table cannot be changed so."""

    def restrict_for_pruning(self, predicate: Predicate) -> Predicate | None:
        """Return the part of a predicate that statistics of files can exclude files by."""
        return predicate

    def split_bucket(self, split: BucketSplit) -> Iterator[BucketSplit]:
        """Yield the parts of a bucket that tasks can search independently."""
        return split_bucket_by_size(split, self.schema)

    @abstractmethod
    def list_addressed_files(self, split: BucketSplit) -> Sequence[BucketFile]:
        """Return the files that addresses of rows of a part name, in the order of their numbers."""

    @abstractmethod
    def read(
        self, source: RowSource, split: BucketSplit, number: int, fields: Sequence[Field]
    ) -> Iterator[AddressedBatch]:
        """Yield the rows with their addresses; the first file of the part has this number."""

    @property
    def row_kind_column(self) -> str | None:
        """Return the column of the kinds of written rows, if the kind of table stores them."""
        return None

    def read_next_sequences(self, _state: TableState) -> Mapping[PartitionBucket, int]:
        """Return the next sequence number of each bucket, if deletes are written as rows."""
        return {}

    def delete_rows(
        self,
        source: RowSource,
        split: BucketSplit,
        read: Iterable[pa.Table],
        sequences: Mapping[PartitionBucket, int],
    ) -> RowLevelTaskResult:
        """Delete rows that were read with the columns of :attr:`columns_to_delete`."""
        del source, split, sequences
        addresses = [to_numpy(rows.column(ADDRESS_COLUMN)) for rows in read]
        return RowLevelTaskResult(
            rows=group_rows_by_file(addresses), counts=count_deleted(addresses)
        )

    @property
    def columns_to_delete(self) -> Sequence[Field]:
        """Return the columns that a delete reads besides the addresses."""
        return ()

    def prepare_changes(
        self, planned: WritePlan, batches: Iterable[pa.RecordBatch], _first_row: int | None
    ) -> Iterator[pa.Table]:
        """Convert rows with addresses and kinds; of deleted rows, keep only these two columns."""
        for batch in batches:
            is_deleted = pc.equal(batch.column(KIND_COLUMN), "-D")
            yield from planned.prepare([batch.filter(pc.invert(is_deleted))])
            deleted = pa.Table.from_batches([batch]).filter(is_deleted)
            if deleted.num_rows:
                yield deleted.select([ADDRESS_COLUMN, KIND_COLUMN])

    def build_rows_to_write(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows of :meth:`prepare_changes` that are written to files."""
        if BUCKET_COLUMN in rows.column_names:
            yield rows.drop_columns([ADDRESS_COLUMN, KIND_COLUMN])

    def write_rows(self, planned: WritePlan, rows: Iterable[pa.Table]) -> CommitMessage:
        """Write rows of :meth:`build_rows_to_write` to new files."""
        return write_rows(planned, rows)

    def collect_rows_to_delete(
        self, files: Sequence[BucketFile], results: Iterable[RowLevelTaskResult]
    ) -> Mapping[PartitionBucket, Mapping[str, DeletionVector]]:
        """Return the old versions of rows that the commit deletes, by bucket and file.

        Raises :class:`InputError` if two tasks changed the same row.
        """
        return collect_changed_rows(files, results)

    def build_read_guard(
        self, _snapshot_id: int, _entries: Iterable[ManifestEntry]
    ) -> ReadGuard | None:
        """Return the buckets that other commits must not have changed since the plan."""
        return None


def count_deleted(addresses: Sequence[RowAddresses]) -> dict[str, int]:
    """Return the counts of a task that deleted rows."""
    return {"deleted": sum(map(len, addresses))}
