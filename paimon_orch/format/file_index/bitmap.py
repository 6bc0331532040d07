"""Bitmap indexes: the rows of each value.

See docs/format/bitmap-index.md.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.arrays import Int64Array, to_arrow_array, to_numpy
from paimon_orch.format.bytes.binary_batch import BinaryBatch, encode_big_endian, join_around_values
from paimon_orch.format.bytes.roaring import (
    build_full_bitmap,
    deserialize_bitmap,
    serialize_groups,
    serialize_positions,
)
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.file_index.index_keys import (
    EncodedColumn,
    Key,
    KeyCodec,
    Keys,
    get_key_codec,
)
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Operator

_INT32 = struct.Struct(">i")
_INT32_PAIR = struct.Struct(">ii")
_HEAD = struct.Struct(">bii?")
_PREFIX_BYTES = 64
_RADIX = 1 << 16  # numpy sorts 16-bit codes by radix
_SINGLE_POSITION_BYTES = 18  # size of a stored bitmap with one position
_NOT_STORED = -1


class _StoredBitmaps(NamedTuple):
    """Ascending values, and their stored bitmaps."""

    keys: Keys
    offsets: Int64Array
    lengths: Int64Array
    null: tuple[int, int] | None
    data: bytes


def encode_bitmap_index(
    column: EncodedColumn, data_type: AtomicType, *, version: int = 2, block_size: int = 16_384
) -> bytes:
    """Return the index of a column.

    Raises :class:`InputError` for a value that does not fit a block of the index, and for versions
    other than 1 and 2.
    """
    if version not in (1, 2):
        raise InputError(f"bitmap indexes have version 1 or 2, not {version}")
    bodies, codec = _build_stored_bitmaps(column), get_key_codec(data_type)
    head = _HEAD.pack(version, column.row_count, len(bodies.keys), bodies.null is not None)
    if version == 1:
        null = b"" if bodies.null is None else _INT32.pack(bodies.null[0])
        entries, _ = _encode_entries(codec, bodies.keys, bodies.offsets)
        return head + null + entries + bodies.data
    null = b"" if bodies.null is None else struct.pack(">ii", *bodies.null)
    return head + null + _encode_blocks(bodies, codec, block_size) + bodies.data


def _build_stored_bitmaps(column: EncodedColumn) -> _StoredBitmaps:
    codes, (keys, order) = column.codes, _sort_keys(column.keys)
    valid = codes >= 0
    valid_codes = codes if valid.all() else codes[valid]
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    rows = argsort_codes(rank[valid_codes], len(order))
    if len(valid_codes) < len(codes):
        rows = np.flatnonzero(valid)[rows]
    counts = np.bincount(valid_codes, minlength=len(order))[order]
    starts = np.cumsum(counts) - counts
    several = counts > 1
    grouped, group_starts = rows, starts
    if not several.all():
        grouped = rows[np.repeat(several, counts)]
        group_starts = np.cumsum(counts[several]) - counts[several]
    data, sizes = serialize_groups(grouped, group_starts)
    null, null_data = _encode_null_bitmap(np.flatnonzero(~valid))
    offsets, lengths = -1 - rows[starts].astype(np.int64), np.full(len(order), _NOT_STORED)
    offsets[several] = len(null_data) + np.cumsum(sizes) - sizes
    lengths[several] = sizes
    return _StoredBitmaps(keys, offsets, lengths, null, null_data + data)


def _sort_keys(keys: Keys) -> tuple[Keys, Int64Array]:
    """Return the keys in ascending order, and the index of each among the given keys."""
    if isinstance(keys, pa.BinaryArray):
        order = to_numpy(pc.array_sort_indices(keys)).astype(np.int64)
        return keys.take(to_arrow_array(order)), order
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def argsort_codes(codes: npt.NDArray[np.integer], count: int) -> Int64Array:
    """Return a stable order of rows by codes; all codes are below ``count``."""
    if count <= _RADIX:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    order = np.argsort((codes & (_RADIX - 1)).astype(np.uint16), kind="stable")
    return order[np.argsort((codes >> 16).astype(np.uint16)[order], kind="stable")]


def _encode_null_bitmap(rows: Int64Array) -> tuple[tuple[int, int] | None, bytes]:
    if not len(rows):
        return None, b""
    if len(rows) == 1:
        return (-1 - int(rows[0]), _SINGLE_POSITION_BYTES), b""
    data = serialize_positions(rows)
    return (0, len(data)), data


def _encode_entries(codec: KeyCodec, keys: Keys, *numbers: Int64Array) -> tuple[bytes, Int64Array]:
    """Return entries, each with a key and its numbers, and the end of each entry."""
    suffix = encode_big_endian(*numbers)
    if isinstance(keys, pa.BinaryArray):
        batch = BinaryBatch.from_arrow(keys)
        return join_around_values(encode_big_endian(batch.lengths), batch, suffix)
    width = codec.width
    encoded = np.frombuffer(codec.encode(keys), np.uint8).reshape(-1, width)
    data = np.concatenate([encoded, suffix], axis=1).tobytes()
    return data, np.arange(1, len(keys) + 1) * (width + suffix.shape[1])


def _encode_blocks(bodies: _StoredBitmaps, codec: KeyCodec, block_size: int) -> bytes:
    """Return the directory of the blocks, and the blocks: entries sorted by value."""
    entries, ends = _encode_entries(codec, bodies.keys, bodies.offsets, bodies.lengths)
    directory, blocks, size, first = bytearray(), bytearray(), 0, 0
    begins = np.concatenate([[0], ends])
    count = 0
    while first < len(ends):
        last = int(np.searchsorted(ends, begins[first] + block_size - 4, side="right"))
        if last == first:
            raise InputError(
                f"a value of {begins[first + 1] - begins[first] - 8} bytes does not fit an index "
                f"block of {block_size}; raise the option 'index-block-size' of the bitmap index"
            )
        begin, end = int(begins[first]), int(begins[last])
        entry = int(begins[first + 1])
        directory += entries[begin : entry - 8] + _INT32.pack(size)
        blocks += _INT32.pack(last - first) + entries[begin:end]
        size, first, count = len(blocks), last, count + 1
    return _INT32.pack(count) + bytes(directory) + _INT32.pack(size) + bytes(blocks)


class _DecodedEntries(NamedTuple):
    """Keys, and the offsets and lengths of their bitmaps. The lengths can be None."""

    keys: Sequence[Key]
    offsets: Sequence[int]
    lengths: Sequence[int] | None
    end: int


class BitmapIndex:
    """A stored index; queries read only the parts that they need."""

    def __init__(self, blob: ByteSource, data_type: AtomicType) -> None:
        """Read the header.

        Raises :class:`UnsupportedError` for a newer version; this and all queries raise
        ``ValueError`` for damaged data.
        """
        self._blob, self._codec = blob, get_key_codec(data_type)
        self._prefix = blob.bytes(0, min(_PREFIX_BYTES, blob.length))
        version, rows, count, has_null = _HEAD.unpack_from(self._prefix)
        if version not in (1, 2):
            raise UnsupportedError(f"bitmap indexes of version {version} are not supported")
        if rows < 0 or not 0 <= count <= rows:
            raise ValueError(f"a bitmap index cannot have {count} distinct values in {rows} rows")
        self._version: int = version
        self._count: int = count
        self._has_null: bool = has_null
        self.row_count: int = rows

    def is_built_with(self, version: int | None, block_size: int) -> bool:
        """Return whether the index has the given version, if any, and full blocks of this size."""
        if version not in (None, self._version):
            return False
        if self._version == 1:
            return True
        first_keys, offsets, _, size = self._directory
        lengths = [end - begin for begin, end in pairwise([*offsets, size])]
        next_entries = [
            _INT32_PAIR.size + len(self._codec.encode_one(key)) for key in first_keys[1:]
        ]
        return all(length <= block_size for length in lengths) and all(
            length + entry > block_size
            for length, entry in zip(lengths, next_entries, strict=False)
        )

    def query(self, op: Operator, keys: Sequence[Key | None]) -> BitMap | None:
        """Return the rows that may pass a test, or None for unsupported tests.

        A key of None stands for null. NOT_EQUAL and NOT_IN include null rows.
        """
        match op:
            case Operator.EQUAL | Operator.IN:
                return self._find_rows(keys)
            case Operator.NOT_EQUAL | Operator.NOT_IN:
                return build_full_bitmap(self.row_count) - self._find_rows(keys)
            case Operator.IS_NULL:
                return self._find_rows([None])
            case Operator.IS_NOT_NULL:
                return build_full_bitmap(self.row_count) - self._find_rows([None])
        return None

    def items(self) -> Iterator[tuple[Key | None, BitMap]]:
        """Yield every value with its rows; null first."""
        nulls = self._find_rows([None])
        if nulls:
            yield None, nulls
        tables = (
            [self._all] if self._version == 1 else map(self._block, range(len(self._directory[1])))
        )
        for entries in tables:
            for index, key in enumerate(entries.keys):
                yield key, self._read_bitmap(entries, index)

    def _find_rows(self, keys: Sequence[Key | None]) -> BitMap:
        parts = [self._null_rows if key is None else self._find_rows_of_key(key) for key in keys]
        return parts[0] if len(parts) == 1 else BitMap.union(BitMap(), *parts)

    @cached_property
    def _null_rows(self) -> BitMap:
        if not self._has_null:
            return BitMap()
        (offset,) = self._blob.read_ints(_HEAD.size, 1)
        if offset < 0:
            return _build_single_row_bitmap(offset, self.row_count)
        if self._version == 2:
            (length,) = self._blob.read_ints(_HEAD.size + 4, 1)
        else:
            offsets = [offset for offset in self._all.offsets if offset >= 0]
            length = min(offsets, default=self._blob.length - self._body_start)
        return deserialize_bitmap(
            self._blob.bytes(self._body_start + offset, length), self.row_count
        )

    def _find_rows_of_key(self, key: Key) -> BitMap:
        if self._version == 1:
            index = self._numbers.get(key)
            return BitMap() if index is None else self._read_bitmap(self._all, index)
        first_keys, offsets, *_ = self._directory
        number = 0 if len(offsets) == 1 else bisect_right(first_keys, key) - 1
        if number < 0:
            return BitMap()
        location = _find_bitmap(self._read_block_bytes(number), key, self._codec)
        return BitMap() if location is None else self._deserialize(*location)

    def _read_bitmap(self, entries: _DecodedEntries, index: int) -> BitMap:
        offset = entries.offsets[index]
        if entries.lengths is not None:
            return self._deserialize(offset, entries.lengths[index])
        ends = self._v1_ends if offset >= 0 else [0]
        return self._deserialize(
            offset, ends[bisect_right(ends, offset)] - offset if offset >= 0 else 0
        )

    def _deserialize(self, offset: int, length: int) -> BitMap:
        if offset < 0:
            return _build_single_row_bitmap(offset, self.row_count)
        return deserialize_bitmap(
            self._blob.bytes(self._body_start + offset, length), self.row_count
        )

    @cached_property
    def _v1_ends(self) -> list[int]:
        starts = sorted(offset for offset in self._all.offsets if offset >= 0)
        return [*starts, self._blob.length - self._body_start]

    @cached_property
    def _all(self) -> _DecodedEntries:
        """Return the entries of an index of version 1."""
        start = _HEAD.size + 4 * self._has_null
        return _decode_entries(self._blob.bytes(start), self._count, 1, self._codec)

    @cached_property
    def _numbers(self) -> dict[Key, int]:
        return {key: index for index, key in enumerate(self._all.keys)}

    @cached_property
    def _directory(self) -> tuple[Sequence[Key], Sequence[int], int, int]:
        start = _HEAD.size + 8 * self._has_null
        (count,) = _INT32.unpack_from(self._prefix, start)
        if not 0 <= count <= self._count:
            raise ValueError(f"invalid bitmap index: {count} blocks for only {self._count} values")
        codec, start = self._codec, start + 4
        if count == 1:
            width = codec.width if codec.dtype else 4 + self._blob.read_ints(start, 1)[0]
            offset, size = self._blob.read_ints(start + width, 2)
            return (), (offset,), start + width + 8, size
        if codec.dtype is not None:
            end = count * (codec.width + 4)
            entries = _decode_entries(self._blob.bytes(start, end), count, 1, codec)
        else:
            entries = _read_text_entries(self._blob, start, count)
        (size,) = self._blob.read_ints(start + entries.end, 1)
        return entries.keys, entries.offsets, start + entries.end + 4, size

    @cached_property
    def _body_start(self) -> int:
        if self._version == 1:
            return _HEAD.size + 4 * self._has_null + self._all.end
        _, _, start, size = self._directory
        return start + size

    def _read_block_bytes(self, number: int) -> bytes:
        _, offsets, start, size = self._directory
        end = offsets[number + 1] if number + 1 < len(offsets) else size
        return self._blob.bytes(start + offsets[number], end - offsets[number])

    def _block(self, number: int) -> _DecodedEntries:
        data = self._read_block_bytes(number)
        (count,) = _INT32.unpack_from(data)
        if count > len(data) // 9:
            raise ValueError(f"a block of {count} entries cannot have only {len(data)} bytes")
        return _decode_entries(data[4:], count, 2, self._codec)


def _find_bitmap(block: bytes, key: Key, codec: KeyCodec) -> tuple[int, int] | None:
    """Return offset and length of a key's bitmap, or None if the block lacks the key.

    Searches for the bytes of the key, so that no entry has to be decoded.
    """
    needle = codec.encode_one(key)
    position, start = block.find(needle, _INT32.size), _INT32.size
    while position >= 0:
        start = _find_entry_start(block, start, position, codec)
        if start == position:
            offset, length = _INT32_PAIR.unpack_from(block, position + len(needle))
            return offset, length
        position = block.find(needle, position + 1)
    return None


def _find_entry_start(block: bytes, start: int, position: int, codec: KeyCodec) -> int:
    """Return where the first entry at or after ``position`` starts; one starts at ``start``."""
    if codec.dtype is not None:
        size = codec.width + _INT32_PAIR.size
        return start + -(-(position - start) // size) * size
    while start < position:
        start += _INT32.size + int.from_bytes(block[start : start + 4]) + _INT32_PAIR.size
    return start


def _build_single_row_bitmap(offset: int, rows: int) -> BitMap:
    if -1 - offset >= rows:
        raise ValueError(f"an entry has position {-1 - offset}, but there are {rows} rows")
    return BitMap([-1 - offset])


def _decode_entries(data: bytes, count: int, numbers: int, codec: KeyCodec) -> _DecodedEntries:
    """Return ``count`` entries; each has a key and one or two numbers."""
    if codec.dtype is None:
        return _decode_text_entries(data, count, numbers)
    size = codec.width + 4 * numbers
    rows = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
    keys = codec.decode(rows[:, : codec.width].tobytes()).tolist()
    values = np.frombuffer(rows[:, codec.width :].tobytes(), ">i4").reshape(count, numbers)
    columns = values.T.tolist()
    return _DecodedEntries(keys, columns[0], columns[1] if numbers > 1 else None, count * size)


def _decode_text_entries(data: bytes, count: int, numbers: int) -> _DecodedEntries:
    keys: list[bytes] = []
    columns: list[list[int]] = [[] for _ in range(numbers)]
    position = 0
    for _ in range(count):
        (length,) = _INT32.unpack_from(data, position)
        position += 4 + length
        if length < 0 or position > len(data):
            raise ValueError(f"a key of {length} bytes is truncated")
        keys.append(data[position - length : position])
        for number in range(numbers):
            columns[number] += _INT32.unpack_from(data, position)
            position += 4
    return _DecodedEntries(keys, columns[0], columns[1] if numbers > 1 else None, position)


def _read_text_entries(blob: ByteSource, start: int, count: int) -> _DecodedEntries:
    """Decode entries of unknown length, reading larger parts until all entries are complete."""
    size = 64 * count + 64
    while True:
        data = blob.bytes(start, min(size, blob.length - start))
        try:
            return _decode_text_entries(data, count, 1)
        except (ValueError, struct.error):
            if start + size >= blob.length:
                raise
            size *= 4
