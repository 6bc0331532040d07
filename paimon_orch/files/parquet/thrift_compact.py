"""The part of Thrift's compact protocol that the structs of a Parquet file need.

Fields are located but not decoded, and new structs are built from bytes, so unknown fields are
preserved. Damaged bytes raise ``IndexError`` or ``ValueError``; nothing outside the given bytes is
read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from paimon_orch.format.bytes.varint import BytesLike, decode_varint, encode_varint

FALSE, I16, I32, I64, BINARY, LIST, STRUCT = 2, 4, 5, 6, 8, 9, 12
_TRUE, _BYTE, _DOUBLE, _SET = 1, 3, 7, 10
STRUCT_END = b"\0"
_MAX_DEPTH = 20  # the structs of a Parquet footer have 6 levels
_SHORT_FORM = 0x10  # a header byte includes the difference from the previous field number
_LONG_FORM = 15  # the count does not fit into four bits, so it follows as a varint


NO_LISTS: Mapping[int, Callable[[int], int]] = MappingProxyType({})
ThriftFields = dict[int, tuple[int, bytes]]
"""The kinds and the bytes of the fields of a struct by number."""


class ValueSpan(NamedTuple):
    """The kind of a field's value, and its range in the bytes."""

    kind: int
    start: int
    end: int


def decode_integer(data: BytesLike, position: int) -> int:
    """Return the signed number at ``position``."""
    value = data[position]
    if value >= 0x80:
        value, _ = decode_varint(data, position)
    return value >> 1 ^ -(value & 1)


IntegerSpan = tuple[int, int, int]
"""A signed number, and its range in the bytes."""


def locate_integer(data: BytesLike, position: int) -> IntegerSpan:
    """Return the signed number at ``position`` and its range."""
    value, end = decode_varint(data, position)
    return value >> 1 ^ -(value & 1), position, end


def decode_struct(
    data: BytesLike,
    position: int = 0,
    *,
    after: int = 0,
    lists: Mapping[int, Callable[[int], int]] = NO_LISTS,
) -> tuple[dict[int, ValueSpan], int]:
    """Return the fields of a struct by number, and the end of the struct.

    The first field at the position follows the field number ``after``. ``lists`` are functions from
    the start of a list to its end by field number, which decode a list that is skipped otherwise.
    """
    fields, number = {}, after
    while head := data[position]:
        position += 1
        kind = head & 0x0F
        if head >= _SHORT_FORM:
            number += head >> 4
        else:
            number, position = decode_integer(data, position), decode_varint(data, position)[1]
        if kind == LIST and number in lists:
            end = lists[number](position)
        else:  # the kind of a boolean is its value, so no bytes follow
            end = position if kind in (_TRUE, FALSE) else _skip_value(data, position, kind)
        fields[number] = ValueSpan(kind, position, end)
        position = end
    return fields, position + 1


def decode_struct_with(
    data: BytesLike, position: int, number: int
) -> tuple[dict[int, ValueSpan], dict[int, ValueSpan], int]:
    """Return the fields of a struct and those of its field ``number``, and the end of the struct.

    The field must be a struct, follow the first field and have a header of one byte; other structs
    are decoded in more time.
    """
    start = position
    fields, inner = dict[int, ValueSpan](), dict[int, ValueSpan]()
    head = data[position]
    if head >> 4 == number - 1 and head & 0x0F == I64:
        end = _skip_value(data, position + 1, I64)
        fields[number - 1] = ValueSpan(I64, position + 1, end)
        if data[end] == _SHORT_FORM | STRUCT:
            inner, position = decode_struct(data, end + 1)
            fields[number] = ValueSpan(STRUCT, end + 1, position)
            rest, position = decode_struct(data, position, after=number)
            if number not in rest and number - 1 not in rest:
                return fields | rest, inner, position
    fields, position = decode_struct(data, start)
    if number in fields:
        inner, _ = decode_struct(data, fields[number].start)
    return fields, inner, position


def split_struct(data: bytes, position: int = 0, *, after: int = 0) -> ThriftFields:
    """Return the kinds and bytes of the fields of a struct by number; see :func:`decode_struct`."""
    fields, _ = decode_struct(data, position, after=after)
    return {number: (span.kind, data[span.start : span.end]) for number, span in fields.items()}


def locate_fields(
    data: BytesLike,
    position: int,
    kinds: Mapping[int, int],
    *,
    after: int = 0,
    until: int | None = None,
) -> tuple[dict[int, int], int]:
    """Return the start of the value of each field by number, and the end of the struct.

    ``kinds`` are the kinds of the fields that the struct can have. The first field at the position
    follows the field number ``after``. With ``until``, the end is the start of the value of this
    field. Raises ValueError or KeyError for other fields, and if they are not in ascending order.
    """
    starts, number = dict[int, int](), after
    while head := data[position]:
        if head < _SHORT_FORM:
            raise ValueError("a field does not follow the previous one")
        number += head >> 4
        kind = head & 0x0F
        if kind != kinds[number]:
            raise ValueError(f"field {number} has the Thrift type {kind}")
        position += 1
        starts[number] = position
        if number == until:
            return starts, position
        if kind in (I64, I32):  # inlined, because most fields are numbers
            while data[position] >= 0x80:
                position += 1
            position += 1
        else:
            position = _skip_value(data, position, kind)
    return starts, position + 1


class StructPattern:
    """The bytes of a struct without its numbers and texts.

    Structs of one writer often differ only in these. Comparing the other bytes then takes a third
    of the time of :func:`locate_fields`.
    """

    def __init__(self, data: bytes, start: int, end: int, values: Iterable[ValueSpan]) -> None:
        """Build the pattern of a struct; other structs may have other ``values``."""
        self._parts: list[tuple[bytes, int, bool]] = []
        for value in values:
            constant = data[start : value.start]
            self._parts.append((constant, len(constant), value.kind == BINARY))
            start = value.end
        self._rest = data[start:end]

    def locate(self, data: bytes, position: int) -> list[int] | None:
        """Return the starts of the values of a struct, and its end; None if it is different."""
        starts = []
        for constant, length, is_text in self._parts:
            if not data.startswith(constant, position):
                return None
            position += length
            starts.append(position)
            if is_text and data[position] < 0x80:
                position += 1 + data[position]
            elif is_text:
                position = _skip_value(data, position, BINARY)
            else:
                while data[position] >= 0x80:
                    position += 1
                position += 1
        if not data.startswith(self._rest, position):
            return None
        starts.append(position + len(self._rest))
        return starts


def find_values(data: bytes, value: ValueSpan, depth: int = 0) -> Iterator[ValueSpan]:
    """Yield the numbers and texts in a value, also in nested structs, in the order of the bytes.

    Raises ``ValueError`` for deeply nested values: their bytes are decoded again for each level.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} Thrift values are nested in each other")
    if value.kind == STRUCT:
        fields, _ = decode_struct(data, value.start)
        for field in fields.values():
            yield from find_values(data, field, depth + 1)
    elif value.kind == LIST:
        for element in decode_list(data, value.start):
            yield from find_values(data, element, depth + 1)
    elif value.kind in (I64, I32, I16, BINARY):
        yield value


def decode_list(data: BytesLike, position: int) -> Iterator[ValueSpan]:
    """Yield the elements of a list."""
    count, kind, position = decode_list_header(data, position)
    for _ in range(count):
        end = _skip_value(data, position, kind)
        yield ValueSpan(kind, position, end)
        position = end


def decode_list_header(data: BytesLike, position: int) -> tuple[int, int, int]:
    """Return the number of elements of a list, their kind, and the start of the first one."""
    count, kind = data[position] >> 4, data[position] & 0x0F
    if count == _LONG_FORM:
        count, position = decode_varint(data, position + 1)
    else:
        position += 1
    if count > len(data) - position:
        raise ValueError(
            f"a list of {count} elements does not fit the remaining {len(data) - position} bytes"
        )
    return count, kind, position


def _skip_value(data: BytesLike, position: int, kind: int) -> int:  # noqa: C901 - a switch
    # the most frequent kinds are first, because most of the time of a decoder is spent here
    if kind in (I64, I32, I16):
        while data[position] >= 0x80:
            position += 1
        return position + 1
    if kind == BINARY:
        length = data[position]
        if length < 0x80:
            return position + 1 + length
        length, position = decode_varint(data, position)
        return position + length
    if kind == STRUCT:
        return skip_struct(data, position)
    if kind in (LIST, _SET):
        count, item, position = decode_list_header(data, position)
        if item in (I64, I32, I16):
            return _skip_numbers(data, position, count)
        for _ in range(count):
            position = _skip_value(data, position, item)
        return position
    if kind in (_TRUE, FALSE, _BYTE):
        return position + 1
    if kind == _DOUBLE:
        return position + 8
    raise ValueError(f"a value has the unknown Thrift type {kind}")


def _skip_numbers(data: BytesLike, position: int, count: int) -> int:
    for _ in range(count):
        while data[position] >= 0x80:
            position += 1
        position += 1
    return position


def skip_struct(data: BytesLike, position: int) -> int:
    """Return the end of the struct at ``position``."""
    while head := data[position]:
        position += 1
        if head < _SHORT_FORM:
            position = decode_varint(data, position)[1]
        kind = head & 0x0F
        if kind == BINARY and data[position] < 0x80:
            position += 1 + data[position]
        elif kind in (I64, I32):
            while data[position] >= 0x80:
                position += 1
            position += 1
        elif kind > FALSE:
            position = _skip_value(data, position, kind)
    return position + 1


def encode_integer(value: int) -> bytes:
    """Encode a signed number; Avro has the same encoding."""
    return encode_varint(value << 1 ^ value >> 63)


def encode_text(text: str) -> bytes:
    """Encode a text."""
    data = text.encode()
    return encode_varint(len(data)) + data


def replace_integers(
    data: bytes, part: tuple[int, int], numbers: Iterable[tuple[IntegerSpan, int]]
) -> bytes:
    """Return a part of some bytes in which numbers, in ascending order, have other values."""
    start, end = part
    pieces = []
    for (_, first, last), value in numbers:
        pieces.append(data[start:first])
        pieces.append(encode_integer(value))
        start = last
    pieces.append(data[start:end])
    return b"".join(pieces)


def encode_list(values: Sequence[bytes], kind: int = STRUCT) -> bytes:
    """Encode a list of encoded values of one kind."""
    count = len(values)
    if count < _LONG_FORM:
        return bytes((count << 4 | kind,)) + b"".join(values)
    return bytes((_LONG_FORM << 4 | kind,)) + encode_varint(count) + b"".join(values)


def encode_struct(fields: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Encode a struct of fields by number, with the kind and bytes of each.

    Gaps between field numbers must be below 16.
    """
    return encode_fields(fields) + STRUCT_END


def encode_fields(fields: Mapping[int, tuple[int, bytes]], last: int = 0) -> bytes:
    """Encode fields of a struct that follow the field number ``last``, without the struct's end."""
    parts = []
    for number in sorted(fields):
        kind, value = fields[number]
        parts.append(bytes((number - last << 4 | kind,)) + value)
        last = number
    return b"".join(parts)
