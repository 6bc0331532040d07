"""Metadata of ORC files that pyarrow does not expose: stripes, time zones and streams."""

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from paimon_orch.files.parquet.thrift_compact import decode_varint

_CODECS = ("none", "zlib", "snappy", "lzo", "lz4_raw", "zstd")
_DEFAULT_BLOCK_SIZE = 1 << 18
_MAP_TYPE = 11
_PRESENT_STREAM = 0


@dataclass(frozen=True, slots=True)
class OrcStripe:
    """The place of one stripe of a file; sizes are in bytes."""

    rows: int
    offset: int
    index_size: int
    data_size: int
    footer_size: int

    @property
    def size(self) -> int:
        """Return the size with index and footer."""
        return self.index_size + self.data_size + self.footer_size


@dataclass(frozen=True, slots=True)
class StripeFooter:
    """What the footer of a stripe says."""

    zone: str
    """The time zone of the writer; it may be empty."""

    nullable_columns: frozenset[int]
    """The ids of the columns with nulls."""


class OrcTail:
    """The tail of an ORC file: its footer and its postscript."""

    def __init__(self, data: bytes) -> None:
        (self._postscript,) = _decode_field(data, 1)
        (self._footer,) = _decode_field(data, 2)

    @cached_property
    def stripes(self) -> list[OrcStripe]:
        """The stripes in the order of their rows."""
        return [
            OrcStripe(*(sum(_decode_field(stripe, number)) for number in (5, 1, 2, 3, 4)))
            for stripe in _decode_field(self._footer, 3)
        ]

    def find_map_keys(self, names: Collection[str]) -> set[int]:
        """Return the ids of the key columns of all maps in columns with these names."""
        types = _decode_field(self._footer, 4)
        children = [list(_decode_numbers(_decode_field(kind, 2))) for kind in types]
        fields = [name.decode(errors="replace") for name in _decode_field(types[0], 3)]
        pending = [child for name, child in zip(fields, children[0], strict=True) if name in names]
        keys = set[int]()
        while pending:
            column = pending.pop()
            pending += children[column]
            if sum(_decode_field(types[column], 1)) == _MAP_TYPE:
                keys.add(children[column][0])
        return keys

    def read_footer(self, source: Any, stripe: OrcStripe) -> StripeFooter:
        """Read the footer of a stripe from the open file."""
        codec = _CODECS[sum(_decode_field(self._postscript, 2))]
        block_size = sum(_decode_field(self._postscript, 3)) or _DEFAULT_BLOCK_SIZE
        source.seek(stripe.offset + stripe.index_size + stripe.data_size)
        message = b"".join(_decompress(source.read(stripe.footer_size), codec, block_size))
        streams = _decode_field(message, 1)
        return StripeFooter(
            b"".join(_decode_field(message, 3)).decode(),
            frozenset(
                sum(_decode_field(stream, 2))
                for stream in streams
                if sum(_decode_field(stream, 1)) == _PRESENT_STREAM
            ),
        )


def _decode_field(message: Any, number: int) -> list[Any]:
    """Return the values of one field of a protobuf message that has only numbers and bytes."""
    values, position = [], 0
    while position < len(message):
        key, position = decode_varint(message, position)
        if not key:  # padding after the message
            break
        value, position = decode_varint(message, position)
        if key & 7:
            value, position = message[position : position + value], position + value
        if key >> 3 == number:
            values.append(value)
    return values


def _decode_numbers(values: list[Any]) -> Iterator[int]:
    """Yield the numbers of a repeated field, which may be packed."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        position = 0
        while position < len(value):
            number, position = decode_varint(value, position)
            yield number


def _decompress(data: bytes, codec: str, block_size: int) -> Iterator[bytes]:
    """Yield the blocks of a compressed message, the last one with padding."""
    if codec == "none":
        yield data
        return
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + 3], "little")
        start, end = position + 3, position + 3 + (header >> 1)
        block, position = data[start:end], end
        if header & 1:
            yield block
        elif codec == "zlib":
            yield zlib.decompress(block, -zlib.MAX_WBITS)
        elif codec == "zstd":
            yield pa.input_stream(pa.BufferReader(block), compression="zstd").read()
        else:
            yield pa.decompress(block, decompressed_size=block_size, codec=codec, asbytes=True)
