"""The data that the tasks of a write need to convert, number and write rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_writer import FileWriterFactory
from paimon_orch.format.arrays import to_arrow_array
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.filter.partition_spec import PartitionSpec
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.conform_rows import add_missing_columns, convert_rows
from paimon_orch.table.write.dynamic_bucket import HashIndex
from paimon_orch.table.write.postpone_bucket import PostponeBuckets
from paimon_orch.table.write.text_formats import TextFormats


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """The plan of one write for its tasks; a :class:`WriteBuilder` plans and commits it."""

    state: TableState | None = None
    """The table when the write was planned; None for a write inside of another step."""
    factory: FileWriterFactory
    first_sequence: Mapping[PartitionBucket, int] = field(default_factory=dict)
    """The next sequence number of each bucket that has files."""
    row_kind: str | None = None
    """The name of a text column of the rows with the values +I, -U, +U, -D."""
    text_formats: TextFormats | None = None
    """How to convert text before it is cast to the types of columns."""
    rows_are_new: bool = True
    """False for rows of the table itself, which keep their nulls in columns with a default."""
    is_overwrite: bool = False
    partitions: PartitionSpec | Sequence[PartitionSpec] | None = None
    """The partitions that an overwrite replaces; None means the partitions of the new rows."""
    commit_id: CommitId | None = None
    hashes: HashIndex | None = None
    """The hash indexes for the assignment of rows to dynamic buckets."""
    postponed: PostponeBuckets | None = None

    @property
    def schema(self) -> TableSchema:
        """Return the schema that rows are written with."""
        return self.factory.schema

    def prepare(
        self, batches: Iterable[pa.RecordBatch], first_row: int | None = None
    ) -> Iterator[pa.Table]:
        """Convert rows; with ``first_row``, number rows of primary-key tables from this number."""
        is_numbered = first_row is not None and SEQUENCE_NUMBER in self.schema.system_fields
        row_number = first_row or 0
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if self.text_formats is not None:
                rows = self.text_formats.apply(rows, self.schema)
            rows = convert_rows(
                add_missing_columns(rows, self.schema),
                self.schema,
                row_kind=self.row_kind,
                are_new=self.rows_are_new,
            )
            if is_numbered:
                numbers = to_arrow_array(np.arange(row_number, row_number + rows.num_rows))
                rows = rows.append_column(SEQUENCE_NUMBER.name, numbers)
                row_number += rows.num_rows
            yield rows
