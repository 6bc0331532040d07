"""A reader of btree and bitmap index files, which follows the specification step by step."""

from __future__ import annotations

from struct import unpack, unpack_from
from zlib import crc32

from pyroaring import BitMap64

Content = dict[bytes | None, list[int]]
"""The positions of the rows of each key; None is the key of nulls."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position


def read_block(data: bytes, offset: int, length: int) -> bytes:
    """Return a block that is not compressed, after a check of its checksum."""
    block, kind = data[offset : offset + length], data[offset + length : offset + length + 1]
    assert kind == b"\0"
    assert unpack_from("<I", data, offset + length + 1) == (crc32(block + kind),)
    return block


def read_entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a block of a btree file."""
    if block[-1] == 0:
        [size] = unpack("<i", block[-5:-1])
        body = block[:-5]
        assert len(body) % size == 0
        starts = list(range(0, len(body), size))
    else:
        [count] = unpack("<i", block[-5:-1])
        body = block[: len(block) - 5 - 4 * count]
        starts = list(unpack(f"<{count}i", block[len(body) : -5]))
    entries = []
    ends = [*starts[1:], len(body)][: len(starts)]
    for start, end in zip(starts, ends, strict=True):
        length, position = read_varint(body, start)
        key = body[position : position + length]
        length, position = read_varint(body, position + length)
        assert position + length == end
        entries.append((key, body[position:end]))
    return entries


def read_btree(data: bytes) -> tuple[Content, int]:
    """Return the content of a btree file and the number of its blocks."""
    assert unpack("<ii", data[-8:]) == (1, 0x50425449)
    assert data[-52:-32] == bytes(20)
    index_offset, index_size, null_offset, null_size = unpack("<qiqi", data[-32:-8])
    content, blocks = Content(), 0
    for last_key, handle in read_entries(read_block(data, index_offset, index_size)):
        offset, position = read_varint(handle, 0)
        size, position = read_varint(handle, position)
        assert position == len(handle)
        entries = read_entries(read_block(data, offset, size))
        assert entries[-1][0] == last_key
        blocks += 1
        for key, value in entries:
            count, position = read_varint(value, 0)
            content[key] = []
            for _ in range(count):
                row, position = read_varint(value, position)
                content[key].append(row)
            assert position == len(value)
    if null_size:
        nulls = data[null_offset : null_offset + null_size]
        assert unpack_from("<I", data, null_offset + null_size) == (crc32(nulls),)
        content[None] = list(BitMap64.deserialize(nulls))
    return content, blocks


def read_bitmaps(data: bytes) -> tuple[Content, int]:
    """Return the content of a bitmap file and the number of its dictionary blocks."""
    places = unpack(">qiqiqi", data[-48:-12])
    count, *rest = unpack(">iii", data[-12:])
    assert rest == [1, 0x42474958]
    nulls, others = (BitMap64.deserialize(data[o : o + n]) for o, n in (places[:2], places[2:4]))
    index = read_block(data, *places[4:])
    blocks, position = read_varint(index, 0)
    content = Content()
    for _ in range(blocks):
        length, position = read_varint(index, position)
        first_key = index[position : position + length]
        offset, position = read_varint(index, position + length)
        size, position = read_varint(index, position)
        block = read_block(data, offset, size)
        entries, at = read_varint(block, 0)
        for number in range(entries):
            length, at = read_varint(block, at)
            key = block[at : at + length]
            assert number or key == first_key
            start, at = read_varint(block, at + length)
            size, at = read_varint(block, at)
            content[key] = list(BitMap64.deserialize(data[start : start + size]))
        assert at == len(block)
    assert len(content) == count
    assert sorted(row for rows in content.values() for row in rows) == list(others)
    if nulls:
        content[None] = list(nulls)
    return content, blocks
