"""Order of keys: comparable values, sort order and duplicate detection.

Dates, times, timestamps, booleans and floats become integers that sort in the same order, so that
Python, numpy and Arrow agree on the order: nulls first, ``-0.0`` before ``0.0``, NaN last, text and
binary by unsigned bytes.

See docs/format/data-files.md#order-and-sequence-numbers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import CorruptFileError, wrap_decode_errors
from paimon_orch.format.arrays import (
    Indices,
    Int8Array,
    Int64Array,
    Mask,
    to_arrow_array,
    to_numpy,
    to_one_array,
)
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import deserialize_row
from paimon_orch.format.text import encode_text, to_python_value
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, TypeRoot
from paimon_orch.merge.sort.key_packing import pack_keys

Key = tuple[tuple[bool, object], ...]

# If the keys of a batch span at most this multiple of its rows, direct addressing is cheaper than a
# sort.
_MAX_DENSE_SPAN = 8
_CANONICAL_NAN = {32: 0x7FC00000, 64: 0x7FF8000000000000}


def to_comparable_column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return one contiguous array whose natural order is the key order of the format."""
    column = to_one_array(column)
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.view(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        valid = to_numpy(column.is_valid())
        values = to_numpy(column)
        return to_arrow_array(encode_sortable_floats(values), mask=~valid)
    return column


def encode_sortable_floats(values: npt.NDArray[np.floating]) -> Int64Array:
    """Return integers in Java's total order of floating-point numbers."""
    bits = 8 * values.dtype.itemsize
    signed = np.int32 if bits == 32 else np.int64
    raw: Indices = np.ascontiguousarray(values).view(signed)
    raw = np.where(np.isnan(values), signed(_CANONICAL_NAN[bits]), raw)
    flipped = np.where(raw < 0, raw ^ np.iinfo(signed).max, raw)
    return flipped.astype(np.int64)


def to_comparable_value(value: object, data_type: DataType) -> tuple[bool, object]:
    """Return a value that compares in the order of the format; null is smallest."""
    if isinstance(value, float) and isinstance(data_type, AtomicType):
        kind = np.float32 if data_type.name == TypeRoot.FLOAT else np.float64
        value = int(encode_sortable_floats(np.array([value], kind))[0])
    return value is not None, int(value) if isinstance(value, bool) else value


def decode_key(data: bytes, fields: Sequence[Field]) -> Key:
    """Return a serialized key as a comparable tuple."""
    values = deserialize_row(data, [field.type for field in fields])
    return tuple(to_comparable_value(v, f.type) for v, f in zip(values, fields, strict=True))


def decode_key_bounds(file: DataFileMeta, fields: Sequence[Field]) -> tuple[Key, Key]:
    """Return the smallest and the largest key of a file by its metadata, as comparable tuples.

    ``fields`` are the columns that the file is sorted by. Raises :class:`CorruptFileError` if
    the bytes show that the bounds are those of other columns.
    """
    with wrap_decode_errors(f"{file.file_name} (key bounds in the manifest)"):
        return decode_key(file.min_key, fields), decode_key(file.max_key, fields)


def _compare_column(array: pa.Array, value: object) -> Int8Array:
    """Return -1, 0 or 1 for values that are smaller than, equal to or greater than a value."""
    is_valid = to_numpy(array.is_valid())
    if value is None:
        return is_valid.astype(np.int8)
    if isinstance(value, str):
        array, value = array.cast(pa.binary()), encode_text(value)
    other = pa.scalar(value, array.type)
    is_greater, is_less = (
        to_numpy(compare(array, other).fill_null(fill_value=False))
        for compare in (pc.greater, pc.less)
    )
    order: Int8Array = is_greater.astype(np.int8) - (is_less | ~is_valid).astype(np.int8)
    return order


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The comparable key columns of rows."""

    arrays: tuple[pa.Array, ...]

    @classmethod
    def of(cls, rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> "KeyColumns":
        """Return the key columns of the named columns of a table."""
        return cls(tuple(to_comparable_column(rows.column(name)) for name in names))

    def __len__(self) -> int:
        return len(self.arrays[0])

    @property
    def first_column(self) -> "KeyColumns":
        """Return the keys of the first column only."""
        return KeyColumns(self.arrays[:1])

    def at(self, index: int) -> Key:
        """Return the key of one row as a comparable tuple."""
        values = [to_python_value(array[index]) for array in self.arrays]
        return tuple((value is not None, value) for value in values)

    def find_between(self, low: Key, high: Key) -> Mask:
        """Return which keys, in any order, are between two keys, both included."""
        return (self._compare(low) >= 0) & (self._compare(high) <= 0)

    def _compare(self, bound: Key) -> Int8Array:
        """Return -1, 0 or 1 for keys that are smaller, equal or greater."""
        result = np.zeros(len(self), np.int8)
        for array, (_, value) in zip(reversed(self.arrays), reversed(bound), strict=True):
            order = _compare_column(array, value)
            result = np.where(order, order, result)
        return result

    def count_up_to(self, bound: Key) -> int:
        """Return the number of sorted keys that are not greater than ``bound``."""
        low, high = self._find_first_column(bound)
        return bisect_right(range(len(self)), bound, low, high, key=self.at)

    def count_below(self, bound: Key) -> int:
        """Return the number of sorted keys that are smaller than ``bound``."""
        low, high = self._find_first_column(bound)
        return bisect_left(range(len(self)), bound, low, high, key=self.at)

    def _find_first_column(self, bound: Key) -> tuple[int, int]:
        """Return the range that contains the position of a key; integers are found without Python.

        Python compares the other types.
        """
        column, value = self.arrays[0], bound[0][1]
        if not isinstance(value, int) or column.null_count or not pa.types.is_integer(column.type):
            return 0, len(self)
        numbers = to_numpy(column)
        low = int(np.searchsorted(numbers, value, "left"))
        return low, int(np.searchsorted(numbers, value, "right"))

    def slice(self, start: int, length: int) -> "KeyColumns":
        """Return a range of rows without copying."""
        return KeyColumns(tuple(array.slice(start, length) for array in self.arrays))

    def take(self, indices: Indices) -> "KeyColumns":
        """Return rows by index."""
        selection = to_arrow_array(indices)
        return KeyColumns(tuple(array.take(selection) for array in self.arrays))

    @staticmethod
    def concat(parts: Sequence["KeyColumns"]) -> "KeyColumns":
        """Return the concatenated rows of all parts."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.arrays for part in parts), strict=True)
        return KeyColumns(tuple(pa.concat_arrays(list(column)) for column in columns))

    def is_sorted(self) -> bool:
        """Return whether no row has a smaller key than the row before it."""
        if any(array.null_count for array in self.arrays):
            return bool((np.diff(self._sort_with_arrow()) > 0).all())
        ties: Mask | None = None
        for array in self.arrays:
            left, right = _pair_with_next(array)
            greater = to_numpy(pc.greater(left, right))
            if (greater if ties is None else greater & ties).any():
                return False
            if array is self.arrays[-1]:
                break
            equal = to_numpy(pc.equal(left, right))
            ties = equal if ties is None else ties & equal
            if not ties.any():
                break
        return True

    def compute_order(self) -> tuple[Indices, Mask]:
        """Return the stable order by key, and which rows have the same key as the next row.

        Sorted input is fast.
        """
        words = pack_keys(self.arrays)
        if words is None:
            order = self._sort_with_arrow()
            return order, _equals_next(self.take(order).arrays)
        order = np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(words[::-1])
        equals_next = np.ones(len(order) - 1, bool)
        for word in words:
            in_order = word[order]
            equals_next &= in_order[1:] == in_order[:-1]
        return order, equals_next

    def find_newest_rows(self, counts: Sequence[int]) -> Indices:
        """Return the index of the newest row of each key, in key order.

        ``counts`` are the numbers of rows of each run, oldest first; keys within a run are
        distinct. Dense keys are not sorted.
        """
        words = pack_keys(self.arrays)
        span = None if words is None or len(words) > 1 else int(words[0].max()) + 1
        if words is None or span is None or span > _MAX_DENSE_SPAN * len(self):
            order, equals_next = self.compute_order()
            ends: Indices = order[np.append(~equals_next, True)]
            return ends
        slots, rows = words[0].view(np.int64), np.arange(len(self), dtype=np.int32)
        last = np.full(span, -1, np.int32)
        for end, count in zip(np.cumsum(counts).tolist(), counts, strict=True):
            last[slots[end - count : end]] = rows[end - count : end]
        newest: Indices = last[last >= 0].astype(np.int64)
        return newest

    def _sort_with_arrow(self) -> Indices:
        columns = {}
        for index, array in enumerate(self.arrays):
            # This column sorts nulls first. The option of pyarrow for this is not used, because
            # pyarrow 25 moved it.
            if array.null_count:
                columns[f"{index} is valid"] = array.is_valid()
            columns[str(index)] = array
        keys = [(name, "ascending") for name in columns]
        order = pc.sort_indices(pa.table(columns), sort_keys=keys)
        result: Indices = to_numpy(order).astype(np.int64)
        return result

    def find(self, other: "KeyColumns") -> tuple[Indices, Indices]:
        """Find the keys that two sorted sets share; return their row indices in each set."""
        combined = KeyColumns.concat([self, other])
        words = pack_keys(combined.arrays)
        if len(self) and words is not None and len(words) == 1:
            own_words, other_words = words[0][: len(self)], words[0][len(self) :]
            positions = np.searchsorted(own_words, other_words)
            candidates = own_words[np.minimum(positions, len(own_words) - 1)]
            hits = np.flatnonzero(candidates == other_words)
            return positions[hits], hits
        order, equals_next = combined.compute_order()
        pairs = np.flatnonzero(equals_next)  # a stable sort puts the row of ``self`` first
        return order[pairs], order[pairs + 1] - len(self)


class KeyOrderChecker:
    """Checks that the rows of a sorted run are in key order, batch by batch.

    Merging an unsorted run would drop, repeat or mix up rows.
    """

    def __init__(self, names: Sequence[str], order: str = "the primary key") -> None:
        """Check the order by ``names``; ``order`` describes it in errors."""
        self._names, self._order = names, order
        self._last: Key | None = None

    def check(self, file_name: str, rows: pa.RecordBatch) -> None:
        """Raise :class:`CorruptFileError` if a row of the next batch is out of order."""
        if not rows.num_rows:
            return
        keys = KeyColumns.of(rows, self._names)
        if (self._last is not None and keys.at(0) < self._last) or not keys.is_sorted():
            raise unsorted_file_error(file_name, self._order)
        self._last = keys.at(len(keys) - 1)


def unsorted_file_error(file_name: str, order: str = "the primary key") -> CorruptFileError:
    """Return the error for a file whose rows are not in the order that its level requires."""
    return CorruptFileError(
        file_name,
        f"its rows are not sorted by {order}, which its level requires; the metadata or the "
        "options of the table are wrong. Check the table, and restore its schema or an "
        "earlier snapshot",
    )


def _pair_with_next(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return all values except the last, and the successor of each."""
    return column.slice(0, max(0, len(column) - 1)), column.slice(1)


def _equals_next(columns: Sequence[pa.Array]) -> Mask:
    size = max(0, len(columns[0]) - 1)
    equals_next = np.ones(size, bool)
    for column in columns:
        left, right = _pair_with_next(column)
        equal = to_numpy(pc.equal(left, right))
        if column.null_count:
            equal = equal | to_numpy(pc.and_(pc.is_null(left), pc.is_null(right)))
        equals_next &= equal
    return equals_next
