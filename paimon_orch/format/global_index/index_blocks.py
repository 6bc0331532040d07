"""Parts that btree and bitmap files share: blocks with checksums, and 64-bit bitmaps.

See docs/format/global-index-files.md#blocks.
"""

from struct import pack
from zlib import crc32

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bytes.roaring import serialize_positions
from paimon_orch.format.global_index.byte_strings import join_binary

MAX_ROWS = 1 << 32
"""The number of rows of a file whose positions fit one 32-bit bitmap."""
_NOT_COMPRESSED = b"\0"
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
