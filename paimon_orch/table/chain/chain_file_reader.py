"""Reads files of several partitions and branches of a chain table as files of one partition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.files.data_file_reader import ROW_POSITION, BucketFile, FileReader, RowGroup
from paimon_orch.files.file_index_reader import TopRowsOrLimit
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.row.row_kind import RowKind
from paimon_orch.format.schema import VALUE_KIND
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
        """Yield the rows of a file; see :meth:`FileReader.read`.

        Deleted rows are read as rows of the kind -D, because they delete older rows of their key in
        other partitions.
        """
        if deletions is not None:
            deletions.check_rows(bucket_file.file.row_count, self.path(bucket_file))
            rows = self.read(bucket_file, fields, positions=True, batch_rows=batch_rows)
            deleted = DeletedRowMask.of(deletions)
            for batch in rows:
                marked = _mark_deleted_rows(batch, deleted)
                yield marked if positions else marked.drop_columns([ROW_POSITION])
            return
        origin = self.origins[bucket_file.file.file_name]
        # a class with slots is created twice, so super() needs its arguments
        read = self.anchor_reader.read if origin.is_anchor else super(ChainFileReader, self).read
        yield from read(
            replace(bucket_file, stored_partition=origin.partition),
            fields,
            predicate=predicate,
            first=first,
            positions=positions,
            batch_rows=batch_rows,
        )

    def open_ahead(self, bucket_file: BucketFile) -> bool:  # noqa: ARG002 - in other directories
        """Return False."""
        return False

    def row_groups(
        self, bucket_file: BucketFile, key: Field, deletions: DeletionVector | None = None
    ) -> Iterator[RowGroup]:
        """Yield the row groups of a file; see :meth:`FileReader.row_groups`."""
        origin = self.origins[bucket_file.file.file_name]
        located = replace(bucket_file, stored_partition=origin.partition)
        if origin.is_anchor:
            return self.anchor_reader.row_groups(located, key, deletions)
        return super(ChainFileReader, self).row_groups(located, key, deletions)


def _mark_deleted_rows(batch: pa.RecordBatch, deleted: DeletedRowMask) -> pa.RecordBatch:
    """Return consecutive rows, with their positions, with the kind -D for deleted rows."""
    live = deleted.build_live_mask(batch.column(ROW_POSITION)[0].as_py(), batch.num_rows)
    if live is None:
        return batch
    index = batch.schema.get_field_index(VALUE_KIND.name)
    kinds = batch.column(index)
    marked = pc.if_else(live, kinds, pa.scalar(int(RowKind.DELETE), kinds.type))
    return batch.set_column(index, batch.schema.field(index), marked)
