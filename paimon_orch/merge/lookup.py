"""Finding older versions of keys in higher levels, as a merge join over sorted files (merge-tree facts 4).

Keys come in ascending windows. Each file above keeps one batch loaded; files outside the window are never opened.
Only key columns are read unless the caller needs the older rows themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_orch.files.reader import POSITION
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest import DataFileMeta
from paimon_orch.format.types import Field
from paimon_orch.merge.keys import Indices, Key, KeyColumns, decode_key

LevelRows = tuple[int, pa.RecordBatch]
_NOTHING: Indices = np.empty(0, np.int64)
KeyReader = Callable[[DataFileMeta, DeletionVector | None], Iterator[pa.RecordBatch]]


@dataclass(slots=True)
class _Cursor:
    """A position in one file's sorted keys; it only moves forward."""

    file: DataFileMeta
    low: Key
    high: Key
    batches: Iterator[pa.RecordBatch] | None = None
    batch: pa.RecordBatch | None = None
    keys: KeyColumns | None = None
    positions: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    done: bool = False


class PositionLookup:
    """Finds the rows that newer ones replace, in the files of the levels above an output level."""

    def __init__(
        self,
        files: Sequence[DataFileMeta],
        key_fields: Sequence[Field],
        read: KeyReader,
        vectors: Mapping[str, DeletionVector],
    ) -> None:
        """Take all files of the levels above.

        ``read`` yields the rows that ``vectors`` do not hide: key columns, whatever else is wanted, and ``_POSITION``.
        """
        self._names = [field.name for field in key_fields]
        self._read = read
        self._vectors = vectors
        self._levels = [
            [
                _Cursor(
                    file, decode_key(file.min_key, key_fields), decode_key(file.max_key, key_fields)
                )
                for file in group
            ]
            for _, group in groupby(sorted(files, key=lambda f: f.level), key=lambda f: f.level)
        ]
        self._found: dict[str, list[npt.NDArray[np.int64]]] = {}
        self._rows: list[LevelRows] = []

    def mark(self, keys: KeyColumns) -> list[LevelRows]:
        """Look up sorted keys, greater than all looked up before, and mark what is found.

        A hit ends the search of its key: the lowest level counts. Returns the found rows with their level, in pieces.
        """
        self._rows = []
        for level in self._levels:
            for cursor in level:
                if not len(keys):
                    break
                missing = self._mark_in_file(cursor, keys)
                if missing is not None:
                    keys = keys.take(missing)
        return self._rows

    def vectors(self) -> dict[str, DeletionVector]:
        """Return the new deletion vectors by file name, without those that were there before."""
        return {
            name: DeletionVector.of(np.concatenate(parts)) for name, parts in self._found.items()
        }

    def _mark_in_file(self, cursor: _Cursor, keys: KeyColumns) -> Indices | None:
        """Mark hits in one file; return the indices of keys without a hit, None for no hit at all."""
        if cursor.done or keys.at(0) > cursor.high or keys.at(len(keys) - 1) < cursor.low:
            return None
        start, end = keys.count_below(cursor.low), keys.count_up_to(cursor.high)
        hits = []
        while start < end:
            if not self._load(cursor, keys.at(start)):
                break
            assert cursor.keys is not None
            last = cursor.keys.at(len(cursor.keys) - 1)
            stop = start + keys.slice(start, end - start).count_up_to(last)
            hits.append(start + self._hits(cursor, keys.slice(start, stop - start)))
            start = stop
        found = np.concatenate(hits) if hits else np.empty(0, np.int64)
        if not len(found):
            return None
        missing = np.ones(len(keys), bool)
        missing[found] = False
        return np.flatnonzero(missing)

    def _load(self, cursor: _Cursor, key: Key) -> bool:
        """Move to the batch that may hold the key; false at the end of the file."""
        if cursor.batches is None:
            vector = self._vectors.get(cursor.file.file_name)
            cursor.batches = self._read(cursor.file, vector)
        while cursor.keys is None or cursor.keys.at(len(cursor.keys) - 1) < key:
            batch = next(cursor.batches, None)
            if batch is None:
                cursor.done, cursor.keys = True, None
                return False
            cursor.batch, cursor.keys = batch, KeyColumns.of(batch, self._names)
            cursor.positions = batch.column(POSITION).to_numpy()
        return True

    def _hits(self, cursor: _Cursor, keys: KeyColumns) -> Indices:
        """Mark the rows of the loaded batch that have one of the keys; return which keys those are."""
        loaded = cursor.keys
        if loaded is None or not len(keys):
            return _NOTHING
        low, high = loaded.count_below(keys.at(0)), loaded.count_up_to(keys.at(len(keys) - 1))
        window = loaded.slice(low, high - low)
        rows, wanted = window.find(keys)
        if len(rows) and cursor.batch is not None:
            marked = cursor.positions[low + rows]
            self._found.setdefault(cursor.file.file_name, []).append(marked)
            self._rows.append((cursor.file.level, cursor.batch.take(pa.array(low + rows))))
        return wanted
