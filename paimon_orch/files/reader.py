"""Reading data files: by field id, with partition values, deletion vectors and row positions."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
import pyarrow as pa

from paimon_orch.errors import CorruptFileError, NotFoundError, corrupt_unless_decoded
from paimon_orch.files.batches import record_batch
from paimon_orch.files.evolution import evolve, source_of
from paimon_orch.files.file_indexes import IndexedFiles
from paimon_orch.files.formats import DataFileReader, open_reader
from paimon_orch.files.parquet import ParquetFileReader
from paimon_orch.files.row_tracking import TRACKING_FIELDS, with_derived
from paimon_orch.files.skipping import constant_stats, footer_stats, may_match
from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.binary_row import deserialize_row
from paimon_orch.format.deletion_vector import DeletionVector, Positions
from paimon_orch.format.file_index.evaluation import positions as positions_of
from paimon_orch.format.manifest import DataFileMeta
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.predicate import Predicate, columns_of
from paimon_orch.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.format.statistics import ColumnStats
from paimon_orch.format.types import AtomicType, DataType, Field
from paimon_orch.storage import FileIO

BATCH_ROWS = 65_536
POSITION = "_POSITION"
SYSTEM_FIELDS = (SEQUENCE_NUMBER, VALUE_KIND)
_STORED_FIELDS = (*SYSTEM_FIELDS, *TRACKING_FIELDS)


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
        predicate: Predicate | None = None,
        positions: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not deleted, in file order.

        ``fields`` are columns of the read schema or system columns. Rows that do not satisfy the bound ``predicate``
        may be left out: those of row groups by their statistics, and those that a file index rules out. With
        ``positions`` each batch ends with a column ``_POSITION``: the physical row number (int64). Raises
        :class:`CorruptFileError`.
        """
        path = self.path(at)
        deleted = None if deletions is None else deletions.positions()
        chosen = self._chosen(at, path, predicate, deletions)
        if chosen is not None and not len(chosen):
            return
        tracked = not self.schema.primary_keys and any(field in TRACKING_FIELDS for field in fields)
        for first_row, batch in self._physical(at, path, fields, batch_rows, predicate, chosen):
            rows = with_derived(batch, at.file, first_row) if tracked else batch
            if positions:
                numbers = np.arange(first_row, first_row + batch.num_rows)
                rows = rows.append_column(POSITION, pa.array(numbers))
            if chosen is not None:
                rows = _only(rows, chosen, first_row)
            elif deleted is not None:
                rows = _without(rows, deleted, first_row)
            if rows.num_rows:
                yield rows

    def row_group_starts(self, at: BucketFile, field: Field) -> list[object]:
        """Return a lower bound of a column in each row group of a file, as internal values; nothing if not known."""
        path = self.path(at)
        with corrupt_unless_decoded(path), self.io.open_input(path) as source:
            _check_size(path, source, at.file)
            stored = [*self._file_schema(at).fields, *self._key_columns(at)]
            opened = open_reader(source, path, stored, remote=self.io.remote)
            (column,) = self._columns(at, [field], opened.names)
            if not isinstance(opened, ParquetFileReader) or column.physical is None:
                return []
            found = [
                opened.row_group_statistics(group, column.physical)
                for group in range(opened.num_row_groups)
            ]
            return [footer_stats(one, column.physical_type, field.type).min for one in found]

    def _chosen(
        self,
        at: BucketFile,
        path: str,
        predicate: Predicate | None,
        deletions: DeletionVector | None,
    ) -> Positions | None:
        """Return the rows that an index leaves for a predicate, less the deleted ones; None for all that are not."""
        if predicate is None:
            return None
        indexed = IndexedFiles(self.schema, lambda _: self._file_schema(at), predicate)
        rows = indexed.evaluate(at.file, path, self.io).rows
        if rows is None:
            return None
        hidden = None if deletions is None else deletions.bitmaps.get(0)
        return positions_of(rows if hidden is None else rows - hidden)

    def _physical(
        self,
        at: BucketFile,
        path: str,
        fields: Sequence[Field],
        batch_rows: int,
        predicate: Predicate | None,
        chosen: Positions | None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches, each behind the physical number of its first row."""
        with corrupt_unless_decoded(path), self.io.open_input(path) as source:
            _check_size(path, source, at.file)
            system = SYSTEM_FIELDS if self.schema.primary_keys else TRACKING_FIELDS
            stored = [*self._file_schema(at).fields, *self._key_columns(at), *system]
            opened = open_reader(source, path, stored, remote=self.io.remote)
            if opened.num_rows is not None:
                _check_rows(path, opened.num_rows, at.file)
            columns = self._columns(at, fields, opened.names)
            wanted = _unique(column.physical for column in columns if column.physical is not None)
            names, row = [field.name for field in fields], 0
            for first_row, batches in self._stretches(
                at, opened, wanted, batch_rows, predicate, chosen
            ):
                row = first_row
                for batch in batches:
                    if chosen is not None and row > chosen[-1]:
                        return
                    arrays = [column.read(batch) for column in columns]
                    yield row, record_batch(arrays, names, batch.num_rows)
                    row += batch.num_rows
            if predicate is None:
                _check_rows(path, row, at.file)

    def _stretches(
        self,
        at: BucketFile,
        opened: DataFileReader,
        wanted: Sequence[str],
        batch_rows: int,
        predicate: Predicate | None,
        chosen: Positions | None,
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Yield what is to be read without a gap, each stretch behind the number of its first row."""
        if predicate is None or not isinstance(opened, ParquetFileReader):
            yield 0, opened.batches(wanted, batch_rows)
            return
        begin, start, stretch = 0, 0, list[int]()
        for group in range(opened.num_row_groups):
            rows = opened.row_group_rows(group)
            if _meets(chosen, begin, rows) and self._may_match(at, opened, group, predicate):
                start = start if stretch else begin
                stretch.append(group)
            elif stretch:
                yield start, opened.batches(wanted, batch_rows, stretch)
                stretch = []
            begin += rows
        if stretch:
            yield start, opened.batches(wanted, batch_rows, stretch)

    def _may_match(
        self, at: BucketFile, opened: ParquetFileReader, group: int, predicate: Predicate
    ) -> bool:
        names = columns_of(predicate)
        fields = [field for field in self.schema.fields if field.name in names]
        columns = {c.field.name: c for c in self._columns(at, fields, opened.names)}
        rows = opened.row_group_rows(group)

        def stats_of(name: str) -> ColumnStats:
            column = columns.get(name)
            if column is None:
                return ColumnStats()
            if column.physical is None:
                return constant_stats(column.constant, column.field.type)
            found = opened.row_group_statistics(group, column.physical)
            return footer_stats(found, column.physical_type, column.field.type)

        return may_match(predicate, stats_of, rows)

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
            source = field if field in _STORED_FIELDS else source_of(field, file_fields)
            if field.name in constants:
                columns.append(_Column(field, None, field.type, constants[field.name]))
            elif source is None or source.name not in names:
                columns.append(_Column(field, None, field.type, None))
            else:
                # Java 0.9 wrote rows whose key was null among the values
                key = KEY_PREFIX + source.name
                name = (
                    key if key in names and field.name in self.schema.primary_keys else source.name
                )
                columns.append(_Column(field, name, source.type, None))
        return columns

    def _key_columns(self, at: BucketFile) -> list[Field]:
        """Return the columns that hold the key beside the values, if the file was not written without them."""
        schema = self._file_schema(at)
        return [replace(f, name=KEY_PREFIX + f.name) for f in schema.key_fields]


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


def _check_size(path: str, source: IO[bytes], file: DataFileMeta) -> None:
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    if size != file.file_size:
        raise CorruptFileError(path, f"has {size} bytes, the manifest says {file.file_size}")


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


def _meets(chosen: Positions | None, first_row: int, rows: int) -> bool:
    """Tell whether one of so many rows is among the chosen ones, which are sorted."""
    if chosen is None:
        return True
    low, high = np.searchsorted(chosen, (first_row, first_row + rows))
    return bool(low < high)


def _only(batch: pa.RecordBatch, chosen: Positions, first_row: int) -> pa.RecordBatch:
    """Return the chosen rows of a batch; ``chosen`` is sorted."""
    low, high = np.searchsorted(chosen, (first_row, first_row + batch.num_rows))
    if high - low == batch.num_rows:
        return batch
    return batch.take(pa.array(chosen[low:high] - first_row))
