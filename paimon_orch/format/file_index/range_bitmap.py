"""Range bitmaps: a sorted dictionary of values, and bit slices of their numbers.

See docs/format/range-bitmap-index.md.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from paimon_orch.errors import InputError, UnsupportedError
from paimon_orch.format.arrays import Int32Array, Int64Array, Mask, to_arrow_array, to_numpy
from paimon_orch.format.bytes.binary_batch import BinaryBatch, encode_big_endian, join_around_values
from paimon_orch.format.bytes.roaring import build_full_bitmap, deserialize_bitmap, serialize_mask
from paimon_orch.format.file_index.bit_slices import BitSlices, serialize_bit_slices
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.file_index.index_keys import (
    EncodedColumn,
    Key,
    KeyCodec,
    Keys,
    argsort_stable,
    get_key_codec,
)
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.format.types.predicate import Operator

_VERSION = 1
_INT32 = struct.Struct(">i")
_HEADER = struct.Struct(">ibii")  # header length, version, rows, cardinality
_DICTIONARY = struct.Struct(">ibiii")
_SLICES = struct.Struct(">ibbii")
_CHUNK = struct.Struct(">5i")
_SLICES_WITHOUT_VALUES = 64
_SMALL_TYPES = (TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT)


def default_chunk_size(data_type: AtomicType) -> int:
    """Return the default chunk size."""
    return 0 if data_type.name in _SMALL_TYPES else 16_384


def encode_range_bitmap_index(
    column: EncodedColumn, data_type: AtomicType, *, chunk_size: int | None = None
) -> bytes:
    """Return the index of a column."""
    size = default_chunk_size(data_type) if chunk_size is None else chunk_size
    keys, ranks = _sort_keys(column.keys)
    count, codec = len(keys), get_key_codec(data_type)
    encoded, ends = _encode_keys(codec, keys, column.first_nan)
    ends_of = [int(end) for end in ends[[0, -2, -1]]] if count > 1 else [int(e) for e in ends] * 3
    bounds = encoded[: ends_of[0]] + encoded[0 if count == 1 else ends_of[1] :] if count else b""
    dictionary = _encode_dictionary(encoded, ends, codec, size)
    head = _HEADER.pack(_HEADER.size - 4 + 4 + len(bounds), _VERSION, column.row_count, count)
    slices = max(1, (count - 1).bit_length()) if count else _SLICES_WITHOUT_VALUES
    numbers = np.maximum(column.codes, 0) if ranks is None else np.append(ranks, 0)[column.codes]
    stored_slices = _encode_bit_slices(column.codes >= 0, numbers, slices)
    return b"".join([head, bounds, _INT32.pack(len(dictionary)), dictionary, stored_slices])


def _sort_keys(keys: Keys) -> tuple[Keys, Int32Array | None]:
    """Return the sorted keys and the rank of each key, or None if the keys were sorted already."""
    if isinstance(keys, pa.BinaryArray):
        order = to_numpy(pc.array_sort_indices(keys))
        ordered: Keys = keys.take(to_arrow_array(order))
    else:
        if (keys[1:] > keys[:-1]).all():
            return keys, None
        order = argsort_stable(keys)
        ordered = keys[order]
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return ordered, ranks


def _encode_keys(codec: KeyCodec, keys: Keys, first_nan: int | None) -> tuple[bytes, Int64Array]:
    """Return the stored keys, and each key's end."""
    if isinstance(keys, pa.BinaryArray):
        batch = BinaryBatch.from_arrow(keys)
        return join_around_values(
            encode_big_endian(batch.lengths), batch, np.empty((len(keys), 0), np.uint8)
        )
    data = codec.encode(keys)
    if first_nan is not None:  # NaN is the last key; the first NaN of the column is stored
        nan = first_nan & (1 << 8 * codec.width) - 1
        data = data[: -codec.width] + nan.to_bytes(codec.width, "big")
    return data, np.arange(1, len(keys) + 1) * codec.width


def _encode_dictionary(encoded: bytes, ends: Int64Array, codec: KeyCodec, chunk_size: int) -> bytes:
    offsets, heads, areas, areas_size = bytearray(), bytearray(), list[bytes](), 0
    begins = np.concatenate([[0], ends])
    first = 0
    while first < len(ends):
        # the first key, from ``begin`` to ``start``, is stored in the head of the chunk
        begin, start = int(begins[first]), int(ends[first])
        last = int(np.searchsorted(ends, start + chunk_size, side="right"))
        last = max(last, first + 1)
        if codec.dtype is None:
            last = min(last, first + 1 + chunk_size // 4)
        keys = encoded[start : int(ends[last - 1])]
        size = last - first - 1
        offsets += _INT32.pack(len(heads))
        heads += b"\x01" + encoded[begin:start]
        if codec.dtype is None:
            key_offsets = (begins[first + 1 : last] - start).astype(">i4").tobytes()
            heads += _CHUNK.pack(first, areas_size, size, len(key_offsets), len(keys))
            keys = key_offsets + keys
        else:
            heads += _CHUNK.pack(first, areas_size, size, len(keys), codec.width)
        areas.append(keys)
        areas_size += len(keys)
        first = last
    head = _DICTIONARY.pack(_DICTIONARY.size - 4, _VERSION, len(areas), len(offsets), len(heads))
    return b"".join([head, offsets, heads, *areas])


def _encode_bit_slices(rows: Mask, codes: Int32Array, count: int) -> bytes:
    existing, slices = serialize_mask(rows), serialize_bit_slices(codes, count)
    indexes, offset = bytearray(), 0
    for part in slices:
        indexes += struct.pack(">ii", offset, len(part))
        offset += len(part)
    head = _SLICES.pack(
        _SLICES.size - 4 + len(indexes), _VERSION, count, len(existing), len(indexes)
    )
    return b"".join([head, indexes, existing, *slices])


class _Head(NamedTuple):
    rows: int
    distinct: int
    low: Key
    high: Key
    dictionary: ByteSource
    slices: ByteSource


class _Chunk(NamedTuple):
    key: Key
    code: int
    keys_start: int  # start of the keys after the first key
    size: int
    offsets_length: int
    keys_length: int


@dataclass(frozen=True)
class RangeBitmapIndex:
    """A stored index; queries read only the parts that they need."""

    source: ByteSource
    data_type: AtomicType

    @property
    def row_count(self) -> int:
        """Return the number of rows of the file, including nulls."""
        return self._head.rows

    def is_built_with(self, chunk_size: int | None) -> bool:
        """Return whether the dictionary has full chunks of this size."""
        size = default_chunk_size(self.data_type) if chunk_size is None else chunk_size
        codec = get_key_codec(self.data_type)
        offset = 0 if codec.dtype is not None else 4
        fits = all(max(c.keys_length, c.offsets_length) <= size for c in self._chunks)
        return fits and all(
            chunk.keys_length + len(codec.encode_one(after.key)) > size
            or chunk.offsets_length + offset > size
            for chunk, after in pairwise(self._chunks)
        )

    def query(self, op: Operator, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows that pass a test, without nulls, or None for unsupported tests."""
        if op == Operator.IS_NULL:
            return build_full_bitmap(self.row_count) - self._existing
        if op == Operator.IS_NOT_NULL:
            return self._existing
        if op in (Operator.EQUAL, Operator.IN):
            return self._find_equal(keys)
        if op in (Operator.NOT_EQUAL, Operator.NOT_IN):
            return self._existing - self._find_equal(keys)
        if op in (Operator.GREATER, Operator.GREATER_OR_EQUAL):
            return self._find_above(keys[0], equal=op == Operator.GREATER_OR_EQUAL)
        if op in (Operator.LESS, Operator.LESS_OR_EQUAL):
            return self._existing - self._find_above(keys[0], equal=op == Operator.LESS)
        if op == Operator.BETWEEN:
            return self._find_above(keys[0], equal=True) - self._find_above(keys[1], equal=False)
        return None

    def top(
        self,
        k: int,
        *,
        descending: bool,
        nulls_first: bool,
        strict: bool,
        selection: BitMap | None = None,
    ) -> BitMap:
        """Return the rows of the first ``k`` values in an order by this column.

        ``strict`` returns exactly ``k`` rows; otherwise all rows that tie for the last place are
        returned. Raises :class:`InputError` for a negative ``k``.

        See docs/format/range-bitmap-index.md#first-rows-of-an-order.
        """
        if k < 0:
            raise InputError(f"k must be at least 1, got {k}")
        everything = build_full_bitmap(self.row_count)
        candidates = everything if selection is None else selection & everything
        if not self._head.distinct:
            return everything
        nulls = candidates - self._existing
        values = candidates & self._existing
        if not nulls_first:
            best = self._select_best(k, values, descending=descending, strict=strict)
            return best | _take_first(nulls, k - len(best), strict=strict)
        if len(nulls) >= k:
            return _take_first(nulls, k, strict=strict)
        return nulls | self._select_best(
            k - len(nulls), values, descending=descending, strict=strict
        )

    def _select_best(self, k: int, candidates: BitMap, *, descending: bool, strict: bool) -> BitMap:
        if k == 0 or len(candidates) <= k:
            return BitMap() if k == 0 else candidates
        selected, tied = self._slices.find_largest(k, candidates, smallest=not descending)
        if strict:  # of the tied rows, those with the largest positions are returned
            surplus = len(selected) + len(tied) - k
            tied = tied - tied[:surplus]
        return selected | tied

    def _find_equal(self, keys: Sequence[Key]) -> BitMap:
        rows = BitMap()
        for key in keys:
            code, exact = self._find_code(key)
            if exact:
                rows |= self._slices.find_equal(code)
        return rows

    def _find_above(self, key: Key, *, equal: bool) -> BitMap:
        code, exact = self._find_code(key)
        return self._slices.find_above(code if exact and not equal else code - 1)

    def _find_code(self, key: Key) -> tuple[int, bool]:
        """Return the code of a key, or of the first larger key, and whether the key exists."""
        head = self._head
        if not head.distinct or key < head.low:  # type: ignore[operator]
            return 0, False
        if key > head.high:  # type: ignore[operator]
            return head.distinct, False
        number = bisect_right(self._chunks, key, key=lambda chunk: chunk.key) - 1
        if number < 0:
            return 0, False
        chunk = self._chunks[number]
        if chunk.key == key:
            return chunk.code, True
        later_keys = self._read_later_keys(chunk)
        index = bisect_right(later_keys, key)
        if index and later_keys[index - 1] == key:
            return chunk.code + index, True
        return chunk.code + 1 + index, False

    @cached_property
    def _head(self) -> _Head:
        length, version, rows, count = _HEADER.unpack(self.source.bytes(0, _HEADER.size))
        if version != _VERSION:
            raise UnsupportedError(f"range-bitmap indexes of version {version} are not supported")
        if rows < 0 or not 0 <= count <= rows or length < _HEADER.size:
            raise ValueError(
                f"invalid header of a range-bitmap index: length {length}, {count} distinct values, "
                f"{rows} rows"
            )
        data = self.source.bytes(_HEADER.size, length + 4 - _HEADER.size)
        low, position = self._decode_key(data, 0) if count else (0, 0)
        high, position = self._decode_key(data, position) if count else (0, 0)
        (size,) = _INT32.unpack_from(data, position)
        start = 4 + length
        dictionary = self.source.part(start, size)
        return _Head(
            rows, count, low, high, dictionary,
            self.source.part(start + size, self.source.length - start - size),
        )  # fmt: skip

    def _decode_key(self, data: bytes, position: int) -> tuple[Key, int]:
        codec = get_key_codec(self.data_type)
        if codec.dtype is not None:
            end = position + codec.width
            return int(codec.decode(data[position:end])[0]), end
        (length,) = _INT32.unpack_from(data, position)
        end = position + 4 + length
        if length < 0 or end > len(data):
            raise ValueError(f"a key of {length} bytes is truncated")
        return data[position + 4 : end], end

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        blob = self._head.dictionary
        length, version, count, offsets, heads = _DICTIONARY.unpack(blob.bytes(0, _DICTIONARY.size))
        if version != _VERSION or length != _DICTIONARY.size - 4 or offsets != 4 * count:
            raise ValueError("the dictionary of a range-bitmap index is damaged")
        data = blob.bytes(_DICTIONARY.size + offsets, heads)
        areas, chunks, position = _DICTIONARY.size + offsets + heads, [], 0
        for _ in range(count):
            key, position = self._decode_key(data, position + 1)
            code, start, size, *lengths = _CHUNK.unpack_from(data, position)
            position += _CHUNK.size
            if get_key_codec(self.data_type).dtype is not None:
                lengths = [0, lengths[0]]
            chunks.append(_Chunk(key, code, areas + start, size, *lengths))
        return chunks

    def _read_later_keys(self, chunk: _Chunk) -> Sequence[Key]:
        """Return the keys of a chunk after its first one."""
        codec, blob = get_key_codec(self.data_type), self._head.dictionary
        if codec.dtype is not None:
            keys: list[Key] = codec.decode(blob.bytes(chunk.keys_start, chunk.keys_length)).tolist()
            return keys
        data = blob.bytes(chunk.keys_start + chunk.offsets_length, chunk.keys_length)
        binary_keys, position = list[Key](), 0
        for _ in range(chunk.size):
            key, position = self._decode_key(data, position)
            binary_keys.append(key)
        return binary_keys

    @cached_property
    def _existing(self) -> BitMap:
        start, length, _ = self._layout
        return deserialize_bitmap(self._head.slices.bytes(start, length), self._head.rows)

    @cached_property
    def _layout(self) -> tuple[int, int, tuple[int, ...]]:
        """Return offset and length of the existing rows, and offsets and lengths of the slices."""
        blob = self._head.slices
        length, version, count, size, indexes = _SLICES.unpack(blob.bytes(0, _SLICES.size))
        if version != _VERSION or indexes != 8 * count or length != _SLICES.size - 4 + indexes:
            raise ValueError("the slices of a range-bitmap index are damaged")
        return 4 + length, size, blob.read_ints(_SLICES.size, 2 * count)

    @cached_property
    def _slices(self) -> BitSlices:
        start, length, indexes = self._layout
        blob, rows = self._head.slices, self._head.rows
        bitmaps: dict[int, BitMap] = {}

        def read(bit: int) -> BitMap:
            if bit not in bitmaps:
                data = blob.bytes(start + length + indexes[2 * bit], indexes[2 * bit + 1])
                bitmaps[bit] = deserialize_bitmap(data, rows)
            return bitmaps[bit]

        return BitSlices(self._existing, len(indexes) // 2, read)


def _take_first(rows: BitMap, count: int, *, strict: bool) -> BitMap:
    """Return the first ``count`` rows if ``strict``, else all of them."""
    if count <= 0:
        return BitMap()
    return BitMap(rows[:count]) if strict else rows
