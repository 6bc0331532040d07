"""Writes btree index files: sorted keys in blocks, each with the positions of its rows.

See docs/format/global-index-files.md#btree.
"""

from collections.abc import Iterator
from struct import pack
from zlib import crc32

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.global_index.byte_strings import (
    build_binary_array,
    encode_varint_bytes,
    encode_varints,
    get_offsets,
    join_binary,
)
from paimon_orch.format.global_index.index_blocks import append_block, encode_bitmap64
from paimon_orch.format.global_index.sorted_column import SortedColumn

BLOCK_BYTES = 64 << 10
BTREE_MAGIC, BTREE_VERSION = 0x50425449, 1
_ALIGNED, _UNALIGNED = b"\0", b"\1"
_BLOCK_END_BYTES, _POSITION_BYTES = 5, 4


def encode_btree(column: SortedColumn, block_bytes: int = BLOCK_BYTES) -> bytes:
    """Return a btree index file."""
    file = bytearray()
    handles, last_keys = list[tuple[int, int]](), list[int]()
    entries = _encode_entries(column)
    offsets = get_offsets(entries)
    data = memoryview(entries.buffers()[2] or b"")
    for start, end, is_aligned in _split_blocks(offsets, block_bytes):
        block = bytes(data[offsets[start] : offsets[end]])
        block += _encode_block_end(offsets[start : end + 1], is_aligned=is_aligned)
        handles.append(append_block(file, block))
        last_keys.append(end - 1)
    null_handle = (0, 0)
    if len(column.null_positions):
        nulls = encode_bitmap64(column.null_positions)
        null_handle = (len(file), len(nulls))
        file += nulls + pack("<I", crc32(nulls))
    index_handle = append_block(file, _encode_index_block(column.keys, last_keys, handles))
    footer = pack("<qiq", 0, 0, 0)  # no Bloom filter
    footer += pack("<qi", *index_handle) + pack("<qi", *null_handle)
    return bytes(file + footer + pack("<ii", BTREE_VERSION, BTREE_MAGIC))


def _encode_entries(column: SortedColumn) -> pa.LargeBinaryArray:
    """Return an entry for each key: the key and the list of its positions, each with its length."""
    count = len(column.keys)
    data, lengths = encode_varint_bytes(column.positions)
    row_bytes = np.add.reduceat(lengths, column.starts) if count else np.empty(0, np.int64)
    counts = encode_varints(np.diff(column.starts, append=len(column.positions)))
    value_bytes = row_bytes + np.diff(get_offsets(counts))
    return join_binary(
        encode_varints(np.diff(get_offsets(column.keys))),
        column.keys,
        encode_varints(value_bytes),
        counts,
        build_binary_array(data, row_bytes),
    )


def _encode_index_block(
    keys: pa.LargeBinaryArray, last_keys: list[int], handles: list[tuple[int, int]]
) -> bytes:
    """Return the last key of each block and where the block is."""
    chosen = keys.take(pa.array(last_keys, pa.int64()))
    places = np.array(handles, np.int64).reshape(-1, 2)
    values = join_binary(encode_varints(places[:, 0]), encode_varints(places[:, 1]))
    entries = join_binary(
        encode_varints(np.diff(get_offsets(chosen))),
        chosen,
        encode_varints(np.diff(get_offsets(values))),
        values,
    )
    offsets = get_offsets(entries)
    lengths = np.diff(offsets)
    is_aligned = len(lengths) > 0 and bool((lengths == lengths[0]).all())
    body = bytes(entries.buffers()[2] or b"")[: offsets[-1]]
    return body + _encode_block_end(offsets, is_aligned=is_aligned)


def _split_blocks(offsets: Int64Array, block_bytes: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the entries of each block, and whether all of them have the same length.

    A block ends with the entry that makes it longer than ``block_bytes``. Blocks of entries with
    different lengths have a position for each entry.
    """
    count = len(offsets) - 1
    lengths = np.diff(offsets)
    changes = np.flatnonzero(lengths[1:] != lengths[:-1]) + 1
    with_positions = offsets + _POSITION_BYTES * np.arange(count + 1)
    limit, start = block_bytes - _BLOCK_END_BYTES, 0
    while start < count:
        change = np.searchsorted(changes, start, side="right")
        other_length = int(changes[change]) if change < len(changes) else count
        end = int(np.searchsorted(offsets, offsets[start] + limit, side="right"))
        is_aligned = end <= other_length or other_length == count
        if not is_aligned:
            end = int(np.searchsorted(with_positions, with_positions[start] + limit, side="right"))
            end = max(end, other_length + 1)
        yield start, min(end, count), is_aligned
        start = end


def _encode_block_end(offsets: Int64Array, *, is_aligned: bool) -> bytes:
    if is_aligned:
        return pack("<i", offsets[1] - offsets[0]) + _ALIGNED
    positions: bytes = (offsets[:-1] - offsets[0]).astype("<i4").tobytes()
    return positions + pack("<i", len(offsets) - 1) + _UNALIGNED
