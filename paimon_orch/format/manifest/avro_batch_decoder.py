"""Decodes many Avro records together with numpy: one field at a time, for all records in one step.

Hand-written: reading a manifest of 20,000 entries with fastavro takes 4 times as long if all
entries are needed, and 20 times as long if partition, bucket or statistics exclude most of them
(``benchmarks/hand_written.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from paimon_orch.format.arrays import Indices, Mask

_PADDING = bytes(16)
_MAX_VARINT_BITS = 70  # bits of the longest varint
_INTEGER_TYPES = ("int", "long")
_BYTE_TYPES = ("string", "bytes")
_EMPTY_ROW_BYTES = 12  # a serialized row without fields


class UnexpectedAvroError(Exception):
    """The schema or the data is not supported by this decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroColumn:
    """One field of all records: numbers, or the ranges of bytes and arrays (``values`` to ``ends``).

    ``valid`` is None where nothing is null. Arrays have an ``item_type``, and ``items`` where they
    hold numbers and are all of one length.
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
        """Return the field of all records, given its values in the ``lanes`` that have it."""
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
        """Return the numbers, None for null."""
        if self.is_null:
            return [None] * len(self.values)
        return self._null_where_invalid(self.values.tolist())

    def slices(self, data: bytes) -> list[Any]:
        """Return the bytes of every record, None for null."""
        if self.is_null:
            return [None] * len(self.values)
        assert self.ends is not None
        ends = self.ends.tolist()
        parts = [data[one:two] for one, two in zip(self.values.tolist(), ends, strict=True)]
        return self._null_where_invalid(parts)

    def arrays(self, data: bytes) -> list[Any]:
        """Return arrays as tuples, None for null."""
        if self.items is not None:
            parts = [item.numbers() for item in self.items]
            rows = zip(*parts, strict=True) if parts else repeat((), len(self.values))
            return self._null_where_invalid(list(rows))
        known: dict[bytes | None, Any] = {None: None}
        found = []
        for part in self.slices(data):
            if part not in known:
                known[part] = _decode_array(self.item_type, part)
            found.append(known[part])
        return found

    def to_python_values(self, schema: Any, data: bytes) -> list[Any]:
        """Return the values as an encoder takes them, for types that :func:`is_column_type` accepts."""
        kind = _get_type_name(schema)
        if kind in _INTEGER_TYPES:
            return self.numbers()
        if kind == "array":
            return [None if items is None else list(items) for items in self.arrays(data)]
        parts = self.slices(data)
        if kind == "bytes":
            return parts
        return [None if part is None else part.decode() for part in parts]

    def _null_where_invalid(self, values: list[Any]) -> list[Any]:
        if self.valid is None:
            return values
        return [v if valid else None for v, valid in zip(values, self.valid.tolist(), strict=True)]


class AvroBatchDecoder:
    """The joined content of an Avro file's blocks.

    A lane (one record) that leaves the content or finds invalid data is moved behind the end for
    all further fields.
    """

    def __init__(self, content: bytes) -> None:
        self._bytes = np.frombuffer(content + _PADDING, np.uint8)
        self._size = len(content)
        self._lost = self._size + 1

    def find_entry_starts(self, version: int, branch: int | None) -> Indices:
        """Return where a manifest entry may start: version, kind, and a partition row with its arity in front.

        With a ``branch``, entries are in a union, and its encoded index precedes the version.
        """
        data = self._bytes
        at = np.flatnonzero(data[: self._size] == version)
        at = at[(data[at + 1] & 0xFD) == 0]  # the kinds 0 and 1
        length, row = self._longs(at + 2)
        fits = (length >= _EMPTY_ROW_BYTES) & (length % 8 == _EMPTY_ROW_BYTES % 8)
        at, row, length = at[fits], row[fits], length[fits]
        row = np.minimum(row, self._size)
        arity = data[row + 3].astype(np.int64)
        plain = (data[row] | data[row + 1] | data[row + 2]) == 0
        fixed = 4 + (arity + 71) // 64 * 8 + 8 * arity
        starts: Indices = at[plain & (length >= fixed) & ((arity > 0) | (length == fixed))]
        if branch is None:
            return starts
        starts = starts[starts > 0] - 1
        chosen: Indices = starts[data[starts] == branch]
        return chosen

    def walk(self, schema: Any, starts: Indices) -> tuple[Indices, dict[str, AvroColumn]]:
        """Decode a record at every start; return where each ends, and its fields by their dotted path."""
        columns: dict[str, AvroColumn] = {}
        return self._read_record(schema, starts, "", columns), columns

    def _read_record(
        self, schema: Any, at: Indices, prefix: str, out: dict[str, AvroColumn]
    ) -> Indices:
        """Walk a record that is there, though its type may be a union with null."""
        if isinstance(schema, list):
            branch, at = self._longs(at)
            at[branch != _find_non_null_branch(schema)] = self._lost
        for part in find_record_type(schema)["fields"]:
            name = prefix + part["name"]
            if find_record_type(part["type"]):
                at = self._read_record(part["type"], at, f"{name}.", out)
            else:
                at, out[name] = self._value(part["type"], at)
        return at

    def _value(self, schema: Any, at: Indices) -> tuple[Indices, AvroColumn]:
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, list):
            return self._read_union(kind, at)
        if kind in _INTEGER_TYPES:
            values, at = self._longs(at)
            return at, AvroColumn(values=values)
        if kind in _BYTE_TYPES:
            length, start = self._longs(at)
            at = self._advance(start, length)
            return at, AvroColumn(values=start, ends=at)
        if kind == "array":
            return self._read_array(schema["items"], at)
        raise UnexpectedAvroError(f"a field of type {kind}")

    def _advance(self, at: Indices, length: Indices) -> Indices:
        possible = (length >= 0) & (length <= self._size)
        moved: Indices = np.where(possible, at + np.where(possible, length, 0), self._lost)
        return np.minimum(moved, self._lost)

    def _longs(self, at: Indices) -> tuple[Indices, Indices]:
        """Read a zigzag varint in every lane."""
        first = self._bytes[at]
        at = np.minimum(at + 1, self._lost)
        raw = first.astype(np.uint64)
        more = np.flatnonzero(first & 0x80)
        if len(more):
            raw &= np.uint64(0x7F)
        shift = 7
        while len(more) and shift < _MAX_VARINT_BITS:
            lanes = at[more]
            byte = self._bytes[lanes]
            raw[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            at[more] = np.minimum(lanes + 1, self._lost)
            more = more[byte >= 0x80]
            shift += 7
        at[more] = self._lost
        half = (raw >> np.uint64(1)).view(np.int64)
        return half ^ -(raw & np.uint64(1)).view(np.int64), at

    def _read_union(self, kinds: Sequence[Any], at: Indices) -> tuple[Indices, AvroColumn]:
        """Null or one other type."""
        other = _find_non_null_branch(kinds)
        branch, at = self._longs(at)
        at[(branch < 0) | (branch > 1)] = self._lost
        valid = branch == other
        if valid.all():
            return self._value(kinds[other], at)
        lanes = np.flatnonzero(valid)
        after, part = self._value(kinds[other], at[lanes])
        at[lanes] = after
        return at, part.scatter(lanes, valid)

    def _read_array(self, kind: Any, at: Indices) -> tuple[Indices, AvroColumn]:
        start, items, lanes = at, [], np.arange(len(at))
        at = at.copy()
        uniform = isinstance(kind, str | list)
        while len(lanes):
            count, here = self._longs(at[lanes])
            sized = np.flatnonzero(count < 0)  # the block's length in bytes follows
            if len(sized):
                here[sized] = self._longs(here[sized])[1]
                count = np.abs(count)
            here[(count < 0) | (count > self._size)] = self._lost
            at[lanes] = here
            open_ = (count > 0) & (here < self._lost)
            uniform = uniform and (bool(open_.all()) or not open_.any())
            lanes, left = lanes[open_], count[open_]
            uniform = uniform and (not len(left) or bool((left == left[0]).all()))
            items += self._read_items(kind, at, lanes, left)
        is_whole = uniform and all(
            item.ends is None and len(item.values) == len(at) for item in items
        )
        return at, AvroColumn(
            values=start,
            ends=at,
            valid=None,
            items=tuple(items) if is_whole else None,
            item_type=kind,
        )

    def _read_items(
        self, kind: Any, at: Indices, lanes: Indices, left: Indices
    ) -> list[AvroColumn]:
        """Walk the items of a block of every lane; ``at`` is moved on."""
        found = []
        while len(lanes):
            here, column = self._value(kind, at[lanes])
            at[lanes] = here
            found.append(column)
            left = left - 1
            going = (left > 0) & (here < self._lost)
            if not going.all():
                lanes, left = lanes[going], left[going]
        return found


def find_record_type(schema: Any) -> Mapping[str, Any]:
    """Return a record type, also one in a union with null; an empty mapping for other types."""
    if isinstance(schema, list) and len(schema) == 2:
        schema = schema[_find_non_null_branch(schema)]
    is_record = isinstance(schema, dict) and schema["type"] == "record"
    return schema if is_record else {}


def is_column_type(schema: Any) -> bool:
    """Return whether the values of a field of this type can be read from a :class:`AvroColumn`."""
    kind = _get_type_name(schema)
    if kind != "array":
        return kind in (*_INTEGER_TYPES, *_BYTE_TYPES)
    return _get_type_name(_strip_null(schema)["items"]) in (*_INTEGER_TYPES, *_BYTE_TYPES)


def _get_type_name(schema: Any) -> Any:
    plain = _strip_null(schema)
    return plain["type"] if isinstance(plain, dict) else plain


def _strip_null(schema: Any) -> Any:
    return schema[_find_non_null_branch(schema)] if isinstance(schema, list) else schema


def _find_non_null_branch(kinds: Sequence[Any]) -> int:
    if len(kinds) != 2 or "null" not in kinds:
        raise UnexpectedAvroError(f"a union of {kinds}")
    return 1 - kinds.index("null")


def _decode_array(schema: Any, data: bytes) -> tuple[Any, ...]:
    """Decode one array."""
    found = []
    count, at = _decode_zigzag(data, 0)
    while count:
        if count < 0:  # the block's length in bytes follows
            at = _decode_zigzag(data, at)[1]
        for _ in range(abs(count)):
            value, at = _decode_item(schema, data, at)
            found.append(value)
        count, at = _decode_zigzag(data, at)
    return tuple(found)


def _decode_item(schema: Any, data: bytes, at: int) -> tuple[Any, int]:
    if isinstance(schema, list):
        branch, at = _decode_zigzag(data, at)
        schema = schema[branch]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "null":
        return None, at
    number, at = _decode_zigzag(data, at)
    if kind in _INTEGER_TYPES:
        return number, at
    value = data[at : at + number]
    return value.decode() if kind == "string" else value, at + number


def _decode_zigzag(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
