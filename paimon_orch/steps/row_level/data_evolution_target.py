"""Row-level changes of tables whose columns may be in several files.

See docs/format/row-tracking.md#updates-and-deletes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.files.row_tracking import ROW_ID
from paimon_orch.format.arrays import to_numpy
from paimon_orch.format.options.core_options import DATA_EVOLUTION_ENABLED
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate, restrict_to_columns
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.steps.row_level.append_target import RowTrackingTarget
from paimon_orch.steps.row_level.row_target import AddressedBatch, RowSource
from paimon_orch.steps.row_level.task_result import first_row_address
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import (
    DataEvolutionReader,
    find_anchor_file,
    group_files_by_rows,
)


@dataclass(frozen=True, slots=True)
class DataEvolutionTarget(RowTrackingTarget):
    """Finds rows by their positions in ranges of row ids, which count as one file."""

    def check_supported(self, operation: str) -> None:
        """Raise :class:`UnsupportedError` for deletes that would change ids of other rows."""
        deletes = operation not in ("update", "insert")
        if deletes and not self.schema.typed_options.has_deletion_vectors:
            raise UnsupportedError(
                f"{operation} of rows with {DATA_EVOLUTION_ENABLED.key!r} = true needs "
                "'deletion-vectors.enabled' = true: the ids of the other rows must not change"
            )

    def restrict_for_pruning(self, predicate: Predicate) -> Predicate | None:
        """Return the part of partition columns: other statistics may be those of old values."""
        return restrict_to_columns(predicate, set(self.schema.partition_keys))

    def list_addressed_files(self, split: BucketSplit) -> Sequence[BucketFile]:
        """Return the oldest file of each range of row ids."""
        return [
            BucketFile(split.partition, split.bucket, find_anchor_file(group))
            for group in group_files_by_rows(split.files)
        ]

    def read(
        self, source: RowSource, split: BucketSplit, number: int, fields: Sequence[Field]
    ) -> Iterator[AddressedBatch]:
        """Yield the rows range by range."""
        reader = source.reader
        vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
        fields = [*(field for field in fields if field != ROW_ID), ROW_ID]
        for range_number, group in enumerate(group_files_by_rows(split.files), number):
            first = group[0].first_row_id
            if first is None:
                raise UnsupportedError(
                    f"{group[0].file_name}: the rows of files without row ids cannot be changed"
                )
            rows = DataEvolutionReader(reader, split.partition, split.bucket, group)
            for batch in rows.batches(fields, vectors):
                positions = to_numpy(batch.column(ROW_ID.name)) - first
                yield positions + first_row_address(range_number), batch
