"""Reads data files: columns by field id, partition values, deletion vectors and row positions.

See docs/format/data-files.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, partial
from typing import IO

import numpy as np
import pyarrow as pa

from paimon_orch.decode_limits import fit_null_rows
from paimon_orch.errors import CorruptFileError, NotFoundError, UnsupportedError, wrap_decode_errors
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.files.blob.blob_file import read_blob_lengths
from paimon_orch.files.file_format import FormatReader, open_reader
from paimon_orch.files.file_index_reader import FileIndexEvaluator, TopRowsOrLimit
from paimon_orch.files.orc import OrcFileReader
from paimon_orch.files.orc_instants import find_orc_options, refuse_rewrite, refuse_unnamed_zone
from paimon_orch.files.parquet import ParquetFileReader
from paimon_orch.files.row_selection import read_file_rows, read_parquet_rows, take_selected_rows
from paimon_orch.files.row_tracking import ROW_TRACKING_FIELDS, fill_row_tracking
from paimon_orch.files.schema_evolution.column_sources import ColumnSource, find_column_sources
from paimon_orch.files.shredded_columns import (
    assemble_partial_columns,
    find_partial_columns,
    find_variant_bounds,
)
from paimon_orch.files.stats.column_bounds import (
    ColumnBounds,
    build_constant_stats,
    convert_footer_stats,
)
from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.files.stats.stats_evaluator import may_match
from paimon_orch.format.arrays import Int64Array, Positions, measure_value, to_arrow_array
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deleted_row_mask import DeletedRowMask
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.file_index.evaluation import to_positions
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import ORC_LEGACY_INSTANTS
from paimon_orch.format.paths import TablePaths, is_blob_file, parse_file_format
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.format.types.arrow import (
    NumberedBatch,
    build_record_batch,
    number_batches,
    to_arrow_type,
)
from paimon_orch.format.types.data_types import Field, TypeRoot, has_atom
from paimon_orch.format.types.predicate import (
    Predicate,
    VariantValue,
    collect_columns,
    iterate_leaves,
)
from paimon_orch.storage import FileIO
from paimon_orch.storage.recent_inputs import RecentInputs

ROW_POSITION = f"{KEY_PREFIX}POSITION"  # the prefix is reserved, so no table column has this name
SYSTEM_FIELDS = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclass(frozen=True, slots=True)
class BucketFile:
    """One data file, and the bucket that it belongs to."""

    partition: bytes
    bucket: int
    file: DataFileMeta

    stored_partition: bytes | None = None
    """The partition of the file's directory, if its rows are read as rows of another one."""

    rows: Positions | None = field(default=None, compare=False)
    """The ascending positions of the rows that :meth:`FileReader.read` yields; None for all rows."""

    @property
    def partition_bucket(self) -> PartitionBucket:
        """Return the bucket that the file belongs to."""
        return PartitionBucket(self.partition, self.bucket)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a data file."""

    rows: range
    """The positions of its rows in the file."""

    bounds: ColumnStats
    """The statistics of the key column."""

    read: Callable[[Sequence[Field]], Iterator[pa.RecordBatch]]
    """Yields the given columns of the rows that are not deleted, then :data:`ROW_POSITION`."""


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the data files of one table as rows of one schema."""

    io: FileIO
    paths: TablePaths
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    """The schemas that the files were written with, by id."""
    _: KW_ONLY
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    dictionaries: frozenset[str] = frozenset()
    """Text columns that :meth:`read` returns as dictionary arrays."""
    variant_values: Mapping[str, Sequence[VariantValue]] = field(default_factory=dict)
    """VARIANT columns of which only some values are needed; :meth:`read` may omit others."""
    inputs: RecentInputs = field(default_factory=RecentInputs, compare=False, repr=False)

    def path(self, bucket_file: BucketFile) -> str:
        """Return the path of a data file."""
        partition = bucket_file.stored_partition
        if partition is None:
            partition = bucket_file.partition
        return self.paths.data_file(self.schema, partition, bucket_file.bucket, bucket_file.file)

    def open_input(self, path: str, file: DataFileMeta) -> IO[bytes]:
        """Open a data file; raises :class:`CorruptFileError` if its metadata has another size."""
        return self.inputs.open(self.io, path, file.file_size)

    def open_ahead(self, bucket_file: BucketFile) -> bool:
        """Start to open a remote file that will be read; return False if too many are open."""
        if not self.io.capabilities.has_slow_requests:
            return False
        return self.inputs.start(self.io, self.path(bucket_file), bucket_file.file.file_size)

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
        """Yield the rows of a file that are not deleted, in file order.

        ``fields`` are columns of the read schema or system columns. Statistics and file indexes may
        omit rows that do not satisfy the bound ``predicate`` or, without a predicate, rows that
        cannot be among the ``first`` ones. With ``positions`` the last column of each batch is
        :data:`ROW_POSITION` (int64). ``batch_rows`` replaces the batch size of the reader. Raises
        :class:`CorruptFileError`.
        """
        path = self.path(bucket_file)
        deleted = _build_deleted_mask(deletions, bucket_file, path)
        selected = self._select_rows(
            bucket_file, path, predicate=predicate, first=first, deletions=deletions
        )
        selected = _restrict_to_range(selected, bucket_file, deleted)
        if selected is not None and not len(selected):
            self.inputs.drop(path)
            return
        find_groups = None
        if predicate is not None:
            find_groups = partial(self._find_matching_row_groups, bucket_file, predicate)
        has_row_tracking = any(field in ROW_TRACKING_FIELDS for field in fields)
        for numbers, batch in self._read_physical_rows(
            bucket_file,
            path,
            fields=fields,
            batch_rows=batch_rows or self.batch_sizes.batch_rows,
            find_groups=find_groups,
            selected=selected,
        ):
            read = (
                fill_row_tracking(batch, bucket_file.file, numbers) if has_row_tracking else batch
            )
            if positions:
                read = read.append_column(ROW_POSITION, to_arrow_array(numbers))
            if selected is None and deleted is not None:
                read = _drop_deleted_rows(read, deleted, numbers)
            if read.num_rows:
                yield read

    def read_row_groups(
        self,
        bucket_file: BucketFile,
        fields: Sequence[Field],
        numbers: Sequence[int],
        *,
        batch_rows: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups of a Parquet file; see :meth:`read`."""
        for _, batch in self._read_physical_rows(
            bucket_file,
            self.path(bucket_file),
            fields=fields,
            batch_rows=batch_rows or self.batch_sizes.batch_rows,
            find_groups=lambda _: numbers,
            selected=None,
        ):
            yield batch

    def read_blob_lengths(self, bucket_file: BucketFile) -> Int64Array:
        """Return the lengths in the index of a BLOB file; see docs/format/blob.md."""
        path = self.path(bucket_file)
        with wrap_decode_errors(path), self.open_input(path, bucket_file.file) as source:
            lengths = read_blob_lengths(source, path)
        _check_row_count(path, len(lengths), bucket_file.file)
        return lengths

    def check_rewritable(
        self,
        partition_bucket: PartitionBucket,
        files: Iterable[DataFileMeta],
        fields: Sequence[Field] | None = None,
    ) -> None:
        """Check that Java reads the same values after these columns of files are written again.

        ``fields`` are columns of the read schema; None stands for all. Raises
        :class:`UnsupportedError` for instants of ORC files that Java wrote in another time zone
        than UTC, unless no ORC file is written.
        """
        columns = self.schema.fields if fields is None else fields
        options = find_orc_options(self.schema.options)
        if not options or not self.schema.typed_options.get(ORC_LEGACY_INSTANTS):
            return
        if not any(has_atom(column.type, TypeRoot.TIMESTAMP_LTZ) for column in columns):
            return
        for file in files:
            if parse_file_format(file.file_name) != "orc":
                continue
            bucket_file = BucketFile(*partition_bucket, file)
            path = self.path(bucket_file)
            with wrap_decode_errors(path), self.open_input(path, bucket_file.file) as source:
                reader = self._open(bucket_file, path, source)
                assert isinstance(reader, OrcFileReader)
                sources = self._columns(bucket_file, columns, reader.names)
                names = [column.physical for column in sources if column.physical is not None]
                refuse_rewrite(path, reader.find_instant_zones(names), options)

    def find_dictionary_columns(self, bucket_file: BucketFile) -> list[str]:
        """Return the columns that a file stores as indices of small dictionaries.

        Merges and writers handle dictionary arrays of these columns faster than their values.
        """
        with self.open_parquet(bucket_file) as reader:
            if reader is None:
                return []
            stored = set(reader.find_dictionary_columns())
            columns = self._columns(bucket_file, self.schema.fields, reader.names)
            return [column.field.name for column in columns if column.physical in stored]

    @contextmanager
    def open_parquet(self, bucket_file: BucketFile) -> Iterator[ParquetFileReader | None]:
        """Open a Parquet file; yield None for a file of another format."""
        path = self.path(bucket_file)
        with wrap_decode_errors(path), self.open_input(path, bucket_file.file) as source:
            reader = self._open(bucket_file, path, source)
            yield reader if isinstance(reader, ParquetFileReader) else None

    def row_groups(
        self, bucket_file: BucketFile, key: Field, deletions: DeletionVector | None = None
    ) -> Iterator[RowGroup]:
        """Yield the row groups of a file with the bounds of a column.

        The file remains open until the last row group is read. A file of a format without row
        groups is one row group with unknown bounds.
        """
        path = self.path(bucket_file)
        deleted = _build_deleted_mask(deletions, bucket_file, path)
        with wrap_decode_errors(path), self.open_input(path, bucket_file.file) as source:
            reader = self._open(bucket_file, path, source)
            (column,) = self._columns(bucket_file, [key], reader.names)

            if not isinstance(reader, ParquetFileReader) or column.physical is None:
                # each read opens the file again, because an Avro reader can be used only once
                read_file = partial(self.read, bucket_file, deletions=deletions, positions=True)
                yield RowGroup(range(bucket_file.file.row_count), ColumnStats(), read_file)
                return

            def read(group: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
                with wrap_decode_errors(path):
                    columns = self._columns(bucket_file, fields, reader.names)
                    physical_names = list(
                        dict.fromkeys(c.physical for c in columns if c.physical is not None)
                    )
                    size = _fit_null_rows(self.batch_sizes.batch_rows, columns)
                    batches = reader.batches(physical_names, size, [group])
                    for numbers, batch in number_batches(reader.row_group_starts[group], batches):
                        arrays = [*(c.read(batch) for c in columns), to_arrow_array(numbers)]
                        names = [*(field.name for field in fields), ROW_POSITION]
                        rows = build_record_batch(arrays, names, batch.num_rows)
                        rows = (
                            rows if deleted is None else _drop_deleted_rows(rows, deleted, numbers)
                        )
                        if rows.num_rows:
                            yield rows

            for group in range(reader.num_row_groups):
                footer = reader.row_group_statistics(group, column.physical)
                bounds = convert_footer_stats(footer, column.physical_type, key.type)
                rows = range(*reader.row_group_starts[group : group + 2])
                yield RowGroup(rows, bounds, partial(read, group))

    def _open(self, bucket_file: BucketFile, path: str, source: IO[bytes]) -> FormatReader:
        schema = self._file_schema(bucket_file)
        stored_fields = [
            *self._stored_columns(bucket_file),
            # Thin files do not have the key columns, which precede the value columns.
            *(replace(f, name=KEY_PREFIX + f.name) for f in schema.key_fields),
            *(self.schema.system_fields or ROW_TRACKING_FIELDS),
        ]
        options = schema.typed_options
        reader = open_reader(
            source,
            path,
            stored_fields,
            legacy_instants=options.get(ORC_LEGACY_INSTANTS),
            remote=self.io.capabilities.has_slow_requests,
        )
        if reader.num_rows is not None:
            _check_row_count(path, reader.num_rows, bucket_file.file)
        return reader

    def _stored_columns(self, bucket_file: BucketFile) -> Sequence[Field]:
        """Return the columns that a file may have; a BLOB file has only one."""
        fields, names = self._file_schema(bucket_file).fields, bucket_file.file.write_cols
        if names is None or not is_blob_file(bucket_file.file.file_name):
            return fields
        return [field for field in fields if field.name in names]

    def _select_rows(
        self,
        bucket_file: BucketFile,
        path: str,
        predicate: Predicate | None,
        first: TopRowsOrLimit | None,
        deletions: DeletionVector | None,
    ) -> Positions | None:
        """Return the rows that indexes select and that are not deleted.

        None stands for all rows that are not deleted.
        """
        evaluator = FileIndexEvaluator(
            self.schema, lambda _: self._file_schema(bucket_file), predicate
        )
        deleted = None if deletions is None else deletions.bitmaps.get(0)
        if predicate is not None:
            rows = evaluator.evaluate(bucket_file.file, path, self.io).rows
        else:
            rows = (
                None
                if first is None
                else evaluator.first(
                    first, bucket_file.file, path=path, io=self.io, deleted=deleted
                ).rows
            )
        if rows is None:
            return None
        return to_positions(rows if deleted is None else rows - deleted)

    def _read_physical_rows(
        self,
        bucket_file: BucketFile,
        path: str,
        fields: Sequence[Field],
        batch_rows: int,
        find_groups: Callable[[ParquetFileReader], Sequence[int]] | None,
        selected: Positions | None,
    ) -> Iterator[NumberedBatch]:
        """Yield all rows, or the selected rows of the row groups that are found."""
        with wrap_decode_errors(path), self.open_input(path, bucket_file.file) as source:
            reader = self._open(bucket_file, path, source)
            columns = self._columns(bucket_file, fields, reader.names)
            batch_rows = _fit_null_rows(batch_rows, columns)
            names, count = [field.name for field in fields], 0
            self._keep_dictionaries(reader, columns)
            partial_columns = self._find_partial_columns(reader, columns, selected)
            physical_names = [
                part
                for name in dict.fromkeys(column.physical for column in columns)
                if name is not None
                for part in partial_columns.get(name, [name])
            ]
            if isinstance(reader, OrcFileReader):
                stats = FileStats(self._file_schema(bucket_file), self.schemas.__getitem__)
                stats_of = stats.of(bucket_file.partition, bucket_file.file)
                refuse_unnamed_zone(path, reader, physical_names, stats_of)
            reads_all = find_groups is None and selected is None
            if isinstance(reader, ParquetFileReader) and not reads_all:
                every_group = range(reader.num_row_groups)
                groups = every_group if find_groups is None else find_groups(reader)
                rows = read_parquet_rows(
                    reader, path, physical_names, batch_rows, groups=groups, selected=selected
                )
            else:
                rows = read_file_rows(reader, physical_names, batch_rows, selected)
            for numbers, batch in assemble_partial_columns(rows, partial_columns):
                arrays = [self._read_column(column, batch) for column in columns]
                rows_read = build_record_batch(arrays, names, batch.num_rows)
                yield (
                    (numbers, rows_read)
                    if selected is None
                    else take_selected_rows(numbers, rows_read, selected)
                )
                count += batch.num_rows
                if selected is not None and numbers[-1] >= selected[-1]:
                    return
            if reads_all:
                _check_row_count(path, count, bucket_file.file)

    def _read_column(self, source: ColumnSource, batch: pa.RecordBatch) -> pa.Array:
        column = source.read(batch)
        if source.field.name not in self.dictionaries or pa.types.is_dictionary(column.type):
            return column
        return column.dictionary_encode()

    def _keep_dictionaries(self, reader: FormatReader, columns: Sequence[ColumnSource]) -> None:
        if self.dictionaries and isinstance(reader, ParquetFileReader):
            reader.keep_dictionaries(
                [
                    column.physical
                    for column in columns
                    if column.field.name in self.dictionaries
                    and column.physical is not None
                    and column.has_unchanged_type
                ]
            )

    def _find_partial_columns(
        self, reader: FormatReader, columns: Sequence[ColumnSource], selected: Positions | None
    ) -> dict[str, list[str]]:
        """Return the columns to read of VARIANT columns that need not be read as a whole."""
        if not self.variant_values or not isinstance(reader, ParquetFileReader):
            return {}
        if selected is not None:  # pages are read of whole columns
            return {}
        values = {
            column.physical: self.variant_values[column.field.name]
            for column in columns
            if column.physical is not None and column.field.name in self.variant_values
        }
        return find_partial_columns(reader, values)

    def _find_matching_row_groups(
        self, bucket_file: BucketFile, predicate: Predicate, reader: ParquetFileReader
    ) -> list[int]:
        """Return the numbers of the row groups that may match, by their statistics."""
        names = collect_columns(predicate)
        fields = [field for field in self.schema.fields if field.name in names]
        columns = {c.field.name: c for c in self._columns(bucket_file, fields, reader.names)}
        tests = {leaf.name: leaf for leaf in iterate_leaves(predicate)}
        groups = range(reader.num_row_groups)

        @cache
        def bounds_of(name: str) -> ColumnBounds:
            leaf, column = tests[name], columns.get(tests[name].column)
            if leaf.variant is not None and column is not None and column.physical is not None:
                return find_variant_bounds(reader, column.physical, leaf.variant)
            if column is None or leaf.variant is not None:
                return ColumnBounds.unknown()
            if column.physical is None:
                return ColumnBounds.of([build_constant_stats(column.constant, column.field.type)])
            footers = [reader.row_group_statistics(group, column.physical) for group in groups]
            types = column.physical_type, column.field.type
            return ColumnBounds.of([convert_footer_stats(footer, *types) for footer in footers])

        row_counts = np.array([reader.row_group_rows(group) for group in groups], np.int64)
        return np.flatnonzero(may_match(predicate, bounds_of, row_counts)).tolist()

    def _file_schema(self, bucket_file: BucketFile) -> TableSchema:
        schema = self.schemas.get(bucket_file.file.schema_id)
        if schema is None:
            raise NotFoundError(
                f"{self.path(bucket_file)} was written with schema {bucket_file.file.schema_id}, "
                "which no longer exists"
            )
        return schema

    def _columns(
        self, bucket_file: BucketFile, fields: Sequence[Field], names: Sequence[str]
    ) -> list[ColumnSource]:
        values = self.schema.decode_partition(bucket_file.partition)
        constants = dict(zip(self.schema.partition_keys, values, strict=True))
        has_system_field = any(field in SYSTEM_FIELDS for field in fields)
        if has_system_field and self._is_numbered_by_snapshot(bucket_file):
            constants[SEQUENCE_NUMBER.name] = bucket_file.file.min_sequence_number
        return find_column_sources(
            fields,
            self._file_schema(bucket_file).fields,
            names,
            constants=constants,
        )

    def _is_numbered_by_snapshot(self, bucket_file: BucketFile) -> bool:
        """Return whether the sequence number of all rows of a file is its snapshot id.

        With ``sequence.snapshot-ordering`` the metadata of appended files holds the snapshot id;
        compacted files hold the numbers of their rows.
        """
        if not self.schema.typed_options.has_snapshot_ordering:
            return False
        if bucket_file.file.file_source is None:
            raise UnsupportedError(
                f"{self.path(bucket_file)}: 'sequence.snapshot-ordering' = true needs a file source "
                "in the metadata of every file, which this file does not have; the option works "
                "only for tables that were created with it"
            )
        return bucket_file.file.file_source == FileSource.APPEND


def _fit_null_rows(batch_rows: int, columns: Sequence[ColumnSource]) -> int:
    """Return how many rows to read at once; fewer than usual if the file lacks wide columns."""
    missing = (c.field.type for c in columns if c.physical is None and c.constant is None)
    return fit_null_rows(batch_rows, sum(measure_value(to_arrow_type(each)) for each in missing))


def _check_row_count(path: str, row_count: int, file: DataFileMeta) -> None:
    if row_count != file.row_count:
        raise CorruptFileError(
            path, f"has {row_count} rows, but its manifest entry states {file.row_count}"
        )


def _restrict_to_range(
    selected: Positions | None, bucket_file: BucketFile, deleted: DeletedRowMask | None
) -> Positions | None:
    """Return the selected rows that a bucket file consists of; None stands for all live rows."""
    rows = bucket_file.rows
    if rows is None:
        return selected
    live = None if deleted is None else deleted.build_live_mask(0, bucket_file.file.row_count)
    rows = rows if live is None else rows[np.asarray(live)[rows]]
    return rows if selected is None else np.intersect1d(selected, rows)


def _build_deleted_mask(
    deletions: DeletionVector | None, bucket_file: BucketFile, path: str
) -> DeletedRowMask | None:
    if deletions is None:
        return None
    deletions.check_rows(bucket_file.file.row_count, path)
    return DeletedRowMask.of(deletions)


def _drop_deleted_rows(
    batch: pa.RecordBatch, deleted: DeletedRowMask, numbers: Positions
) -> pa.RecordBatch:
    """Return a batch of consecutive rows without its deleted rows."""
    mask = deleted.build_live_mask(int(numbers[0]), batch.num_rows)
    return batch if mask is None else batch.filter(mask)
