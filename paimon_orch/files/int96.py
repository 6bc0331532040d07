"""Nanosecond timestamps in Parquet as Java has them: INT96, beside other timestamps as INT64 (format section 8.4).

pyarrow writes either all timestamps of a file as INT96 or none, and Java wants each by its precision. So the values are
written as FIXED_LEN_BYTE_ARRAY(12), whose pages are those of INT96 byte for byte, and the footer is changed to say INT96.
"""

import io
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

STORED = pa.binary(12)
_PARTS = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_NANOS_PER_DAY = 86_400 * 10**9
_JULIAN_EPOCH = 2_440_588

_FIXED_LEN_BYTE_ARRAY, _INT96 = 7, 3
_TAIL = 8  # the length of the footer, and the magic


def is_nanoseconds(kind: pa.DataType) -> bool:
    """Tell whether a type is stored as INT96."""
    return isinstance(kind, pa.TimestampType) and kind.unit == "ns"


def has_nanoseconds(kind: pa.DataType) -> bool:
    """Tell whether a type is or holds one that is stored as INT96."""
    return is_nanoseconds(kind) or any(has_nanoseconds(field.type) for field in children_of(kind))


def children_of(kind: pa.DataType) -> "list[pa.Field[pa.DataType]]":
    """Return the fields of a nested type; key and value of a map."""
    if isinstance(kind, pa.MapType):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that is handed to pyarrow: nanoseconds as twelve bytes, nested ones too.

    Elements of lists and values of maps are optional, NOT NULL ones too: Java 0.9 loses values of required ones.
    """
    if is_nanoseconds(kind):
        return STORED
    children = [field.with_type(stored_type(field.type)) for field in children_of(kind)]
    if isinstance(kind, pa.MapType):
        return pa.map_(children[0], children[1].with_nullable(True))
    if isinstance(kind, pa.ListType):
        return pa.list_(children[0].with_nullable(True))
    return pa.struct(children) if isinstance(kind, pa.StructType) else kind


def stored(array: pa.Array) -> pa.Array:
    """Return nanosecond timestamps as the twelve bytes of INT96, days rounded down."""
    nanos = array.view(pa.int64()).fill_null(0).to_numpy()
    parts = np.empty(len(array), _PARTS)
    days = nanos // _NANOS_PER_DAY
    parts["nanos"], parts["day"] = nanos - days * _NANOS_PER_DAY, days + _JULIAN_EPOCH
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(STORED, len(array), [validity, pa.py_buffer(parts.tobytes())])


class FooterSink(io.RawIOBase):
    """Hands bytes on to a sink; from :meth:`hold` on it keeps them, until the footer was changed."""

    def __init__(self, sink: IO[bytes]) -> None:
        super().__init__()
        self._sink = sink
        self._held: bytearray | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | memoryview[int]") -> int:  # type: ignore[override]
        """Write or keep bytes."""
        if self._held is None:
            self._sink.write(data)
        else:
            self._held += data
        return len(data)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._sink.tell() + len(self._held or b"")

    def hold(self) -> None:
        """Keep what is written from now on: the end of the file."""
        self._held = bytearray()

    def release(self) -> None:
        """Change the footer that was kept, and write it."""
        assert self._held is not None
        length = int.from_bytes(self._held[-_TAIL:-4], "little")
        start = len(self._held) - _TAIL - length
        for at in _twelve_bytes(bytes(self._held[start:-_TAIL])):
            self._held[start + at] = _INT96 << 1
        self._sink.write(bytes(self._held))
        self._held = None


def _twelve_bytes(footer: bytes) -> Iterator[int]:
    """Yield where a footer tells the type of columns of twelve bytes that mean nothing else."""
    metadata, _ = _struct(footer, 0)
    leaves = []
    for at in _elements(footer, metadata[2]):
        element, _ = _struct(footer, at)
        if 1 in element:  # a column, not a group
            plain = 6 not in element and 10 not in element
            is_fixed = _integer(footer, element[1]) == _FIXED_LEN_BYTE_ARRAY
            leaves.append(plain and is_fixed and _integer(footer, element[2]) == STORED.byte_width)
            if leaves[-1]:
                yield element[1]
    for at in _elements(footer, metadata[4]):
        row_group, _ = _struct(footer, at)
        for leaf, chunk_at in zip(leaves, _elements(footer, row_group[1]), strict=True):
            if leaf:
                chunk, _ = _struct(footer, chunk_at)
                column, _ = _struct(footer, chunk[3])
                yield column[1]


# --- Thrift's compact protocol, as far as finding fields needs it


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _integer(data: bytes, at: int) -> int:
    value, _ = _varint(data, at)
    return value >> 1 ^ -(value & 1)


def _struct(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return where the value of each field of a struct begins, and where the struct ends."""
    fields, number = {}, 0
    while data[at]:
        delta, kind = data[at] >> 4, data[at] & 0x0F
        at += 1
        if delta:
            number += delta
        else:
            number, at = _integer(data, at), _varint(data, at)[1]
        fields[number] = at
        at = at if kind in (1, 2) else _skipped(data, at, kind)  # a boolean is its kind
    return fields, at + 1


def _skipped(data: bytes, at: int, kind: int) -> int:
    """Return where a value of a kind ends."""
    if kind in (1, 2, 3):
        return at + 1
    if kind in (4, 5, 6):
        return _varint(data, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return at + length
    if kind in (9, 10):
        count, item, at = _list_head(data, at)
        for _ in range(count):
            at = _skipped(data, at, item)
        return at
    if kind == 12:
        return _struct(data, at)[1]
    raise ValueError(f"a footer with a value of kind {kind} is not understood")


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    count, kind = data[at] >> 4, data[at] & 0x0F
    if count == 15:
        count, at = _varint(data, at + 1)
        return count, kind, at
    return count, kind, at + 1


def _elements(data: bytes, at: int) -> Iterator[int]:
    """Yield where each element of a list begins."""
    count, kind, at = _list_head(data, at)
    for _ in range(count):
        yield at
        at = _skipped(data, at, kind)
