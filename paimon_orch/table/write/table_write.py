"""Writing rows: check, route to buckets, sort, and flush as level-0 files.

See docs/format/buckets.md and docs/format/data-files.md#order-and-sequence-numbers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.data_file_reader import build_constant_column
from paimon_orch.files.data_file_writer import FileWriterFactory, RollingFileWriter
from paimon_orch.files.schema_evolution.default_values import fill_default
from paimon_orch.files.schema_evolution.evolve import convert_to_arrow_type
from paimon_orch.files.schema_evolution.nested import find_nested_null
from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.format.arrays import Int32Array, Int64Array
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.options.core_options import (
    BUCKET_FUNCTION_TYPE,
    ROWKIND_FIELD,
    SEQUENCE_FIELD,
    WRITE_BUFFER_SIZE,
)
from paimon_orch.format.paths import POSTPONE_BUCKET
from paimon_orch.format.row.binary_row import EMPTY_ROW, serialize_row
from paimon_orch.format.row.row_kind import RowKind, is_retract, parse_row_kinds
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.format.types.arrow import to_arrow_type
from paimon_orch.format.types.data_types import Field
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.sort_merge_reader import build_sorted_batch
from paimon_orch.table.write.dynamic_bucket import HashIndexWriter, has_dynamic_buckets
from paimon_orch.table.write.merge_flushes import merge_flushes
from paimon_orch.table.write.postpone_bucket import (
    PostponeBuckets,
    build_postpone_writer_factory,
    check_postpone_options,
    has_postpone_buckets,
)


def check_writable(schema: TableSchema) -> None:
    """Refuse tables whose rows this library cannot write, by the feature's name."""
    if has_postpone_buckets(schema):
        check_postpone_options(schema)
    has_dynamic_buckets(schema)


def conform_rows(
    rows: pa.Table,
    schema: TableSchema,
    *,
    row_kind: str | None = None,
    kind: RowKind = RowKind.INSERT,
    are_new: bool = True,
) -> pa.Table:
    """Return rows in the table's columns and types; with primary key also with ``_VALUE_KIND``.

    ``row_kind`` names a text column of ``+I``, ``-U``, ``+U``, ``-D``. Without it rows are of ``kind``; inserts are what the
    column says that ``rowkind.field`` names, if it does. Rows that are not new keep their nulls in columns with a default.
    Raises :class:`InputError` for missing, unknown or uncastable columns and for nulls where the table has none.
    """
    if kind is RowKind.INSERT:
        row_kind = row_kind or schema.typed_options.get(ROWKIND_FIELD)
    check_columns(rows.column_names, schema, row_kind=row_kind)
    columns = {
        column.name: _conform_column(rows, column, are_new=are_new) for column in schema.fields
    }
    if row_kind is None:
        kinds = pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows)
    else:
        kinds = parse_row_kinds(rows.column(row_kind).combine_chunks())
    if schema.primary_keys:
        columns = {VALUE_KIND.name: kinds, **columns}
    elif row_kind is not None and is_retract(kinds).any():
        raise InputError(
            f"column {row_kind!r} has rows of kind -U or -D, which a table without a primary key does not take; give it "
            "+I and +U alone, and delete rows by a condition"
        )
    return pa.table(columns)


def check_columns(names: Iterable[str], schema: TableSchema, *, row_kind: str | None) -> None:
    """Refuse rows whose columns are not the table's, naming every difference."""
    names = list(names)
    given = set(names)
    missing = [name for name in schema.names if name not in given]
    unknown = sorted(given - set(schema.names) - {row_kind})
    if row_kind is not None and row_kind not in given:
        missing.append(row_kind)
    repeated = sorted(name for name in given if names.count(name) > 1)
    if missing or unknown or repeated:
        differences = []
        if missing:
            keys = [name for name in missing if name in schema.primary_keys]
            note = f" (of the primary key: {', '.join(keys)})" if keys else ""
            differences.append(f"missing {', '.join(missing)}{note}")
        if unknown:
            differences.append(f"unknown {', '.join(unknown)}")
        if repeated:
            differences.append(f"more than one {', '.join(repeated)}")
        raise InputError(
            f"the rows do not have the table's columns: {'; '.join(differences)}. The table has "
            f"{', '.join(schema.names)}; nothing was written."
        )


def _conform_column(rows: pa.Table, column: Field, *, are_new: bool) -> pa.Array:
    array, target = rows.column(column.name).combine_chunks(), to_arrow_type(column.type)
    try:
        array = convert_to_arrow_type(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InputError(
            f"column {column.name!r} is {array.type} and cannot be stored as {target}: {error}"
        ) from error
    if are_new:
        array = fill_default(array, column)
        _check_utf8(array, column)
    if array.null_count and not column.type.nullable:
        raise InputError(
            f"column {column.name!r} has {array.null_count} null values, but the table allows none there "
            "(it is NOT NULL, as every column of a primary key); nothing was written"
        )
    if (path := find_nested_null(array, column.type)) is not None:
        raise InputError(
            f"column {column.name!r} has null at {path!r}, which is NOT NULL; nothing was written"
        )
    return array


def _check_utf8(array: pa.Array, column: Field) -> None:
    """Refuse text that is not UTF-8; Arrow does not validate the bytes of other producers."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {column.name!r} has text that is not UTF-8 ({error}); decode it first, or store it as BYTES. "
            "Nothing was written"
        ) from error


def complete_rows_to_delete(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return rows with all columns, of which a delete by key needs the key, the partition and the order of its rows.

    Raises :class:`InputError` if one of these is missing: the delete would go elsewhere, or lose against what is there.
    """
    order = schema.typed_options.get(SEQUENCE_FIELD)
    needed = dict.fromkeys((*schema.primary_keys, *schema.partition_keys, *order))
    missing = [name for name in needed if name not in rows.column_names]
    if missing:
        raise InputError(
            f"rows to delete need the columns {', '.join(needed)}: those of the primary key, of the partition and of "
            f"'sequence.field'; {', '.join(missing)} is missing. Nothing was deleted."
        )
    for column in schema.fields:
        if column.name not in rows.column_names:
            rows = rows.append_column(column.name, build_placeholder_values(column, rows.num_rows))
    return rows


def build_placeholder_values(column: Field, length: int) -> pa.Array:
    """Return values for a column that nobody reads, in rows that only delete: null, or what is not null."""
    target = to_arrow_type(column.type)
    if column.type.nullable:
        return pa.nulls(length, target)
    text = pa.types.is_string(target) or pa.types.is_binary(target)
    empty = b"" if text else False if pa.types.is_boolean(target) else 0
    try:
        return build_constant_column(empty, column.type, length)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"rows to delete need a value for {column.name!r}, which is NOT NULL"
        ) from error


def assign_fixed_buckets(columns: Mapping[str, pa.Array], schema: TableSchema) -> Int32Array:
    """Return the bucket of each row; ``columns`` holds the bucket key columns in the table's types.

    Without primary key and bucket count it is 0. Dynamic buckets are not asked for here: see ``dynamic_bucket``.
    """
    options = schema.typed_options
    length = len(next(iter(columns.values())))
    if options.bucket > 0:
        fields = schema.bucket_key_fields
        keys = [columns[key.name] for key in fields]
        function = options.get(BUCKET_FUNCTION_TYPE)
        return compute_buckets(keys, [key.type for key in fields], options.bucket, function)
    return np.zeros(length, np.int32)


def split_by_bucket(
    rows: pa.Table,
    schema: TableSchema,
    index: HashIndexWriter | None = None,
    postponed: PostponeBuckets | None = None,
) -> Iterator[tuple[PartitionBucket, pa.Table]]:
    """Yield the rows of each partition and bucket, in the order they came.

    ``index`` assigns dynamic buckets, ``postponed`` tells the bucket counts of tables with postpone buckets.
    """
    if not rows.num_rows:
        return
    if postponed is not None:
        for _, group in _group_by_code(rows, _compute_partition_codes(rows, schema)):
            partition = serialize_partition(group, schema)
            count = postponed.count(partition)
            if count == POSTPONE_BUCKET:
                yield PartitionBucket(partition, count), group
                continue
            counted = replace(schema, options={**schema.options, "bucket": str(count)})
            for (_, number), part in split_by_bucket(group, counted):
                yield PartitionBucket(partition, number), part
        return
    if index is not None:
        for _, group in _group_by_code(rows, _compute_partition_codes(rows, schema)):
            partition = serialize_partition(group, schema)
            assigned = index.assign(partition, group)
            for first, part in _group_by_code(group, assigned):
                yield PartitionBucket(partition, int(assigned[first])), part
        return
    names = dict.fromkeys([*(f.name for f in schema.bucket_key_fields), *schema.names[:1]])
    keys = {name: rows.column(name).combine_chunks() for name in names}
    bucket = assign_fixed_buckets(keys, schema)
    codes = _compute_partition_codes(rows, schema) * (int(bucket.max()) + 1) + bucket
    for first, part in _group_by_code(rows, codes):
        yield PartitionBucket(serialize_partition(part, schema), int(bucket[first])), part


def _compute_partition_codes(rows: pa.Table, schema: TableSchema) -> Int64Array:
    """Return a number for each row, equal where the partitions are."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in schema.partition_keys:
        encoded = rows.column(name).combine_chunks().dictionary_encode()
        # null is a partition of its own
        indices = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
        codes = codes * (len(encoded.dictionary) + 1) + indices
    return codes


def _group_by_code(
    rows: pa.Table, codes: npt.NDArray[np.integer]
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each code (none is negative), in the order they came, and where the first one was."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        whole = end - start == len(order)
        yield int(order[start]), rows if whole else rows.take(pa.array(order[start:end]))


def serialize_partitions(rows: pa.Table, schema: TableSchema) -> set[bytes]:
    """Return the serialized partitions of rows."""
    if not rows.num_rows:
        return set()
    groups = _group_by_code(rows, _compute_partition_codes(rows, schema))
    return {serialize_partition(group, schema) for _, group in groups}


def serialize_partition(rows: pa.Table, schema: TableSchema) -> bytes:
    """Return the serialized partition of rows that all lie in one."""
    fields = schema.partition_fields
    if not fields:
        return EMPTY_ROW
    values = [to_internal_value(rows.column(key.name)[0]) for key in fields]
    return serialize_row(values, [key.type for key in fields])


@dataclass(slots=True, kw_only=True)
class TableWriter:
    """Buffers rows per bucket and flushes them as sorted level-0 files, in bounded memory.

    ``first_sequence`` is the next sequence number of each bucket that has files; tables with dynamic buckets need an
    ``index`` too, those with postpone buckets ``postponed``. ``changelog`` fills with entries of files that hold the
    rows as they came, if the table asks for that (``changelog-producer = input``) and nothing is overwritten. Nothing
    is visible before all entries are committed.
    """

    factory: FileWriterFactory
    first_sequence: Mapping[PartitionBucket, int]
    index: HashIndexWriter | None = None
    is_overwrite: bool = False
    postponed: PostponeBuckets | None = None
    changelog: list[ManifestEntry] = field(default_factory=list)
    _buffers: dict[PartitionBucket, list[pa.Table]] = field(default_factory=dict)
    _sequence: dict[PartitionBucket, int] = field(default_factory=dict)
    _writers: list[RollingFileWriter] = field(default_factory=list)
    _append_writers: dict[PartitionBucket, RollingFileWriter] = field(default_factory=dict)
    _flushes: dict[PartitionBucket, list[RollingFileWriter]] = field(default_factory=dict)
    _entries: list[ManifestEntry] = field(default_factory=list)
    _held: int = 0

    @property
    def _schema(self) -> TableSchema:
        return self.factory.schema

    def write(self, rows: pa.Table) -> None:
        """Take rows as :func:`conform_rows` returns them; later rows of a key win.

        A column ``_SEQUENCE_NUMBER`` (int64, from 0) tells the order of rows that come in another order.
        """
        for at, group in split_by_bucket(rows, self._schema, self.index, self.postponed):
            self.write_bucket(at, group)

    def write_bucket(self, at: PartitionBucket, rows: pa.Table) -> None:
        """Take rows that all belong to one bucket, as :meth:`write` does."""
        if self._schema.primary_keys:
            accepted = create_merge_engine(self._schema).accepted(rows)
            if accepted.num_rows and at[1] == POSTPONE_BUCKET:
                self._write_postponed(at, accepted)
            elif accepted.num_rows:
                self._buffer_rows(at, accepted)
        else:
            self._get_append_writer(at).write(rows)

    def _buffer_rows(self, at: PartitionBucket, rows: pa.Table) -> None:
        start = self.first_sequence.get(at, 0)
        if SEQUENCE_NUMBER.name in rows.column_names:  # the caller knows the order of the rows
            order = rows.column(SEQUENCE_NUMBER.name)
            rows = rows.drop_columns(SEQUENCE_NUMBER.name)
            numbers = pc.add(order, start)
        else:
            start = self._sequence.get(at, start)
            self._sequence[at] = start + rows.num_rows
            numbers = pa.array(np.arange(start, start + rows.num_rows))
        self._buffers.setdefault(at, []).append(rows.add_column(0, SEQUENCE_NUMBER.name, numbers))
        self._held += rows.nbytes
        if self._held >= self._schema.typed_options.get(WRITE_BUFFER_SIZE):
            self._flush()

    def _write_postponed(self, at: PartitionBucket, rows: pa.Table) -> None:
        """Write rows as they come, neither sorted nor merged; their numbers tell their order in this file alone."""
        if SEQUENCE_NUMBER.name in rows.column_names:
            raise UnsupportedError(
                "rows that come in another order cannot wait in bucket-postpone: write them by Table.upsert, or set "
                "'postpone.batch-write-fixed-bucket' = true and compact what waits"
            )
        if at not in self._append_writers:
            self._append_writers[at] = build_postpone_writer_factory(self.factory).writer(*at)
            self._writers.append(self._append_writers[at])
        start = self._sequence.get(at, 0)
        self._sequence[at] = start + rows.num_rows
        numbers = pa.array(np.arange(start, start + rows.num_rows))
        self._append_writers[at].write(rows.add_column(0, SEQUENCE_NUMBER.name, numbers))

    def _get_append_writer(self, at: PartitionBucket) -> RollingFileWriter:
        if at not in self._append_writers:
            first = self.first_sequence.get(at, 0)
            self._append_writers[at] = self.factory.writer(*at, first_sequence=first)
            self._writers.append(self._append_writers[at])
        return self._append_writers[at]

    def _flush(self) -> None:
        """Sort and merge what is buffered, one level-0 file (or more, when large) a bucket."""
        engine = create_merge_engine(self._schema)
        for at, tables in self._buffers.items():
            rows = pa.concat_tables(tables)
            step = build_sorted_batch(rows, self._schema.trimmed_primary_keys, engine.sequence)
            step = engine.prepare(step)
            self._write_file(at, engine.merge(step), self._entries)
            if self._schema.typed_options.changelog_producer == "input" and not self.is_overwrite:
                self._write_file(at, step.rows.take(pa.array(step.order)), self.changelog)
        self._buffers.clear()
        self._held = 0

    def _write_file(
        self, at: PartitionBucket, rows: pa.Table, entries: list[ManifestEntry]
    ) -> None:
        writer = self.factory.writer(*at, changelog=entries is self.changelog)
        self._writers.append(writer)
        writer.write(rows)
        if self._schema.typed_options.has_snapshot_ordering and entries is self._entries:
            writer.close()
            self._flushes.setdefault(at, []).append(writer)
        else:
            self._add_entries(at, writer, entries)

    def _merge_flushes(self) -> None:
        """Add the flushed files of each bucket, merged where there were several flushes (``merge_flushes``)."""
        for at, flushes in self._flushes.items():
            writer = flushes[0]
            if len(flushes) > 1:
                writer = self.factory.writer(*at)
                self._writers.append(writer)
                merge_flushes(self.factory, *at, [flush.close() for flush in flushes], writer)
                for flush in flushes:
                    flush.abort()
            self._add_entries(at, writer, self._entries)
        self._flushes.clear()

    def _add_entries(
        self, at: PartitionBucket, writer: RollingFileWriter, entries: list[ManifestEntry]
    ) -> None:
        total = self._schema.typed_options.bucket
        if self.postponed is not None:
            total = self.postponed.count(at[0])
        entries += [
            ManifestEntry(
                kind=FileKind.ADD, partition=at[0], bucket=at[1], total_buckets=total, file=file
            )
            for file in writer.close()
        ]

    def close(self) -> list[ManifestEntry]:
        """Write what is buffered and return an ADD entry for every new file."""
        self._flush()
        self._merge_flushes()
        for at, writer in self._append_writers.items():
            self._add_entries(at, writer, self._entries)
        return self._entries

    def close_index(self) -> list[IndexManifestEntry]:
        """Write the hash indexes that changed and return an ADD entry for each; to be committed with the files."""
        return [] if self.index is None else self.index.close()

    def abort(self) -> None:
        """Remove every file that was written."""
        for writer in self._writers:
            writer.abort()
        if self.index is not None:
            self.index.abort()
