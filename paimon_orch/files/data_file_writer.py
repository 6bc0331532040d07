"""Writes data files of a target size, with their indexes and the metadata for manifest entries.

See docs/format/data-files.md.
"""

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from math import ceil
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError, StorageError
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES, BatchSizes
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.file_format import FormatWriter, open_writer
from paimon_orch.files.file_index_reader import INDEX_SUFFIX, sibling_path
from paimon_orch.files.file_index_writer import (
    create_index_builder,
    find_bitmap_version,
    should_embed_index,
)
from paimon_orch.files.nested_arrays import find_nested_null
from paimon_orch.files.parquet import FileLayout, ParquetFileWriter, RowGroupSource
from paimon_orch.files.row_tracking import (
    ROW_SEQUENCE_NUMBER,
    SequenceNumberRange,
    row_tracking_fields,
)
from paimon_orch.files.stats.collector import (
    StatsCollector,
    build_key_stats,
    build_value_stats,
    to_internal_value,
)
from paimon_orch.files.uncommitted_files import UncommittedFiles, delete_unused_files
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.external_paths import DataFilePathFactory, NewFilePath
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.index_keys import BLOOM_FILTER
from paimon_orch.format.file_index.index_options import LATEST_BITMAP_VERSION, parse_index_specs
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, FileSource
from paimon_orch.format.options.core_options import (
    CHANGELOG_FILE_PREFIX,
    COMPACTION_SMALL_FILE_RATIO,
    DATA_FILE_PREFIX,
    DATA_FILE_THIN_MODE,
)
from paimon_orch.format.paths import FileNameGenerator, TablePaths
from paimon_orch.format.row.binary_row import EMPTY_ROW, serialize_row
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.schema import (
    KEY_PREFIX,
    SEQUENCE_NUMBER,
    SYSTEM_FIELD_ID,
    VALUE_KIND,
    TableSchema,
)
from paimon_orch.format.types.data_types import DataType, Field, list_child_types
from paimon_orch.storage import FileIO

_ROW_GROUP_BYTES = 128 << 20  # uncompressed Arrow data buffered for one row group
_BALANCED_GROUPS = 1.5
# Changelog files have these options instead of those of their level. ``file.compression`` is not
# replaced, because the names of Java Paimon's changelog files contain its codec.
_CHANGELOG_OPTIONS = {
    "changelog-file.format": "file.format.per.level",
    "changelog-file.compression": "file.compression.per.level",
    "changelog-file.stats-mode": "metadata.stats-mode.per.level",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRows:
    """What the metadata of a new file needs of copied rows of a primary-key table."""

    sequence_numbers: tuple[int, int]
    """The lowest and the highest sequence number."""

    read_first_key: Callable[[], bytes]
    read_last_key: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class FileWriterFactory:
    """Creates writers for the buckets of one table; picklable, for use in Spark tasks."""

    io: FileIO
    paths: TablePaths
    schema: TableSchema
    bitmap_version: int = LATEST_BITMAP_VERSION
    _: KW_ONLY
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES

    @classmethod
    def for_rewrite(
        cls, reader: FileReader, partition_bucket: PartitionBucket, files: Iterable[DataFileMeta]
    ) -> "FileWriterFactory":
        """Return a factory for files that replace others.

        New bitmap indexes have the same version as those of the replaced files. Raises
        :class:`UnsupportedError` if Java would read other values from the new files.
        """
        files = list(files)
        reader.check_rewritable(partition_bucket, files)

        def path_of(file: DataFileMeta) -> str:
            return reader.path(BucketFile(*partition_bucket, file))

        version = find_bitmap_version(reader.io, path_of, files, reader.schema)
        return cls(reader.io, reader.paths, reader.schema, version, batch_sizes=reader.batch_sizes)

    def writer(
        self,
        partition_bucket: PartitionBucket,
        *,
        level: int = 0,
        source: FileSource = FileSource.APPEND,
        first_sequence: int = 0,
        changelog: bool = False,
        rolls: bool = True,
        columns: Sequence[str] | None = None,
    ) -> "RollingFileWriter":
        """Return a writer of new data files in one bucket.

        ``first_sequence`` is the sequence number of the first row of tables without primary key,
        whose rows have no column of sequence numbers. Changelog files have separate options and a
        separate name prefix. ``rolls=False`` writes all rows to one file. With
        ``columns``, writes only these columns and no file index. Raises :class:`UnsupportedError`
        for tables that do not accept commits.
        """
        schema = _with_changelog_options(self.schema, level) if changelog else self.schema
        schema = (
            schema if columns is None else replace(schema, fields=tuple(schema.select(columns)))
        )
        options = schema.typed_options
        is_limited = source is FileSource.APPEND and not changelog and rolls
        return RollingFileWriter(
            io=self.io,
            placement=self.paths.create_data_file_path_factory(self.schema, *partition_bucket),
            prefix=options.get(CHANGELOG_FILE_PREFIX if changelog else DATA_FILE_PREFIX),
            schema=schema,
            level=level,
            source=source,
            next_sequence=first_sequence,
            max_rows=options.target_file_rows if is_limited else sys.maxsize,
            rolls=rolls,
            bitmap_version=None if changelog or columns is not None else self.bitmap_version,
            batch_sizes=self.batch_sizes,
        )


def _with_changelog_options(schema: TableSchema, level: int) -> TableSchema:
    """Return the schema with the options of changelog files instead of the options of a level."""
    changelog_options = {
        of_data: f"{level}:{schema.options[of_changelog]}"
        for of_changelog, of_data in _CHANGELOG_OPTIONS.items()
        if of_changelog in schema.options
    }
    return replace(schema, options={**schema.options, **changelog_options})


@dataclass(slots=True, kw_only=True)
class RollingFileWriter(UncommittedFiles):
    """Writes rows into files of the target size; in a ``with`` block an error deletes the files.

    Rows of tables with a primary key are sorted and also have the columns ``_SEQUENCE_NUMBER`` and
    ``_VALUE_KIND``; the writer adds the key columns. A new file is started when the current one
    reaches the target size.
    """

    io: FileIO
    placement: DataFilePathFactory
    prefix: str
    schema: TableSchema
    level: int
    source: FileSource
    next_sequence: int
    """The sequence number of the next row, if rows have no column of sequence numbers."""
    max_rows: int
    """The maximum number of rows of a file."""
    rolls: bool
    """Whether a new file is started when the current one reaches the target size."""
    bitmap_version: int | None
    """The version of bitmap indexes, or None for files without indexes."""
    batch_sizes: BatchSizes
    balances_groups: bool = False
    """Whether rows between copied row groups become row groups of about the same size.

    At most one and a half row groups are then pending."""
    _names: FileNameGenerator = field(default_factory=FileNameGenerator)
    _pending: list[pa.Table] = field(default_factory=list)
    _pending_rows: int = 0
    _pending_bytes: int = 0
    _open_file: "_OpenFile | None" = None
    _finished_files: list[DataFileMeta] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)
    _target_size: int = field(init=False)
    _layout: list[Field] = field(init=False)
    _needs_small_pages: bool = field(init=False)

    def __post_init__(self) -> None:
        self._target_size = self.schema.target_file_size
        self._layout = data_file_fields(self.schema)
        if self.source is FileSource.COMPACT:
            self._layout += row_tracking_fields(self.schema)
        specs = parse_index_specs(self.schema.options)
        has_row_level_index = any(spec.index != BLOOM_FILTER for spec in specs)
        self._needs_small_pages = self.bitmap_version is not None and has_row_level_index

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        if self._pending_rows >= self._rows_per_group() * self._max_pending_groups:
            self._write_groups(keep_rest=True)

    @property
    def _max_pending_groups(self) -> float:
        return _BALANCED_GROUPS if self.balances_groups else 1

    def _rows_per_group(self) -> int:
        width = max(1, self._pending_bytes // max(1, self._pending_rows))
        rows = min(_ROW_GROUP_BYTES, self._target_size) // width
        sizes = self.batch_sizes
        return max(sizes.min_row_group_rows, min(sizes.row_group_rows, rows))

    def _write_groups(self, *, keep_rest: bool) -> None:
        """Write the pending rows in row groups; ``keep_rest`` leaves the last, incomplete group."""
        rows, group_rows = pa.concat_tables(self._pending), self._rows_per_group()
        start = 0
        if self.balances_groups and not keep_rest:  # no small row group before a copied one
            group_rows = ceil(rows.num_rows / ceil(rows.num_rows / group_rows))
        while rows.num_rows - start >= (group_rows * self._max_pending_groups if keep_rest else 1):
            end = min(start + group_rows, rows.num_rows)
            while start < end:
                file = self._open_file or self._start_file()
                part = rows.slice(start, min(end - start, self.max_rows - file.rows))
                file.write(part)
                start += part.num_rows
                if self._is_full(file):
                    self._finish_file()
        remainder = rows.slice(start)
        self._pending = [remainder] if remainder.num_rows else []
        self._pending_rows, self._pending_bytes = remainder.num_rows, remainder.nbytes

    def find_copied_layout(self) -> FileLayout | None:
        """Return the layout of row groups that :meth:`copy` accepts, or None if it accepts none."""
        options = self.schema.typed_options
        has_limit = self.max_rows != sys.maxsize
        has_other_columns = self._layout != data_file_fields(self.schema)
        needs_index = self.bitmap_version is not None and bool(
            parse_index_specs(self.schema.options)
        )
        kind = options.file_format(self.level)
        if has_limit or has_other_columns or needs_index or kind != "parquet":
            return None
        writer = self._open_writer(io.BytesIO(), kind)
        return writer.copied_layout if isinstance(writer, ParquetFileWriter) else None

    @property
    def pending_rows(self) -> int:
        """Return the number of rows that are not yet in a row group."""
        return self._pending_rows

    def copy(
        self,
        groups: RowGroupSource,
        size: int,
        stats: Sequence[ColumnStats],
        sorted_rows: SortedRows | None = None,
    ) -> None:
        """Append row groups without decoding them, after the pending rows.

        ``size`` is their size in bytes, and ``stats`` are the statistics of all columns. Tables
        with a primary key need ``sorted_rows``. The file must have the layout of
        :meth:`find_copied_layout`.
        """
        if self._pending:
            self._write_groups(keep_rest=False)
        if self._open_file is not None and self._should_finish_before(size):
            self._finish_file()
        open_file = self._open_file or self._start_file()
        open_file.copy(groups, stats, sorted_rows)
        if self._is_full(open_file):
            self._finish_file()

    def _is_full(self, file: "_OpenFile") -> bool:
        return self.rolls and (file.size >= self._target_size or file.rows >= self.max_rows)

    def _should_finish_before(self, next_size: int) -> bool:
        """Return whether the open file is nearer to the target size without the next input.

        A file that would be small is continued, because it would be compacted again.
        """
        assert self._open_file is not None
        ratio = self.schema.typed_options.get(COMPACTION_SMALL_FILE_RATIO)
        size, target = self._open_file.size, self._target_size
        return size >= target * ratio and size + next_size - target > target - size

    def _start_file(self) -> "_OpenFile":
        options = self.schema.typed_options
        kind = options.file_format(self.level)
        name = self._names.next(self.prefix, options.file_extension(kind))
        location = self.placement.place(name)
        self._paths.append(location.path)
        sink = self.io.open_output(location.path)
        try:
            writer = self._open_writer(sink, kind)
        except BaseException:
            sink.close()
            raise
        open_file = _OpenFile(
            name,
            location,
            sink,
            writer,
            schema=self.schema,
            layout=self._layout,
            level=self.level,
        )
        if self.bitmap_version is not None:
            open_file.index = create_index_builder(self.schema, self.bitmap_version)
        self._open_file = open_file
        return open_file

    def _open_writer(self, sink: IO[bytes], kind: str) -> FormatWriter:
        return open_writer(
            sink,
            kind,
            fields=self._layout,
            options=self.schema.typed_options,
            level=self.level,
            target=self._target_size,
            small_pages=self._needs_small_pages,
        )

    def _finish_file(self) -> None:
        if self._open_file is not None:
            meta = self._open_file.close(self.level, self.source, self.next_sequence)
            self.next_sequence += meta.row_count
            self._finished_files.append(self._store_index(meta, self._open_file))
            self._open_file = None

    def _store_index(self, meta: DataFileMeta, open_file: "_OpenFile") -> DataFileMeta:
        """Store the indexes of a file in its metadata, or in a separate file if they are large."""
        if open_file.index is None:
            return meta
        container = open_file.index.finish()
        if should_embed_index(container, self.schema):
            return replace(meta, embedded_index=container)
        name = meta.file_name + INDEX_SUFFIX
        path = sibling_path(open_file.location.path, name)
        self._paths.append(path)
        with self.io.open_output(path) as sink:
            sink.write(container)
        return replace(meta, extra_files=(*meta.extra_files, name))

    def close(self) -> list[DataFileMeta]:
        """Write the pending rows and return the metadata of all files; no file is empty."""
        if self._pending:
            self._write_groups(keep_rest=False)
        self._finish_file()
        return self._finished_files

    def delete_files(self) -> None:
        """Delete all files that were written."""
        if self._open_file is not None:
            with suppress(OSError, StorageError):
                self._open_file.sink.close()
        delete_unused_files(self.io, self._paths)


def data_file_fields(schema: TableSchema) -> list[Field]:
    """Return the physical columns of a data file.

    See docs/format/data-files.md#physical-columns.
    """
    keys = []
    if not schema.typed_options.get(DATA_FILE_THIN_MODE):
        keys = [
            Field(id=SYSTEM_FIELD_ID + field.id, name=KEY_PREFIX + field.name, type=field.type)
            for field in schema.key_fields
        ]
    return [*keys, *schema.system_fields, *schema.fields]


def local_wall_clock_millis() -> int:
    """Return the current local time interpreted as UTC, as Java Paimon stores creation times.

    See docs/format/manifest.md#manifest-record.
    """
    return int(datetime.now().replace(tzinfo=UTC).timestamp() * 1000)


class _OpenFile:
    """The file that is being written, and the values for its manifest entry."""

    def __init__(
        self,
        name: str,
        location: NewFilePath,
        sink: IO[bytes],
        writer: FormatWriter,
        *,
        schema: TableSchema,
        layout: Sequence[Field],
        level: int,
    ) -> None:
        self.name, self.location, self.sink, self._writer = name, location, sink, writer
        self._schema, self._names = schema, [field.name for field in layout]
        self._required = [
            field
            for field in layout
            if field.name not in schema.keys_with_null_values and _has_not_null_part(field.type)
        ]
        self.index: FileIndexBuilder | None = None
        self._order = schema.order_fields(level)
        by_key = self._order == schema.key_fields
        first_key = next(iter(schema.trimmed_primary_keys), None)
        self._stats = StatsCollector(schema.fields, first_key if by_key else None)
        self._rows = self._delete_row_count = 0
        self._sequence: tuple[int, int] | None = None
        self._sequence_range = SequenceNumberRange() if ROW_SEQUENCE_NUMBER in layout else None
        self._min_key = self._max_key = EMPTY_ROW
        self._read_max_key: Callable[[], bytes] | None = None

    @property
    def size(self) -> int:
        """Return the number of bytes written so far."""
        return self.sink.tell()

    @property
    def rows(self) -> int:
        """Return the number of rows written so far."""
        return self._rows

    def write(self, rows: pa.Table) -> None:
        schema = self._schema
        footer_bounds = []
        if isinstance(self._writer, ParquetFileWriter):
            footer_bounds = self._writer.find_footer_bounds(rows)
        self._stats.update(rows, footer_bounds)
        if schema.system_fields:
            if not self._rows:
                self._min_key = _serialize_key(rows, 0, self._order)
            self._max_key = _serialize_key(rows, rows.num_rows - 1, self._order)
            self._read_max_key = None
            low, high = pc.min_max(rows.column(SEQUENCE_NUMBER.name)).as_py().values()
            self._add_sequence_numbers(low, high)
            self._delete_row_count += int(is_retract(rows.column(VALUE_KIND.name)).sum())
        if self._sequence_range is not None:
            self._sequence_range.add(rows.column(ROW_SEQUENCE_NUMBER.name))
        if self.index is not None:
            self.index.add(rows)
        self._rows += rows.num_rows
        for required in self._required:
            _refuse_null(rows.column(required.name.removeprefix(KEY_PREFIX)), required)
        columns = [rows.column(name.removeprefix(KEY_PREFIX)) for name in self._names]
        self._writer.write(pa.table(columns, names=self._names))

    def _add_sequence_numbers(self, low: int, high: int) -> None:
        lowest, highest = self._sequence or (low, high)
        self._sequence = min(low, lowest), max(high, highest)

    def copy(
        self, groups: RowGroupSource, stats: Sequence[ColumnStats], sorted_rows: SortedRows | None
    ) -> None:
        assert isinstance(self._writer, ParquetFileWriter)
        if sorted_rows is not None:
            if not self._rows:
                self._min_key = sorted_rows.read_first_key()
            self._read_max_key = sorted_rows.read_last_key
            self._add_sequence_numbers(*sorted_rows.sequence_numbers)
        self._writer.copy(groups)
        self._stats.merge(stats, groups.rows)
        self._rows += groups.rows

    def close(self, level: int, source: FileSource, first_sequence: int) -> DataFileMeta:
        self._writer.close()
        if self._read_max_key is not None:  # only the last key of a file is read
            self._max_key = self._read_max_key()
        if isinstance(self._writer, ParquetFileWriter):
            for bounds in self._writer.footer_bounds():
                self._stats.add_bounds(*bounds)
        size = self.size
        self.sink.close()
        schema = self._schema
        stats, stats_cols = build_value_stats(self._stats, schema, level)
        low, high = self._sequence or (first_sequence, first_sequence + self._rows - 1)
        if self._sequence_range is not None:
            low, high = self._sequence_range.bounds
        return DataFileMeta(
            file_name=self.name,
            file_size=size,
            row_count=self._rows,
            min_key=self._min_key,
            max_key=self._max_key,
            key_stats=build_key_stats(self._stats, schema.key_fields),
            value_stats=stats,
            min_sequence_number=low,
            max_sequence_number=high,
            schema_id=schema.id,
            level=level,
            creation_time=local_wall_clock_millis(),
            delete_row_count=self._delete_row_count,
            file_source=int(source),
            value_stats_cols=stats_cols,
            external_path=self.location.external,
        )


def _has_not_null_part(data_type: DataType) -> bool:
    return not data_type.nullable or any(map(_has_not_null_part, list_child_types(data_type)))


def _refuse_null(column: pa.ChunkedArray, field: Field) -> None:
    """Raise :class:`InputError` for null in a NOT NULL column, which Java Paimon refuses, too.

    Writers of new rows have checked them before. See docs/format/schema.md#schema-changes.
    """
    path = field.name if column.null_count and not field.type.nullable else None
    if path is None and list_child_types(field.type):
        below = find_nested_null(column.combine_chunks(), field.type)
        path = None if below is None else f"{field.name}.{below}"
    if path is not None:
        raise InputError(
            f"{path!r} is NOT NULL, but rows to write again have null in it: it became NOT NULL "
            "later, got a type that does not hold their values, or a merge removed its value. Alter "
            "it to be nullable first"
        )


def _serialize_key(rows: pa.Table, index: int, fields: Sequence[Field]) -> bytes:
    values = [to_internal_value(rows.column(field.name)[index]) for field in fields]
    return serialize_row(values, [field.type for field in fields])
