"""Parts that btree and bitmap files share: blocks with checksums, varints and 64-bit bitmaps.

See docs/format/global-index-files.md#blocks.
"""

from struct import pack, unpack, unpack_from
from zlib import crc32

import numpy as np
import pyarrow as pa

from paimon_orch.decode_limits import DecodeBudget
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Int64Array, Positions
from paimon_orch.format.bytes.roaring import (
    deserialize_bitmap,
    read_serialized_size,
    serialize_positions,
)
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.global_index.byte_strings import join_binary

MAX_ROWS = 1 << 32
"""The number of rows of a file whose positions fit one 32-bit bitmap."""
_NOT_COMPRESSED, _ZSTD = b"\0", b"\1"
_BLOCK_TRAILER_BYTES = 5
_MAX_VARINT_BYTES = 9
_BYTES_PER_BLOCK_BYTE = 64  # an entry of a few bytes becomes objects or several numbers of 8 bytes
_BYTES_PER_POSITION = 16
_BITMAP_64 = pack("<qi", 1, 0)  # one 32-bit bitmap, with high bits 0


def encode_bitmap64(positions: Int64Array) -> bytes:
    """Return a portable 64-bit bitmap of positions below 2^32."""
    if not len(positions):
        return bytes(8)
    return _BITMAP_64 + serialize_positions(np.sort(positions))


def prepend_bitmap64_header(bitmaps: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return 64-bit bitmaps of 32-bit bitmaps."""
    return join_binary(pa.scalar(_BITMAP_64, pa.large_binary()), bitmaps)


def append_block(file: bytearray, block: bytes) -> tuple[int, int]:
    """Append a block with its compression and checksum; return its offset and length."""
    offset = len(file)
    file += block + _NOT_COMPRESSED + pack("<I", crc32(block + _NOT_COMPRESSED))
    return offset, len(block)


def read_block(source: ByteSource, offset: int, length: int, budget: DecodeBudget) -> bytes:
    """Return the content of a block. Raises ``ValueError`` if it does not match its checksum.

    ``budget`` is that of all blocks and bitmaps of the file. Raises :class:`UnsupportedError` for a
    compression other than zstd.
    """
    data = source.bytes(offset, length + _BLOCK_TRAILER_BYTES)
    block, compression = data[:length], data[length : length + 1]
    if unpack_from("<I", data, length + 1) != (crc32(data[: length + 1]),):
        raise ValueError(f"the block at {offset} does not match its checksum")
    if compression == _NOT_COMPRESSED:
        budget.spend(_BYTES_PER_BLOCK_BYTE * length, f"a block has {length} bytes")
        return block
    if compression != _ZSTD:
        raise UnsupportedError(
            f"index blocks with compression {compression[0]} are not supported, only zstd"
        )
    size, start = read_varint(block, 0)
    content = f"a block of {length} bytes declares {size} bytes"
    budget.spend(_BYTES_PER_BLOCK_BYTE * size, content)
    return bytes(pa.decompress(block[start:], size, codec="zstd", asbytes=True))


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it. Raises ``LookupError`` at the end of the data."""
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = data[position + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError("a number has more than 63 bits")


def decode_bitmap64(data: bytes, limit: int, budget: DecodeBudget) -> Positions:
    """Return the ascending positions of a 64-bit bitmap.

    ``budget`` is that of all blocks and bitmaps of the file. Raises ``ValueError`` for positions of
    ``limit`` and above.
    """
    (count,) = unpack("<q", data[:8])
    parts, position, next_word = list[Positions](), 8, 0
    for _ in range(count):
        (word,) = unpack_from("<I", data, position)
        size = read_serialized_size(data, position + 4)
        part = data[position + 4 : position + 4 + size]
        first = word << 32
        if word < next_word or first >= limit:
            raise ValueError(f"a bitmap has the high bits {word} for {limit} rows")
        bitmap = deserialize_bitmap(part, min(limit - first, MAX_ROWS))
        budget.spend(_BYTES_PER_POSITION * len(bitmap), f"a bitmap has {len(bitmap)} rows or more")
        parts.append(np.asarray(bitmap.to_array(), np.int64) + first)
        position, next_word = position + 4 + size, word + 1
    if position != len(data):
        raise ValueError(f"a bitmap has {len(data) - position} more bytes than its content")
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
