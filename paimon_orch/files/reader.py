"""Reading data files: by field id, with partition values, deletion vectors and row positions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, NotFoundError, corrupt_unless_decoded
from paimon_orch.files.evolution import evolve, source_of
from paimon_orch.files.formats import open_reader
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.binary_row import deserialize_row
from paimon_orch.format.deletion_vector import DeletionVector, Positions
from paimon_orch.format.manifest import DataFileMeta
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.format.types import AtomicType, DataType, Field
from paimon_orch.storage import FileIO

BATCH_ROWS = 65_536
POSITION = "_POSITION"
SYSTEM_FIELDS = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclass(frozen=True, slots=True)
class BucketFile:
    """One data file and the bucket it belongs to."""

    partition: bytes
    bucket: int
    file: DataFileMeta


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the data files of one table in the shape of one schema.

    ``schemas`` holds every schema that a file to be read was written with, by id.
    """

    io: FileIO
    paths: TablePaths
    schema: TableSchema
    schemas: Mapping[int, TableSchema]

    def path(self, at: BucketFile) -> str:
        """Return where a data file lies."""
        return self.paths.data_file(self.schema, at.partition, at.bucket, at.file)

    def read(
        self,
        at: BucketFile,
        fields: Sequence[Field],
        deletions: DeletionVector | None = None,
        *,
        positions: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not deleted, in file order.

        ``fields`` are columns of the read schema or system columns. With ``positions`` each batch ends with a column
        ``_POSITION``: the physical row number (int64). Raises :class:`CorruptFileError`.
        """
        path = self.path(at)
        deleted = None if deletions is None else deletions.positions()
        row = 0
        for batch in self._physical(at, path, fields, batch_rows):
            first_row, row = row, row + batch.num_rows
            if positions:
                numbers = pa.array(np.arange(first_row, row))
                batch = batch.append_column(POSITION, numbers)
            if deleted is not None:
                batch = _without(batch, deleted, first_row)
            if batch.num_rows:
                yield batch

    def _physical(
        self, at: BucketFile, path: str, fields: Sequence[Field], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        with corrupt_unless_decoded(path), self.io.open_input(path) as source:
            stored = [*self._file_schema(at).fields, *SYSTEM_FIELDS]
            opened = open_reader(source, path, stored)
            if opened.num_rows is not None:
                _check_rows(path, opened.num_rows, at.file)
            columns = self._columns(at, fields, opened.names)
            wanted = _unique(column.physical for column in columns if column.physical is not None)
            rows = 0
            for batch in opened.batches(wanted, batch_rows):
                rows += batch.num_rows
                arrays = [column.read(batch) for column in columns]
                yield pa.RecordBatch.from_arrays(arrays, [field.name for field in fields])
            _check_rows(path, rows, at.file)

    def _file_schema(self, at: BucketFile) -> TableSchema:
        schema = self.schemas.get(at.file.schema_id)
        if schema is None:
            raise NotFoundError(
                f"{self.path(at)} was written with schema {at.file.schema_id}, which the table no longer has"
            )
        return schema

    def _columns(
        self, at: BucketFile, fields: Sequence[Field], names: Sequence[str]
    ) -> list["_Column"]:
        file_fields = self._file_schema(at).fields
        partition_fields = self.schema.partition_fields
        constants = dict(
            zip(
                (field.name for field in partition_fields),
                deserialize_row(at.partition, [field.type for field in partition_fields]),
                strict=True,
            )
        )
        columns = []
        for field in fields:
            source = field if field in SYSTEM_FIELDS else source_of(field, file_fields)
            if field.name in constants:
                columns.append(_Column(field, None, field.type, constants[field.name]))
            elif source is None or source.name not in names:
                columns.append(_Column(field, None, field.type, None))
            else:
                columns.append(_Column(field, source.name, source.type, None))
        return columns


@dataclass(frozen=True, slots=True)
class _Column:
    """How one column comes about: read from ``physical`` and evolved, or a constant."""

    field: Field
    physical: str | None
    physical_type: DataType
    constant: object

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        if self.physical is not None:
            return evolve(batch.column(self.physical), self.physical_type, self.field.type)
        return constant_column(self.constant, self.field.type, batch.num_rows)


def constant_column(value: object, data_type: DataType, length: int) -> pa.Array:
    """Return one internal value as a column."""
    target = arrow_type(data_type)
    if value is None:
        return pa.nulls(length, target)
    if isinstance(data_type, AtomicType) and data_type.name in ("DATE", "TIME"):
        return pa.repeat(pa.scalar(value, pa.int32()), length).view(target)
    if isinstance(target, pa.TimestampType):
        return pa.repeat(pa.scalar(value, pa.int64()), length).view(target)
    return pa.repeat(pa.scalar(value, target), length)


def _check_rows(path: str, found: int, file: DataFileMeta) -> None:
    if found != file.row_count:
        raise CorruptFileError(path, f"has {found} rows, the manifest says {file.row_count}")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _without(batch: pa.RecordBatch, deleted: Positions, first_row: int) -> pa.RecordBatch:
    """Return the batch without its deleted rows; ``deleted`` is sorted."""
    low, high = np.searchsorted(deleted, (first_row, first_row + batch.num_rows))
    if low == high:
        return batch
    keep = np.ones(batch.num_rows, bool)
    keep[deleted[low:high] - first_row] = False
    return batch.filter(pa.array(keep))
