"""Row-level changes of append tables, with and without row tracking.

See docs/format/deletion-vectors-in-compaction.md#append-tables and
docs/format/append-table-compaction.md#row-level-operations-without-deletion-vectors.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.data_file_reader import ROW_POSITION, BucketFile
from paimon_orch.format.arrays import to_numpy
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.steps.common.row_tracking_writer import write_tracked_rows
from paimon_orch.steps.row_level.row_target import AddressedBatch, RowSource, RowTarget
from paimon_orch.steps.row_level.task_result import first_row_address
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.write_plan import WritePlan


@dataclass(frozen=True, slots=True)
class AppendTarget(RowTarget):
    """Finds rows by their positions in files."""

    def check_supported(self, operation: str) -> None:
        """Accept all operations."""

    def list_addressed_files(self, split: BucketSplit) -> Sequence[BucketFile]:
        """Return the files of the part."""
        return [BucketFile(split.partition, split.bucket, file) for file in split.files]

    def read(
        self, source: RowSource, split: BucketSplit, number: int, fields: Sequence[Field]
    ) -> Iterator[AddressedBatch]:
        """Yield the rows file by file."""
        reader = source.reader
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
        for file_number, bucket_file in enumerate(self.list_addressed_files(split), number):
            vector = vectors.get(bucket_file.file.file_name)
            batches = reader.read(
                bucket_file, fields, vector, predicate=source.predicate, positions=True
            )
            for batch in batches:
                yield to_numpy(batch.column(ROW_POSITION)) + first_row_address(file_number), batch


@dataclass(frozen=True, slots=True)
class RowTrackingTarget(AppendTarget):
    """Changed rows keep their ids."""

    def write_rows(self, planned: WritePlan, rows: Iterable[pa.Table]) -> CommitMessage:
        """Write changed rows with their ids, and new rows, to separate files."""
        return write_tracked_rows(planned.factory, rows)
