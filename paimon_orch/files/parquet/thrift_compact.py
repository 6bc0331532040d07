"""Thrift's compact protocol, as far as the structs of a Parquet file need it.

Fields are found where they lie, and new structs are made of bytes, so that what is not understood is kept. No more than
the bytes given are looked at, whatever they say: an ``IndexError`` or a ``ValueError`` tells that they are damaged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

I32, I64, LIST, STRUCT = 5, 6, 9, 12
_TRUE, _FALSE, _BYTE, _I16, _DOUBLE, _BINARY, _SET = 1, 2, 3, 4, 7, 8, 10
_LONGEST = 10  # bytes of a number of 64 bits
Data = bytes | bytearray
_MANY = 15  # as a count or a distance: it does not fit into four bits


class Value(NamedTuple):
    """Where the value of a field lies, and of what kind it is."""

    kind: int
    start: int
    end: int


def varint(data: Data, at: int) -> tuple[int, int]:
    """Return a number without sign, and where it ends."""
    value = 0
    for shift in range(0, 7 * _LONGEST, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is longer than 64 bits")


def integer(data: Data, at: int) -> int:
    """Return a number with sign."""
    value, _ = varint(data, at)
    return value >> 1 ^ -(value & 1)


def fields_of(data: Data, at: int = 0) -> tuple[dict[int, Value], int]:
    """Return the fields of a struct by their numbers, and where the struct ends."""
    fields, number = {}, 0
    while data[at]:
        delta, kind = data[at] >> 4, data[at] & 0x0F
        at += 1
        if delta:
            number += delta
        else:
            number, at = integer(data, at), varint(data, at)[1]
        end = at if kind in (_TRUE, _FALSE) else _skipped(data, at, kind)  # a boolean is its kind
        fields[number] = Value(kind, at, end)
        at = end
    return fields, at + 1


def elements(data: Data, at: int) -> Iterator[Value]:
    """Yield the elements of a list."""
    count, kind, at = list_head(data, at)
    for _ in range(count):
        end = _skipped(data, at, kind)
        yield Value(kind, at, end)
        at = end


def list_head(data: Data, at: int) -> tuple[int, int, int]:
    """Return how many elements a list has, their kind, and where the first begins."""
    count, kind = data[at] >> 4, data[at] & 0x0F
    if count == _MANY:
        count, at = varint(data, at + 1)
    else:
        at += 1
    if count > len(data) - at:
        raise ValueError(f"a list of {count} elements is longer than its bytes")
    return count, kind, at


def _skipped(data: Data, at: int, kind: int) -> int:
    """Return where a value of a kind ends."""
    if kind in (I64, I32, _I16):
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if kind in (_TRUE, _FALSE, _BYTE):
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = varint(data, at)
        return at + length
    if kind in (LIST, _SET):
        count, item, at = list_head(data, at)
        for _ in range(count):
            at = _skipped(data, at, item)
        return at
    if kind == STRUCT:
        return _struct_end(data, at)
    raise ValueError(f"a value of kind {kind} is not understood")


def _struct_end(data: Data, at: int) -> int:
    while head := data[at]:
        at += 1
        if head < 0x10:
            at = varint(data, at)[1]
        if (kind := head & 0x0F) > _FALSE:
            at = _skipped(data, at, kind)
    return at + 1


def number(value: int) -> bytes:
    """Encode a number with sign, as Avro does too."""
    return _varint_bytes(value << 1 ^ value >> 63)


def list_of(structs: Sequence[bytes]) -> bytes:
    """Encode a list of structs."""
    return bytes([_MANY << 4 | STRUCT]) + _varint_bytes(len(structs)) + b"".join(structs)


def struct_of(fields: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Encode a struct of values by their numbers (of which none is 15 above the last), each behind its kind."""
    parts, last = [], 0
    for at in sorted(fields):
        kind, value = fields[at]
        parts.append(bytes([at - last << 4 | kind]) + value)
        last = at
    return b"".join([*parts, b"\0"])


def _varint_bytes(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
