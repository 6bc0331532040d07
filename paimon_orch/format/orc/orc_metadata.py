"""Metadata of ORC files that pyarrow does not expose: stripes, time zones and streams."""

import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from paimon_orch.decode_limits import (
    build_limit_error,
    check_batch_bytes,
    check_read,
    get_allowed_bytes,
    get_max_decompressed_bytes,
)
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.bytes.varint import decode_varint, encode_varint

_CODECS = ("none", "zlib", "snappy", "lzo", "lz4_raw", "zstd")
_DEFAULT_BLOCK_SIZE = 1 << 18
_MAX_BLOCK_SIZE = 1 << 23  # the length of a block has 23 bits
ORC_LIST, ORC_MAP, ORC_DECIMAL, _UNION = 10, 11, 14, 13  # kinds of types
_MAX_PRECISION = 38
_FIRST_READ_BYTES = 16 << 10
_BYTES_PER_METADATA_BYTE = 100  # a type of two bytes becomes an object
_BYTES_PER_TYPE = 16 << 10  # when the file is opened
_MAX_SCHEMA_BYTES = 1 << 20  # reading 400,000 columns took 17 seconds, more than twice 200,000
_TIMESTAMP_STATISTICS = 9
_BYTES = 2  # a wire type


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


class OrcStream(NamedTuple):
    """The place of one stream of a column."""

    kind: int
    column: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class StripeFooter:
    """What the footer of a stripe says."""

    zone: str
    """The time zone of the writer; it may be empty."""

    streams: tuple["OrcStream", ...]
    encodings: tuple[tuple[int, int], ...]
    """The encoding and the size of the dictionary of each column."""

    message: bytes
    """The encoded footer."""


class OrcTail:
    """The tail of an ORC file: its footer and its postscript."""

    def __init__(self, data: bytes) -> None:
        (self._postscript,) = _decode_messages(data, 1)
        (self._footer,) = _decode_messages(data, 2)
        self._postscript_size = _decode_number(data, 4)

    @cached_property
    def stripes(self) -> list[OrcStripe]:
        """The stripes in the order of their rows."""
        return [
            OrcStripe(*(sum(_decode_numbers(stripe, number)) for number in (5, 1, 2, 3, 4)))
            for stripe in _decode_messages(self._footer, 3)
        ]

    def check_types(self) -> None:
        """Raise ``ValueError`` for types with which pyarrow would end the process, or not end."""
        for column, encoded in enumerate(_decode_messages(self._footer, 4)):
            kind, precision, scale = (_decode_number(encoded, number) for number in (1, 5, 6))
            if kind == _UNION:
                raise ValueError(f"column {column} is a union, a type that Paimon does not have")
            if kind == ORC_DECIMAL and max(precision, scale) > _MAX_PRECISION:
                raise ValueError(
                    f"the precision {precision} or the scale {scale} of column {column} is above 38"
                )

    def find_columns(self, names: Collection[str]) -> dict[int, int]:
        """Return the kinds of types by column id: of columns with these names and all below."""
        types = _decode_messages(self._footer, 4)
        children = [_decode_numbers(kind, 2) for kind in types]
        fields = [name.decode(errors="replace") for name in _decode_messages(types[0], 3)]
        pending = [child for name, child in zip(fields, children[0], strict=True) if name in names]
        kinds = dict[int, int]()
        while pending:
            column = pending.pop()
            if column in kinds:
                raise ValueError("the types in the footer are not a tree")
            if any(child <= column for child in children[column]):
                raise ValueError(f"the ORC type {column} contains itself")
            pending += children[column]
            kinds[column] = _decode_number(types[column], 1)
        return kinds

    def find_items(self, columns: Mapping[int, int]) -> dict[int, list[int]]:
        """Return the ids of the elements of lists, or of the keys and values of maps, by column."""
        types = _decode_messages(self._footer, 4)
        return {
            column: _decode_numbers(types[column], 2)
            for column, kind in columns.items()
            if kind in (ORC_LIST, ORC_MAP)
        }

    def read_value_counts(self, source: Any) -> dict[int, list[int | None]]:
        """Return how many values of each column are not null, by the offset of the stripe.

        A count that the file does not have is None; a file may have none.
        """
        footer_size, size = (_decode_number(self._postscript, number) for number in (1, 5))
        end = source.seek(0, os.SEEK_END) - 1 - self._postscript_size - footer_size
        source.seek(end - size)
        message = _decompress_metadata(_read_part(source, size), self._codec, self._block_size)
        counts = dict[int, list[int | None]]()
        for stripe, statistics in zip(self.stripes, _decode_messages(message, 1), strict=False):
            columns = _decode_messages(statistics, 1)
            stored = (_decode_numbers(column, 1) for column in columns)
            counts[stripe.offset] = [numbers[0] if numbers else None for numbers in stored]
        return counts

    def find_time_bounds(self) -> dict[str, tuple[int, int]]:
        """Return the lowest and the highest time of columns, in milliseconds since 1970 in UTC.

        Has only the columns with such statistics that are not nested.
        """
        root = _decode_messages(self._footer, 4)[0]
        statistics = _decode_messages(self._footer, 7)
        bounds = {}
        for name, column in zip(_decode_messages(root, 3), _decode_numbers(root, 2), strict=True):
            for times in _decode_messages(statistics[column], _TIMESTAMP_STATISTICS):
                encoded = [*_decode_numbers(times, 3), *_decode_numbers(times, 4)]
                if len(encoded) == 2:
                    low, high = (number >> 1 ^ -(number & 1) for number in encoded)
                    bounds[name.decode(errors="replace")] = low, high
        return bounds

    def read_footer(self, source: Any, stripe: OrcStripe) -> StripeFooter:
        """Read the footer of a stripe from the open file."""
        source.seek(stripe.offset + stripe.index_size + stripe.data_size)
        data = _read_part(source, stripe.footer_size)
        message = _decompress_metadata(data, self._codec, self._block_size)
        streams, offset = list[OrcStream](), stripe.offset
        for encoded in _decode_messages(message, 1):
            kind, column, size = (_decode_number(encoded, number) for number in (1, 2, 3))
            streams.append(OrcStream(kind, column, offset, size))
            offset += size
        encodings = tuple(
            (_decode_number(encoded, 1), _decode_number(encoded, 2))
            for encoded in _decode_messages(message, 2)
        )
        zone = b"".join(_decode_messages(message, 3)).decode()
        return StripeFooter(zone, tuple(streams), encodings, message)

    def read_stream(self, source: Any, stream: OrcStream) -> bytes:
        """Read and decompress a stream from the open file."""
        source.seek(stream.offset)
        data, limit = _read_part(source, stream.size), get_max_decompressed_bytes(stream.size)
        return _decompress_limited(
            data, self._codec, self._block_size, limit, "a stream of the file is too large"
        )

    def may_have_large_blocks(self, streams: int, file_size: int) -> bool:
        """Return whether the blocks that a number of streams declare need too much memory."""
        limit = get_max_decompressed_bytes(file_size)
        return self._codec != "none" and streams * self._block_size > limit

    def check_blocks(self, source: Any, streams: Sequence[OrcStream], file_size: int) -> None:
        """Raise an error if streams that are read together need too much memory.

        A block of each of them is decompressed at the same time.
        """
        if not self.may_have_large_blocks(len(streams), file_size):
            return
        limit = get_max_decompressed_bytes(file_size)
        size = 0  # blocks can be smaller than declared
        for stream in streams:
            source.seek(stream.offset)
            blocks = _decompress(_read_part(source, stream.size), self._codec, self._block_size)
            size += max(map(len, blocks), default=0)
            if size > limit:
                content = f"the blocks of {len(streams)} streams have {size} bytes or more in sum"
                raise build_limit_error(content, limit, file_size)

    def replace_zones(self, footers: Sequence[StripeFooter], zone: str) -> list[range | bytes]:
        """Return the file with another zone in its stripes: ranges of this file, and new bytes."""
        parts, stripes = list[range | bytes](), list[bytes]()
        position = size = 0  # the ends of what was taken from this file, and of the new file
        messages = _decode_messages(self._footer, 3)
        for stripe, footer, message in zip(self.stripes, footers, messages, strict=True):
            end = stripe.offset + stripe.size - stripe.footer_size
            if not position <= stripe.offset <= end:
                raise ValueError("the stripes of the file overlap")
            changed = self._frame(_set_field(footer.message, 3, zone.encode()))
            offset = size + stripe.offset - position
            stripes.append(_set_field(_set_field(message, 1, offset), 4, len(changed)))
            parts += [range(position, end), changed]
            size += end - position + len(changed)
            position = end + stripe.footer_size
        file_footer = self._frame(_set_field(self._footer, 3, *stripes))
        # without the statistics of stripes, which no reader requires
        postscript = _set_field(_set_field(self._postscript, 1, len(file_footer)), 5, 0)
        return [*parts, file_footer + postscript + bytes([len(postscript)])]

    @property
    def _codec(self) -> str:
        return _find_codec(self._postscript)

    @property
    def _block_size(self) -> int:
        size = _decode_number(self._postscript, 3) or _DEFAULT_BLOCK_SIZE
        if size > _MAX_BLOCK_SIZE:
            raise ValueError(f"the compressed blocks of an ORC file cannot have {size} bytes")
        return size

    def _frame(self, message: bytes) -> bytes:
        """Return a message in blocks that are not compressed."""
        if self._codec == "none":
            return message
        blocks = (
            message[start : start + self._block_size]
            for start in range(0, len(message), self._block_size)
        )
        return b"".join((2 * len(block) + 1).to_bytes(3, "little") + block for block in blocks)


def check_postscript(source: Any) -> None:
    """Raise ``ValueError`` for sizes with which pyarrow would end the process on opening a file."""
    size = source.seek(0, os.SEEK_END)
    # as many bytes as pyarrow reads first, so that remote files are read once
    source.seek(max(size - _FIRST_READ_BYTES, 0))
    end = source.read(_FIRST_READ_BYTES)
    source.seek(0)
    length = end[-1] if end else 0
    postscript = end[-1 - length : -1]
    footer, block, metadata = (_decode_number(postscript, number) for number in (1, 3, 5))
    if block > _MAX_BLOCK_SIZE:
        raise ValueError(f"the compressed blocks of an ORC file cannot have {block} bytes")
    if footer + metadata + length >= size:
        raise ValueError(f"a footer of {footer + metadata} bytes is larger than the file")
    source.seek(size - 1 - length - footer)
    data = _read_part(source, footer)
    source.seek(0)
    message = _decompress_metadata(data, _find_codec(postscript), block or _DEFAULT_BLOCK_SIZE)
    types = len(_decode_messages(message, 4))
    stored = min(size, _MAX_SCHEMA_BYTES)
    check_batch_bytes(types * _BYTES_PER_TYPE, stored, f"an ORC file has {types} columns")


def _read_part(source: Any, size: int) -> bytes:
    """Return the next bytes of a file, whose number the file declares."""
    check_read(size, f"a part of an ORC file has {size} bytes")
    data: bytes = source.read(size)
    return data


def _find_codec(postscript: bytes) -> str:
    number = _decode_number(postscript, 2)
    if number >= len(_CODECS):
        raise ValueError(f"the compression {number} of an ORC file is not known")
    return _CODECS[number]


def _decompress_metadata(data: bytes, codec: str, block_size: int) -> bytes:
    """Return a decompressed message, of which pyarrow will decode each field to an object."""
    limit = get_allowed_bytes(len(data)) // _BYTES_PER_METADATA_BYTE
    content = "the metadata of an ORC file is too large"
    return _decompress_limited(data, codec, block_size, limit, content)


def _decompress_limited(
    data: bytes, codec: str, block_size: int, limit: int, content: str
) -> bytes:
    """Return a decompressed message of at most ``limit`` bytes."""
    blocks, size = list[bytes](), 0
    for block in _decompress(data, codec, block_size):
        blocks.append(block)
        size += len(block)
        if size > limit:
            raise build_limit_error(content, limit, len(data))
    return b"".join(blocks)


def _iterate_fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield number, value and encoding of the fields of a protobuf message.

    The messages of ORC have only numbers and bytes. Raises ``ValueError`` for others.
    """
    position = 0
    while position < len(message):
        start = position
        key, position = decode_varint(message, position)
        if not key:  # padding after the message
            break
        value: int | bytes
        value, position = decode_varint(message, position)
        if key & 7 == _BYTES:
            position, value = position + value, message[position : position + value]
        elif key & 7:
            raise ValueError(f"a field in the metadata has the wire type {key & 7}")
        if position > len(message):
            raise ValueError("a field in the metadata is longer than its message")
        yield key >> 3, value, message[start:position]


def _decode_messages(message: bytes, number: int) -> list[bytes]:
    """Return the values of a field of bytes, texts or messages."""
    values = list[bytes]()
    for field, value, _ in _iterate_fields(message):
        if field == number:
            if isinstance(value, int):
                raise ValueError(f"the field {number} in the metadata is a number")
            values.append(value)
    return values


def _decode_numbers(message: bytes, number: int) -> list[int]:
    """Return the values of a field of numbers, which may be packed."""
    values = list[int]()
    for field, value, _ in _iterate_fields(message):
        if field != number:
            continue
        if isinstance(value, int):
            values.append(value)
            continue
        position = 0
        while position < len(value):
            item, position = decode_varint(value, position)
            values.append(item)
    return values


def _decode_number(message: bytes, number: int) -> int:
    """Return the value of a field of one number; 0 if it is missing.

    Raises ``ValueError`` for several values and large ones, of which decoders use parts.
    """
    values = _decode_numbers(message, number)
    if len(values) > 1 or any(value >> 63 for value in values):
        raise ValueError(f"the field {number} in the metadata has the values {values[:3]}")
    return sum(values)


def _set_field(message: bytes, number: int, *values: int | bytes) -> bytes:
    """Return a message with other values of a field."""
    parts = [encoded for field, _, encoded in _iterate_fields(message) if field != number]
    for value in values:
        if isinstance(value, int):
            parts += [encode_varint(number << 3), encode_varint(value)]
        else:
            parts += [encode_varint(number << 3 | _BYTES), encode_varint(len(value)), value]
    return b"".join(parts)


def _decompress(data: bytes, codec: str, block_size: int) -> Iterator[bytes]:
    """Yield the blocks of a compressed message, the last one with padding."""
    if codec == "none":
        yield data
        return
    if codec == "lzo":
        raise UnsupportedError(
            "this ORC file is compressed with LZO; rewrite it with Java and another "
            "'file.compression', such as zstd"
        )
    position, limit = 0, block_size + 1
    while position < len(data):
        header = int.from_bytes(data[position : position + 3], "little")
        start, end = position + 3, position + 3 + (header >> 1)
        block, position = data[start:end], end
        if header & 1:
            yield block
        elif codec == "zlib":
            yield _check_size(zlib.decompressobj(-zlib.MAX_WBITS).decompress(block, limit), limit)
        elif codec == "zstd":
            stream = pa.input_stream(pa.BufferReader(block), compression="zstd")
            yield _check_size(stream.read(limit), limit)
        else:
            size = decode_varint(block, 0)[0] if codec == "snappy" else _find_lz4_size(block)
            if size > block_size:
                raise ValueError(f"a block of {size} bytes is larger than {block_size} bytes")
            yield pa.decompress(block, decompressed_size=size, codec=codec, asbytes=True)


def _find_lz4_size(block: bytes) -> int:
    """Return the decompressed size, which LZ4 blocks do not store."""

    def read_length(length: int, position: int) -> tuple[int, int]:
        more = length == 15
        while more:
            length, more = length + block[position], block[position] == 255
            position += 1
        return length, position

    position = size = 0
    while position < len(block):
        token = block[position]
        literals, position = read_length(token >> 4, position + 1)
        position += literals
        size += literals
        if position < len(block):  # the last sequence has only literals
            match_length, position = read_length(token & 15, position + 2)
            size += match_length + 4
    return size


def _check_size(block: bytes, limit: int) -> bytes:
    if len(block) >= limit:
        raise ValueError(f"a block has {limit} decompressed bytes or more")
    return block
