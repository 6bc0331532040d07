"""Decodes many Avro records with numpy: each step decodes one field of all records.

This module is hand-written because fastavro takes 4 times as long to read a manifest of 20,000
entries, and 20 times as long if partition, bucket or statistics exclude most of the entries
(``benchmarks/hand_written.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from paimon_orch.format.arrays import Indices, Mask

AVRO_PADDING = bytes(16)
"""Follows the content of a decoder, so that fields can be read at its end."""
_CHUNK_BYTES = 1 << 20  # bytes that are searched together; bounds the memory
_MAX_ITEMS_PER_BYTE = 4  # an entry may be decoded twice, and false candidates add some items
_MAX_ARRAY_ITEMS = 20_000  # each position in the longest array takes some calls of numpy
_MAX_VARINT_BITS = 70  # bits of the longest varint
_INTEGER_TYPES = ("int", "long")
_BYTE_TYPES = ("string", "bytes")
_EMPTY_ROW_BYTES = 12  # size of a serialized row without fields


class UnexpectedAvroError(Exception):
    """The schema or the data is not supported by this decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroColumn:
    """One field of all records: numbers, or byte ranges from ``values`` to ``ends``.

    ``valid`` is None if no value is null. Arrays have an ``item_type``; ``items`` are the decoded
    items of number arrays that all have the same length.
    """

    values: Indices
    ends: Indices | None = None
    valid: Mask | None = None
    items: "tuple[AvroColumn, ...] | None" = None
    item_type: Any = None

    def take(self, rows: Indices) -> "AvroColumn":
        """Return the field of some records."""
        return AvroColumn(
            values=self.values[rows],
            ends=None if self.ends is None else self.ends[rows],
            valid=None if self.valid is None else self.valid[rows],
            items=None if self.items is None else tuple(item.take(rows) for item in self.items),
            item_type=self.item_type,
        )

    def scatter(self, lanes: Indices, valid: Mask) -> "AvroColumn":
        """Return the field of all records, given the values of the ``lanes`` that are not null."""
        values = np.zeros((2, len(valid)), np.int64)
        values[0][lanes] = self.values
        if self.ends is None:
            return AvroColumn(values=values[0], ends=None, valid=valid)
        values[1][lanes] = self.ends
        return AvroColumn(
            values=values[0], ends=values[1], valid=valid, items=None, item_type=self.item_type
        )

    @property
    def is_null(self) -> bool:
        """Return whether the field is null in all records."""
        return self.valid is not None and not self.valid.any()

    def numbers(self) -> list[Any]:
        """Return the numbers; a null is None."""
        if self.is_null:
            return [None] * len(self.values)
        return self._replace_invalid_by_none(self.values.tolist())

    def slices(self, data: bytes) -> list[Any]:
        """Return the bytes of every record; a null is None."""
        if self.is_null:
            return [None] * len(self.values)
        assert self.ends is not None
        ends = self.ends.tolist()
        parts = [data[start:end] for start, end in zip(self.values.tolist(), ends, strict=True)]
        return self._replace_invalid_by_none(parts)

    def arrays(self, data: bytes) -> list[Any]:
        """Return arrays as tuples; a null is None."""
        if self.items is not None:
            parts = [item.numbers() for item in self.items]
            rows = zip(*parts, strict=True) if parts else repeat((), len(self.values))
            return self._replace_invalid_by_none(list(rows))
        decoded: dict[bytes | None, Any] = {None: None}
        arrays = []
        for part in self.slices(data):
            if part not in decoded:
                decoded[part] = _decode_array(self.item_type, part)
            arrays.append(decoded[part])
        return arrays

    def to_python_values(self, schema: Any, data: bytes) -> list[Any]:
        """Return the values for an encoder; ``schema`` is a type that passes ``is_column_type``."""
        kind = _get_type_name(schema)
        if kind in _INTEGER_TYPES:
            return self.numbers()
        if kind == "array":
            return [None if items is None else list(items) for items in self.arrays(data)]
        parts = self.slices(data)
        if kind == "bytes":
            return parts
        return [None if part is None else part.decode() for part in parts]

    def _replace_invalid_by_none(self, values: list[Any]) -> list[Any]:
        if self.valid is None:
            return values
        return [v if valid else None for v, valid in zip(values, self.valid.tolist(), strict=True)]


class AvroBatchDecoder:
    """Decodes the concatenated content of an Avro file's blocks, followed by the padding.

    A lane is one record. Lanes with invalid data are moved beyond the end of the content and
    remain there for all further fields.
    """

    def __init__(self, content: bytes) -> None:
        self._bytes = np.frombuffer(content, np.uint8)
        self._size = len(content) - len(AVRO_PADDING)
        self._lost = self._size + 1
        self._decoded_items, self._max_items = 0, _MAX_ITEMS_PER_BYTE * len(content)

    def find_entry_starts(self, version: int, branch: int | None) -> Indices:
        """Return the positions of bytes that look like version, kind and partition of an entry.

        ``branch``: the encoded union index that precedes the version, if entries are in a union.
        """
        data = self._bytes
        positions = np.concatenate(
            [
                self._find_kinds(version, start, min(start + _CHUNK_BYTES, self._size))
                for start in range(0, self._size, _CHUNK_BYTES)
            ]
            or [np.zeros(0, np.int64)]
        )
        length, row = self._read_longs(positions + 2)
        fits = (length >= _EMPTY_ROW_BYTES) & (length % 8 == _EMPTY_ROW_BYTES % 8)
        positions, row, length = positions[fits], row[fits], length[fits]
        row = np.minimum(row, self._size)
        arity = data[row + 3].astype(np.int64)
        is_small_arity = (data[row] | data[row + 1] | data[row + 2]) == 0
        fixed = 4 + (arity + 71) // 64 * 8 + 8 * arity
        starts: Indices = positions[
            is_small_arity & (length >= fixed) & ((arity > 0) | (length == fixed))
        ]
        if branch is None:
            return starts
        starts = starts[starts > 0] - 1
        entries: Indices = starts[data[starts] == branch]
        return entries

    def _find_kinds(self, version: int, start: int, end: int) -> Indices:
        """Return the positions of versions that the kinds 0 or 1 follow."""
        data = self._bytes
        positions = np.flatnonzero(data[start:end] == version) + start
        followed: Indices = positions[(data[positions + 1] & 0xFD) == 0]
        return followed

    def walk(self, schema: Any, starts: Indices) -> tuple[Indices, dict[str, AvroColumn]]:
        """Decode a record at every start; return the ends, and the fields by dotted path."""
        columns: dict[str, AvroColumn] = {}
        return self._read_record(schema, starts, "", columns), columns

    def _read_record(
        self, schema: Any, positions: Indices, prefix: str, out: dict[str, AvroColumn]
    ) -> Indices:
        """Decode records of a type that may be a union with null; null is invalid."""
        if isinstance(schema, list):
            branch, positions = self._read_longs(positions)
            positions[branch != _find_non_null_branch(schema)] = self._lost
        for part in find_record_type(schema)["fields"]:
            name = prefix + part["name"]
            if find_record_type(part["type"]):
                positions = self._read_record(part["type"], positions, f"{name}.", out)
            else:
                positions, out[name] = self._read_value(part["type"], positions)
        return positions

    def _read_value(self, schema: Any, positions: Indices) -> tuple[Indices, AvroColumn]:
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, list):
            return self._read_union(kind, positions)
        if kind in _INTEGER_TYPES:
            values, positions = self._read_longs(positions)
            return positions, AvroColumn(values=values)
        if kind in _BYTE_TYPES:
            length, start = self._read_longs(positions)
            positions = self._advance(start, length)
            return positions, AvroColumn(values=start, ends=positions)
        if kind == "array":
            return self._read_array(schema["items"], positions)
        raise UnexpectedAvroError(f"a field has the unsupported type {kind}")

    def _advance(self, positions: Indices, length: Indices) -> Indices:
        is_possible = (length >= 0) & (length <= self._size)
        advanced: Indices = np.where(
            is_possible, positions + np.where(is_possible, length, 0), self._lost
        )
        return np.minimum(advanced, self._lost)

    def _read_longs(self, positions: Indices) -> tuple[Indices, Indices]:
        """Read a zigzag varint in every lane."""
        first = self._bytes[positions]
        positions = np.minimum(positions + 1, self._lost)
        raw = first.astype(np.uint64)
        continued = np.flatnonzero(first & 0x80)
        if len(continued):
            raw &= np.uint64(0x7F)
        shift = 7
        while len(continued) and shift < _MAX_VARINT_BITS:
            lanes = positions[continued]
            byte = self._bytes[lanes]
            raw[continued] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            positions[continued] = np.minimum(lanes + 1, self._lost)
            continued = continued[byte >= 0x80]
            shift += 7
        positions[continued] = self._lost
        half = (raw >> np.uint64(1)).view(np.int64)
        return half ^ -(raw & np.uint64(1)).view(np.int64), positions

    def _read_union(self, kinds: Sequence[Any], positions: Indices) -> tuple[Indices, AvroColumn]:
        """Decode a union of null and one other type."""
        other = _find_non_null_branch(kinds)
        branch, positions = self._read_longs(positions)
        positions[(branch < 0) | (branch > 1)] = self._lost
        valid = branch == other
        if valid.all():
            return self._read_value(kinds[other], positions)
        lanes = np.flatnonzero(valid)
        after, part = self._read_value(kinds[other], positions[lanes])
        positions[lanes] = after
        return positions, part.scatter(lanes, valid)

    def _read_array(self, kind: Any, positions: Indices) -> tuple[Indices, AvroColumn]:
        start, items, lanes = positions, [], np.arange(len(positions))
        positions = positions.copy()
        uniform = isinstance(kind, str | list)
        while len(lanes):
            count, block_positions = self._read_longs(positions[lanes])
            # a negative count is followed by the block's length in bytes
            sized = np.flatnonzero(count < 0)
            if len(sized):
                block_positions[sized] = self._read_longs(block_positions[sized])[1]
                count = np.abs(count)
            block_positions[(count < 0) | (count > self._size)] = self._lost
            positions[lanes] = block_positions
            open_ = (count > 0) & (block_positions < self._lost)
            uniform = uniform and (bool(open_.all()) or not open_.any())
            lanes, remaining = lanes[open_], count[open_]
            uniform = uniform and (not len(remaining) or bool((remaining == remaining[0]).all()))
            items += self._read_items(kind, positions, lanes, remaining)
        is_whole = uniform and all(
            item.ends is None and len(item.values) == len(positions) for item in items
        )
        return positions, AvroColumn(
            values=start,
            ends=positions,
            valid=None,
            items=tuple(items) if is_whole else None,
            item_type=kind,
        )

    def _read_items(
        self, kind: Any, positions: Indices, lanes: Indices, remaining: Indices
    ) -> list[AvroColumn]:
        """Decode the items of a block in every lane; updates ``positions``."""
        columns: list[AvroColumn] = []
        while len(lanes):
            # Records do not overlap, but candidates may: hostile ones share the items of arrays.
            self._decoded_items += len(lanes)
            if self._decoded_items > self._max_items or len(columns) > _MAX_ARRAY_ITEMS:
                raise UnexpectedAvroError("arrays have too many items")
            item_ends, column = self._read_value(kind, positions[lanes])
            positions[lanes] = item_ends
            columns.append(column)
            remaining = remaining - 1
            unfinished = (remaining > 0) & (item_ends < self._lost)
            if not unfinished.all():
                lanes, remaining = lanes[unfinished], remaining[unfinished]
        return columns


def find_record_type(schema: Any) -> Mapping[str, Any]:
    """Return a record type, unwrapped from a union with null; empty for other types."""
    if isinstance(schema, list) and len(schema) == 2:
        schema = schema[_find_non_null_branch(schema)]
    is_record = isinstance(schema, dict) and schema["type"] == "record"
    return schema if is_record else {}


def is_column_type(schema: Any) -> bool:
    """Return whether :class:`AvroColumn` can return the values of a field of this type."""
    kind = _get_type_name(schema)
    if kind != "array":
        return kind in (*_INTEGER_TYPES, *_BYTE_TYPES)
    return _get_type_name(_strip_null(schema)["items"]) in (*_INTEGER_TYPES, *_BYTE_TYPES)


def _get_type_name(schema: Any) -> Any:
    non_null = _strip_null(schema)
    return non_null["type"] if isinstance(non_null, dict) else non_null


def _strip_null(schema: Any) -> Any:
    return schema[_find_non_null_branch(schema)] if isinstance(schema, list) else schema


def _find_non_null_branch(kinds: Sequence[Any]) -> int:
    if len(kinds) != 2 or "null" not in kinds:
        raise UnexpectedAvroError(f"a field has the unsupported union {kinds}")
    return 1 - kinds.index("null")


def _decode_array(schema: Any, data: bytes) -> tuple[Any, ...]:
    items = []
    count, position = _decode_zigzag(data, 0)
    while count:
        if count < 0:  # a negative count is followed by the block's length in bytes
            position = _decode_zigzag(data, position)[1]
        for _ in range(abs(count)):
            value, position = _decode_item(schema, data, position)
            items.append(value)
        count, position = _decode_zigzag(data, position)
    return tuple(items)


def _decode_item(schema: Any, data: bytes, position: int) -> tuple[Any, int]:
    if isinstance(schema, list):
        branch, position = _decode_zigzag(data, position)
        schema = schema[branch]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "null":
        return None, position
    number, position = _decode_zigzag(data, position)
    if kind in _INTEGER_TYPES:
        return number, position
    value = data[position : position + number]
    return value.decode() if kind == "string" else value, position + number


def _decode_zigzag(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
