"""Writes bitmap index files: a bitmap for each value, and a dictionary of the values.

See docs/format/global-index-files.md#bitmap.
"""

from collections.abc import Iterator
from struct import pack

import numpy as np

from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bytes.roaring import serialize_groups
from paimon_orch.format.global_index.byte_strings import (
    build_binary_array,
    encode_varint_bytes,
    encode_varints,
    get_offsets,
    join_binary,
)
from paimon_orch.format.global_index.index_blocks import (
    append_block,
    encode_bitmap64,
    prepend_bitmap64_header,
)
from paimon_orch.format.global_index.sorted_column import SortedColumn

DICTIONARY_BLOCK_BYTES = 16 << 10
BITMAP_MAGIC, BITMAP_VERSION = 0x42474958, 1


def encode_bitmaps(column: SortedColumn, block_bytes: int = DICTIONARY_BLOCK_BYTES) -> bytes:
    """Return a bitmap index file."""
    file = bytearray()
    handles, first_keys = list[tuple[int, int]](), list[int]()
    if len(column.keys):
        bodies = build_binary_array(*serialize_groups(column.positions, column.starts))
        bitmaps = prepend_bitmap64_header(bodies)
        offsets = get_offsets(bitmaps)
        file += bytes(bitmaps.buffers()[2])[: offsets[-1]]
        entries = join_binary(
            encode_varints(np.diff(get_offsets(column.keys))),
            column.keys,
            encode_varints(offsets[:-1]),
            encode_varints(np.diff(offsets)),
        )
        data, ends = memoryview(entries.buffers()[2]), get_offsets(entries)
        for start, end in _split_blocks(ends, block_bytes):
            block = _encode_count(end - start) + bytes(data[ends[start] : ends[end]])
            handles.append(append_block(file, block))
            first_keys.append(start)
    ranges = list[tuple[int, int]]()
    for positions in (column.null_positions, column.positions):
        bitmap = encode_bitmap64(positions)
        ranges.append((len(file), len(bitmap)))
        file += bitmap
    index = _encode_count(len(handles))
    for key, (offset, length) in zip(first_keys, handles, strict=True):
        first = column.keys[key].as_py()
        index += _encode_count(len(first)) + first + _encode_count(offset) + _encode_count(length)
    ranges.append(append_block(file, index))
    footer = b"".join(pack(">qi", *place) for place in ranges)
    return bytes(file + footer + pack(">iii", len(column.keys), BITMAP_VERSION, BITMAP_MAGIC))


def _encode_count(number: int) -> bytes:
    return encode_varint_bytes(np.array([number]))[0].tobytes()


def _split_blocks(ends: Int64Array, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the entries of each block; its entries and their count fit ``block_bytes``."""
    start, count = 0, len(ends) - 1
    while start < count:
        end = start + 1
        for size_of_count in range(1, 6):
            limit = ends[start] + block_bytes - size_of_count
            end = max(int(np.searchsorted(ends, limit, side="right")) - 1, start + 1)
            if len(_encode_count(end - start)) <= size_of_count:
                break
        yield start, end
        start = end
