"""Reads files of several partitions and branches of a chain table as files of one partition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_orch.files.data_file_reader import BucketFile, FileReader, RowGroup
from paimon_orch.files.file_index_reader import TopRowsOrLimit
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.scan.bucket_split import FileOrigin


@dataclass(frozen=True, slots=True)
class ChainFileReader(FileReader):
    """Reads each file with the schemas of its branch, from the directory of its partition.

    The rows have the values of the partition that is read. As in Java Paimon, the schema and the
    options are those of the delta branch.
    """

    anchor_reader: FileReader
    """Reads files of the snapshot branch."""
    origins: Mapping[str, FileOrigin]

    @classmethod
    def of(
        cls, deltas: FileReader, anchors: FileReader, origins: Iterable[FileOrigin]
    ) -> "ChainFileReader":
        """Return a reader from the readers of both branches."""
        return cls(
            io=deltas.io,
            paths=deltas.paths,
            schema=deltas.schema,
            schemas=deltas.schemas,
            batch_sizes=deltas.batch_sizes,
            anchor_reader=anchors,
            origins={origin.file_name: origin for origin in origins},
        )

    def read(
        self,
        bucket_file: BucketFile,
        fields: Sequence[Field],
        deletions: DeletionVector | None = None,
        *,
        predicate: Predicate | None = None,
        first: TopRowsOrLimit | None = None,
        positions: bool = False,
        batch_rows: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; see :meth:`FileReader.read`."""
        origin = self.origins[bucket_file.file.file_name]
        # a class with slots is created twice, so super() needs its arguments
        read = self.anchor_reader.read if origin.is_anchor else super(ChainFileReader, self).read
        return read(
            replace(bucket_file, stored_partition=origin.partition),
            fields,
            deletions,
            predicate=predicate,
            first=first,
            positions=positions,
            batch_rows=batch_rows,
        )

    def row_groups(
        self, bucket_file: BucketFile, key: Field, deletions: DeletionVector | None = None
    ) -> Iterator[RowGroup]:
        """Yield the row groups of a file; see :meth:`FileReader.row_groups`."""
        origin = self.origins[bucket_file.file.file_name]
        located = replace(bucket_file, stored_partition=origin.partition)
        if origin.is_anchor:
            return self.anchor_reader.row_groups(located, key, deletions)
        return super(ChainFileReader, self).row_groups(located, key, deletions)
