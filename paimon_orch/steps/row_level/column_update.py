"""Updates of data-evolution tables: new files with only the changed columns of a range of rows.

See docs/format/row-tracking.md#updates-and-deletes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.row_tracking import ROW_ID
from paimon_orch.format.arrays import Indices, Int64Array, to_arrow_array, to_numpy
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    build_entries,
)
from paimon_orch.format.options.core_options import GLOBAL_INDEX_COLUMN_UPDATE_ACTION
from paimon_orch.format.row.simple_stats import EMPTY_STATS
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.row_level.task_result import (
    ADDRESS_COLUMN,
    KIND_COLUMN,
    RowAddresses,
    RowLevelTaskResult,
    group_rows_by_file,
    split_addresses,
)
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.row_range_conflicts import ColumnChange, ColumnGuard
from paimon_orch.table.scan.data_evolution import DataEvolutionReader, RowIdGroup
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files
from paimon_orch.table.write.conform_rows import convert_rows
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_plan import WritePlan


@dataclass(frozen=True, slots=True)
class RowRange:
    """The files of a range of row ids."""

    bucket: PartitionBucket
    files: RowIdGroup

    @property
    def first_row_id(self) -> int:
        """Return the id of the first row."""
        return self.files[0].first_row_id or 0

    def without_stats(self) -> "RowRange":
        """Return the range without data that readers of all rows do not need."""
        files = tuple(
            replace(file, key_stats=EMPTY_STATS, value_stats=EMPTY_STATS, embedded_index=None)
            for file in self.files
        )
        return replace(self, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnUpdate:
    """The plan of an update of some columns for its tasks."""

    writing: WritePlan
    """Writes new rows."""
    reader: FileReader
    ranges: Sequence[RowRange]
    """The ranges of row ids that addresses of rows refer to."""
    names: tuple[str, ...]
    """The columns to write, in the order of the schema."""

    @property
    def schema(self) -> TableSchema:
        """Return the schema with only the columns to write."""
        schema = self.writing.schema
        return replace(schema, fields=tuple(schema.select(self.names)))

    def prepare(
        self, batches: Iterable[pa.RecordBatch], _first_row: int | None = None
    ) -> Iterator[pa.Table]:
        """Convert rows with addresses and kinds; each table has rows of only one kind."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            for kind in ("-D", "+U", "+I"):
                of_kind = rows.filter(pc.equal(rows.column(KIND_COLUMN), kind))
                if not of_kind.num_rows:
                    continue
                changed = of_kind.select([ADDRESS_COLUMN, KIND_COLUMN])
                if kind == "+I":
                    yield from self.writing.prepare(of_kind.combine_chunks().to_batches())
                elif kind == "-D":
                    yield changed
                else:
                    new = of_kind.select([ADDRESS_COLUMN, KIND_COLUMN, *self.names])
                    yield convert_rows(new, self.schema, are_new=False)

    def run(self, parts: Iterable[pa.Table]) -> bytes:
        """Write the rows of :meth:`prepare`; return an encoded :class:`RowLevelTaskResult`.

        The task must have all changed rows of a range.
        """
        counts = Counter[str]()
        deleted, updated = list[RowAddresses](), list[pa.Table]()

        def build_new_rows() -> Iterator[pa.Table]:
            for rows in parts:
                kind = rows.column(KIND_COLUMN)[0].as_py()
                counts[kind] += rows.num_rows
                if kind == "+I":
                    yield rows.drop_columns([ADDRESS_COLUMN, KIND_COLUMN, ROW_ID.name])
                elif kind == "-D":
                    deleted.append(to_numpy(rows.column(ADDRESS_COLUMN)))
                else:
                    updated.append(rows.select([ADDRESS_COLUMN, *self.names]))
            # Errors are raised before the files are finished, so that the writer deletes them.
            addresses = [to_numpy(rows.column(ADDRESS_COLUMN)) for rows in updated]
            group_rows_by_file([*deleted, *addresses])

        message = write_rows(self.writing, build_new_rows())
        entries = self._write_updates(updated, message.entries) if updated else message.entries
        return RowLevelTaskResult(
            replace(message, entries=entries),
            group_rows_by_file(deleted),
            {_RESULT_FIELDS[kind]: count for kind, count in counts.items()},
        ).encode()

    def _write_updates(
        self, updated: Sequence[pa.Table], entries: Sequence[ManifestEntry]
    ) -> tuple[ManifestEntry, ...]:
        written = list(entries)
        try:
            rows = pa.concat_tables(updated).combine_chunks()
            numbers, positions = split_addresses(to_numpy(rows.column(ADDRESS_COLUMN)))
            order = np.lexsort((positions, numbers))
            numbers, positions = numbers[order], positions[order]
            rows = rows.drop_columns([ADDRESS_COLUMN]).take(to_arrow_array(order)).combine_chunks()
            starts: Indices = np.flatnonzero(np.diff(numbers, prepend=-1))
            for start, end in zip(starts, np.append(starts[1:], len(numbers)), strict=True):
                row_range = self.ranges[int(numbers[start])]
                new = rows.slice(int(start), int(end - start))
                file = self._write_range(row_range, positions[start:end], new)
                total = self.writing.schema.typed_options.bucket
                written += build_entries(FileKind.ADD, row_range.bucket, total, [file])
        except BaseException:
            discard_written_files(self.reader, [CommitMessage(entries=tuple(written))])
            raise
        return tuple(written)

    def _write_range(
        self, row_range: RowRange, positions: Int64Array, new: pa.Table
    ) -> DataFileMeta:
        """Write a file with all rows of a range, of which some have new values."""
        bucket = row_range.bucket
        self.reader.check_rewritable(bucket, row_range.files, self.schema.fields)
        rows = DataEvolutionReader(self.reader, *bucket, row_range.files)
        with self.writing.factory.writer(bucket, rolls=False, columns=self.names) as writer:
            start = 0
            for batch in rows.batches(self.schema.fields, {}):
                end = start + batch.num_rows
                first, last = np.searchsorted(positions, [start, end]).tolist()
                changed = positions[first:last] - start
                writer.write(_replace_rows(batch, changed, new.slice(first, last - first)))
                start = end
            [file] = writer.close()
        return replace(
            file,
            first_row_id=row_range.first_row_id,
            write_cols=self.names,
            min_sequence_number=0,  # the commit assigns the id of its snapshot
            max_sequence_number=0,
        )


def number_row_ranges(rows: pa.Table) -> Int64Array:
    """Return a number for each row of :meth:`ColumnUpdate.prepare`; its range has one number."""
    addresses = rows.column(ADDRESS_COLUMN)
    if addresses.null_count:  # new rows have no range
        return np.arange(rows.num_rows)
    return split_addresses(to_numpy(addresses))[0]


_RESULT_FIELDS = {"-D": "deleted", "+U": "updated", "+I": "inserted"}


def _replace_rows(batch: pa.RecordBatch, positions: Int64Array, new: pa.Table) -> pa.Table:
    """Return a batch in which the rows at some positions are replaced."""
    if not len(positions):
        return pa.Table.from_batches([batch])
    indices = np.arange(batch.num_rows)
    indices[positions] = batch.num_rows + np.arange(len(positions))
    taken = to_arrow_array(indices)
    columns = {
        name: pa.concat_arrays(
            [batch.column(name), *new.column(name).cast(batch.schema.field(name).type).chunks]
        ).take(taken)
        for name in batch.schema.names
    }
    return pa.table(columns)


def find_column_changes(
    ranges: Sequence[RowRange], results: Iterable[RowLevelTaskResult]
) -> tuple[ColumnChange, ...]:
    """Return the written columns of each range of rows; rows that are deleted have all columns."""
    names = defaultdict[int, set[str] | None](set)
    ends = {each.first_row_id: each.first_row_id + each.files[0].row_count for each in ranges}
    for result in results:
        for number in result.rows:
            names[ranges[number].first_row_id] = None
        for file in (entry.file for entry in result.message.added):
            written = None if file.first_row_id is None else names[file.first_row_id]
            if written is not None and file.first_row_id is not None:
                written.update(file.write_cols or ())
    return tuple(
        ColumnChange(start, ends[start], None if columns is None else frozenset(columns))
        for start, columns in sorted(names.items())
    )


def guard_changed_columns(
    changes: CommitChanges,
    guard: ColumnGuard,
    schema: TableSchema,
    index: Iterable[IndexManifestEntry],
) -> CommitChanges:
    """Return changes that conflict with other commits of the same columns of the same rows.

    They also drop global indexes of updated columns, if the table's options allow that.
    """
    names = {
        name
        for entry in changes.entries
        if entry.file.first_row_id is not None
        for name in entry.file.write_cols or ()
    }
    partitions = {entry.partition for entry in changes.entries}
    stale = find_stale_indexes(schema, (e for e in index if e.partition in partitions), names)
    dropped = tuple(entry.deleted() for entry in stale)
    return replace(changes, column_guard=guard, index=(*changes.index, *dropped))


def find_stale_indexes(
    schema: TableSchema, index: Iterable[IndexManifestEntry], names: Iterable[str]
) -> list[IndexManifestEntry]:
    """Return the global indexes to drop because of new values of some columns.

    Raises :class:`UnsupportedError` unless ``global-index.column-update-action`` allows that.
    """
    fields: Mapping[int, str] = {schema.field(name).id: name for name in names}
    stale = {}
    for entry in index:
        if entry.global_index is not None:
            for field_id in entry.global_index.field_ids:
                if field_id in fields:
                    stale[entry.file_name] = entry
    action = schema.typed_options.get(GLOBAL_INDEX_COLUMN_UPDATE_ACTION).upper()
    key = GLOBAL_INDEX_COLUMN_UPDATE_ACTION.key
    if action not in ("THROW_ERROR", "DROP_PARTITION_INDEX", "IGNORE"):
        raise InputError(
            f"option {key!r} = {action!r} must be THROW_ERROR, DROP_PARTITION_INDEX or IGNORE"
        )
    if stale and action == "THROW_ERROR":
        raise UnsupportedError(
            f"{', '.join(sorted(fields.values()))}: new values make a global index stale. Drop "
            f"the index, or let the update drop the indexes of the changed partitions with {key!r} "
            "= 'DROP_PARTITION_INDEX'. Nothing was changed."
        )
    return [] if action == "IGNORE" else list(stale.values())
