"""Looks up the older rows of keys on higher levels, as a merge join over sorted files.

Keys are passed in ascending windows. Files outside the window are not opened. In an open file, only
the row groups whose bounds contain a key are read: first their key columns, and their value columns
only if they have one of the keys.

See docs/format/lookup-compaction.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from paimon_orch.files.data_file_reader import ROW_POSITION, RowGroup
from paimon_orch.format.arrays import Indices, Mask, Positions, to_arrow_array, to_numpy
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot
from paimon_orch.merge.sort.key_order import (
    Key,
    KeyColumns,
    KeyOrderChecker,
    decode_key_bounds,
    to_comparable_value,
)
from paimon_orch.merge.sort.late_materialization import RowGroupValues

LevelRows = tuple[int, pa.RecordBatch]
_NO_INDICES: Indices = np.empty(0, np.int64)
ReadRowGroups = Callable[[DataFileMeta, DeletionVector | None], Iterator[RowGroup]]


@dataclass(slots=True, kw_only=True)
class _Cursor:
    """A position in the sorted keys of one file; it only moves forward."""

    file: DataFileMeta
    low: Key
    high: Key
    order: KeyOrderChecker
    groups: Iterator[RowGroup] | None = None
    group: RowGroup | None = None
    """The current row group; it has not been read while ``batches`` is None."""
    batches: Iterator[pa.RecordBatch] | None = None
    batch: pa.RecordBatch | None = None
    keys: KeyColumns | None = None
    values: RowGroupValues | None = None
    is_exhausted: bool = False

    def is_before(self, key: Key) -> bool:
        """Return whether all keys of the loaded batch are smaller than ``key``."""
        return self.keys is None or self.keys.at(len(self.keys) - 1) < key


class PositionLookup:
    """Finds the rows that newer rows replace in the files of higher levels."""

    def __init__(
        self,
        files: Sequence[DataFileMeta],
        key_fields: Sequence[Field],
        read: ReadRowGroups,
        vectors: Mapping[str, DeletionVector],
        values: Sequence[Field] = (),
        is_alive: Callable[[pa.RecordBatch], Mask] | None = None,
    ) -> None:
        """Open a lookup over all files of the higher levels.

        :param read: returns the row groups of a file with the bounds of the first key column,
            without the rows that the deletion vector contains
        :param values: the columns to return for the rows found, in addition to the key
        :param is_alive: a mask of rows that are not expired; an expired row is marked as deleted
            too, and the search continues on the next level
        """
        self._key_fields = key_fields
        self._names = [field.name for field in key_fields]
        self._read = read
        self._vectors = vectors
        self._values = [field for field in values if field not in key_fields]
        self._levels = [
            [self._open_cursor(file) for file in group]
            for _, group in groupby(sorted(files, key=lambda f: f.level), key=lambda f: f.level)
        ]
        self._is_alive = is_alive
        self._found_positions: dict[str, list[Positions]] = {}
        self._rows: list[LevelRows] = []

    def _open_cursor(self, file: DataFileMeta) -> _Cursor:
        low, high = decode_key_bounds(file, self._key_fields)
        return _Cursor(file=file, low=low, high=high, order=KeyOrderChecker(self._names))

    def mark_replaced_rows(self, keys: KeyColumns) -> list[LevelRows]:
        """Look up sorted keys, greater than all earlier ones; add their rows to :meth:`vectors`.

        The search for a key ends at the lowest level that has it. Returns batches of the rows with
        their level if the lookup has value columns.
        """
        self._rows = []
        for level in self._levels:
            for cursor in level:
                if not len(keys):
                    break
                remaining = self._mark_in_file(cursor, keys)
                if remaining is not None:
                    keys = keys.take(remaining)
        return self._rows

    def vectors(self) -> dict[str, DeletionVector]:
        """Return the new deletion vectors by file name, without the existing ones."""
        return {
            name: DeletionVector.of(np.concatenate(parts))
            for name, parts in self._found_positions.items()
        }

    def _mark_in_file(self, cursor: _Cursor, keys: KeyColumns) -> Indices | None:
        if cursor.is_exhausted or keys.at(0) > cursor.high or keys.at(len(keys) - 1) < cursor.low:
            return None
        start, end = keys.count_below(cursor.low), keys.count_up_to(cursor.high)
        hits = []
        while start < end:
            start = self._advance(cursor, keys, start, end)
            if start == end:
                break
            assert cursor.keys is not None
            last = cursor.keys.at(len(cursor.keys) - 1)
            stop = start + keys.slice(start, end - start).count_up_to(last)
            hits.append(start + self._mark_hits(cursor, keys.slice(start, stop - start)))
            start = stop
        matched = np.concatenate(hits) if hits else _NO_INDICES
        if not len(matched):
            return None
        is_unmatched = np.ones(len(keys), bool)
        is_unmatched[matched] = False
        return np.flatnonzero(is_unmatched)

    def _advance(self, cursor: _Cursor, keys: KeyColumns, start: int, end: int) -> int:
        """Move to the next batch that can contain any of ``keys[start:end]``.

        Returns the index of the first such key.

        Returns ``end`` if the file has no batch for this window. Row groups without a key are
        skipped.
        """
        while cursor.is_before(keys.at(start)):
            batch = None if cursor.batches is None else next(cursor.batches, None)
            if batch is not None:
                cursor.order.check(cursor.file.file_name, batch)
                cursor.batch, cursor.keys = batch, KeyColumns.of(batch, self._names)
                continue
            if cursor.batches is not None:
                cursor.group = cursor.batches = cursor.values = None
            group = self._next_group(cursor)
            if group is None:
                return end
            low, high = (
                self._comparable_bound(group.bounds.min),
                self._comparable_bound(group.bounds.max),
            )
            if low is not None:
                start = max(start, keys.first_column.count_below(low))
            if start >= end:
                return end  # this row group can contain a key of the next window
            if high is not None and keys.first_column.at(start) > high:
                cursor.group = None
            else:
                cursor.batches = group.read(self._key_fields)
        return start

    def _next_group(self, cursor: _Cursor) -> RowGroup | None:
        if cursor.groups is None:
            vector = self._vectors.get(cursor.file.file_name)
            cursor.groups = self._read(cursor.file, vector)
        if cursor.group is None:
            cursor.group = next(cursor.groups, None)
            cursor.is_exhausted = cursor.group is None
        return cursor.group

    def _comparable_bound(self, value: object) -> Key | None:
        """Return a comparable bound of the first key column, or None if unknown or floating-point.

        Statistics and keys order -0.0 and NaN differently.
        """
        kind = self._key_fields[0].type
        if value is None or (
            isinstance(kind, AtomicType) and kind.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE)
        ):
            return None
        return (to_comparable_value(value, kind),)

    def _mark_hits(self, cursor: _Cursor, keys: KeyColumns) -> Indices:
        """Search the loaded batch for keys; return the indices of the keys in it."""
        loaded = cursor.keys
        if loaded is None or not len(keys):
            return _NO_INDICES
        low, high = loaded.count_below(keys.at(0)), loaded.count_up_to(keys.at(len(keys) - 1))
        window = loaded.slice(low, high - low)
        rows, key_indices = window.find(keys)
        if len(rows) and cursor.batch is not None:
            matches = cursor.batch.take(to_arrow_array(low + rows))
            positions = to_numpy(matches.column(ROW_POSITION))
            self._found_positions.setdefault(cursor.file.file_name, []).append(positions)
            if self._values:
                return key_indices[
                    self._filter_alive(list(self._read_values(cursor, matches, positions)))
                ]
        return key_indices

    def _filter_alive(self, rows: Sequence[LevelRows]) -> Mask:
        """Keep the rows that are not expired, and return their mask."""
        if self._is_alive is None:
            self._rows += rows
            return np.ones(sum(batch.num_rows for _, batch in rows), bool)
        masks = [self._is_alive(batch) for _, batch in rows]
        alive = [
            (level, batch.filter(to_arrow_array(mask)))
            for (level, batch), mask in zip(rows, masks, strict=True)
        ]
        self._rows += [(level, batch) for level, batch in alive if batch.num_rows]
        return np.concatenate(masks)

    def _read_values(
        self, cursor: _Cursor, matches: pa.RecordBatch, positions: Positions
    ) -> Iterator[LevelRows]:
        """Yield the matched rows with their value columns."""
        if cursor.values is None:
            assert cursor.group is not None
            name = cursor.file.file_name
            cursor.values = RowGroupValues(name, cursor.group.read(self._values))
        parts = [batch.take(to_arrow_array(rows)) for batch, rows in cursor.values.find(positions)]
        rows = pa.Table.from_batches(parts).drop_columns(ROW_POSITION)
        for name in self._names:
            rows = rows.append_column(name, matches.column(name))
        for batch in rows.combine_chunks().to_batches():
            yield cursor.file.level, batch
