"""Unions of serialized Roaring bitmaps, which Java's RoaringBitmap reads.

32-bit bitmaps are stored in the portable form. 64-bit bitmaps use the serialization of Java's
``Roaring64Bitmap``, which no other library can read: an adaptive radix tree of the high 48 bits
(nodes in depth-first order), followed by containers of the low 16 bits. Each leaf stores the index
of one container. All numbers are little-endian:

    bitmap     0 | 1 int64 keys, node, containers
    node       uint8 kind, uint16 children, uint8 length of prefix, prefix, body, the children by
               ascending byte
    body       kind 0: 4 key bytes, reversed; 1: 16 key bytes, each half reversed; 2: for each of
               256 bytes the place of its child or 255, every 8 reversed; 3: a bit set of 256; 4, a
               leaf: 6 key bytes, int64 container
    containers int32 1, int8 -2, int32 places, then for each place 0 | 1 container; int64
               containers, int32 0, int32 last place in use
    container  uint8 form, int32 cardinality, body; 0: uint16 runs, pairs of first and length - 1;
               1: 8192 bytes of bits; 2: the positions

Java places containers by the order of insertion, and keeps nodes that became too large. No reader
depends on either: a union has its containers in ascending order, and the smallest nodes. Damaged
data raises ``ValueError``.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from pyroaring import BitMap

from paimon_orch.format.bytes.roaring import (
    BLOCK_SIZE,
    assemble_portable_bitmap,
    build_bitmap,
    deserialize_bitmap,
    read_containers,
)

_RUNS, _BITS, _ARRAY = range(3)
_MAX_ARRAY = 4096
_BIT_SET_BYTES = BLOCK_SIZE // 8
_LEAF = 4
_CAPACITY = (4, 16, 48, 256)
_BODY_BYTES = (4, 16, 256, 32)
_KEY_BYTES = 6
_NO_CHILD = 0xFF
_NOT_TRIMMED = -2


def union_bitmaps_32(old: bytes, new: bytes) -> bytes:
    """Return the union of two 32-bit bitmaps in the portable form."""
    bitmap = deserialize_bitmap(old, 1 << 32) | deserialize_bitmap(new, 1 << 32)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def union_bitmaps_64(old: bytes, new: bytes) -> bytes:
    """Return the union of two 64-bit bitmaps in the form of Java's ``Roaring64Bitmap``."""
    blocks = _read_bitmap64(old)
    for key, block in _read_bitmap64(new).items():
        blocks[key] = blocks[key] | block if key in blocks else block
    if not blocks:
        return b"\0"
    keys = sorted(blocks)
    return b"".join(
        [
            struct.pack("<Bq", 1, len(keys)),
            *_encode_node(list(enumerate(keys)), 0),
            struct.pack("<ibi", 1, _NOT_TRIMMED, len(keys)),
            *(_encode_container(blocks[key]) for key in keys),
            struct.pack("<qii", len(keys), 0, len(keys) - 1),
        ]
    )


def _encode_node(keys: Sequence[tuple[int, bytes]], depth: int) -> Iterator[bytes]:
    """Yield the node of ascending keys with their containers, which share their first bytes."""
    (place, first), (_, last) = keys[0], keys[-1]
    if len(keys) == 1:
        yield struct.pack("<BHB", _LEAF, 0, 0) + struct.pack("<6sq", first, place)
        return
    branching = next(at for at in range(depth, _KEY_BYTES) if first[at] != last[at])
    children = [
        (byte, list(group)) for byte, group in groupby(keys, lambda item: item[1][branching])
    ]
    kind = next(kind for kind, most in enumerate(_CAPACITY) if len(children) <= most)
    yield struct.pack("<BHB", kind, len(children), branching - depth) + first[depth:branching]
    yield _encode_child_bytes(kind, [byte for byte, _ in children])
    for _, group in children:
        yield from _encode_node(group, branching + 1)


def _encode_child_bytes(kind: int, children: list[int]) -> bytes:
    if kind == 3:
        mask = np.zeros(256, bool)
        mask[children] = True
        return np.packbits(mask, bitorder="little").tobytes()
    if kind <= 1:
        return _reverse_words(bytes(children).ljust(_CAPACITY[kind], b"\0"))
    places = np.full(256, _NO_CHILD, np.uint8)
    places[children] = np.arange(len(children))
    return _reverse_words(places.tobytes())


def _reverse_words(data: bytes) -> bytes:
    """Reverse each group of 8 bytes, or the only group of 4."""
    width = min(8, len(data))
    return np.frombuffer(data, np.uint8).reshape(-1, width)[:, ::-1].tobytes()


def _encode_container(block: BitMap) -> bytes:
    """Encode the positions of one block in the smallest form."""
    block.run_optimize()
    data = bytes(block.serialize())
    (location,), _ = read_containers(data)
    large = _BITS if location.cardinality > _MAX_ARRAY else _ARRAY
    head = struct.pack("<BBi", 1, _RUNS if location.is_run else large, location.cardinality)
    return head + data[location.start : location.end]


class _ByteReader:
    """Reads serialized data sequentially."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise ValueError("the bitmap is truncated")
        self._at += count
        return part

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def check_remaining(self, count: int) -> None:
        """Refuse a count of items that the remaining data cannot hold."""
        if count > len(self._data) - self._at:
            raise ValueError(f"{count} items do not fit in the bitmap")


def _read_bitmap64(data: bytes) -> dict[bytes, BitMap]:
    """Return the low 16 bits of the values by their high 48 bits."""
    source = _ByteReader(data)
    if source.numbers("<B") == (0,):
        return {}
    (keys,) = source.numbers("<q")
    leaves = dict(_read_leaves(source, b""))
    places = _read_containers(source)
    container_count, _, last = source.numbers("<qii")
    if (keys, container_count) != (len(leaves),) * 2:
        raise ValueError(
            f"the tree has {len(leaves)} leaves, but there are {keys} keys and "
            f"{container_count} containers"
        )
    filled = {place for place, container in enumerate(places) if container is not None}
    if filled != set(leaves.values()) or max(filled) > last:
        raise ValueError("leaves and containers do not match")
    if last >= len(places):
        raise ValueError(f"the last place is {last}, but there are {len(places)} places")
    return {key: block for key, place in leaves.items() if (block := places[place]) is not None}


def _read_leaves(source: _ByteReader, path: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the keys below a node, and the places of their containers."""
    kind, count, length = source.numbers("<BHB")
    prefix = source.take(length)
    if kind == _LEAF:
        key = source.take(_KEY_BYTES)
        if not key.startswith(path):
            raise ValueError("a key does not match its path in the tree")
        (place,) = source.numbers("<q")
        yield key, place
        return
    path += prefix
    if kind > _LEAF or not 0 < count <= _CAPACITY[kind] or len(path) >= _KEY_BYTES:
        raise ValueError(f"a node of kind {kind} at depth {len(path)} cannot have {count} children")
    for byte in _decode_child_bytes(kind, count, source.take(_BODY_BYTES[kind])):
        yield from _read_leaves(source, path + bytes([byte]))


def _decode_child_bytes(kind: int, count: int, body: bytes) -> list[int]:
    """Return the key bytes of the children of a node, ascending."""
    if kind <= 1:
        children = list(_reverse_words(body)[:count])
    elif kind == 2:
        index = _reverse_words(body)
        children = [byte for byte, place in enumerate(index) if place != _NO_CHILD]
        places = {index[byte] for byte in children}
        if len(places) < len(children) or max(places) >= _CAPACITY[kind]:
            raise ValueError("children share a place")
    else:
        bits = np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little")
        children = np.flatnonzero(bits).tolist()
    if len(children) != count or children != sorted(set(children)):
        raise ValueError("the children of a node are not in ascending order")
    return children


def _read_containers(source: _ByteReader) -> list[BitMap | None]:
    arrays, _, count = source.numbers("<ibi")
    if arrays != 1:
        raise ValueError(f"containers in {arrays} arrays")
    source.check_remaining(count)
    return [_read_container(source) for _ in range(count)]


def _read_container(source: _ByteReader) -> BitMap | None:
    (tag,) = source.numbers("<B")
    if tag == 0:
        return None
    form, cardinality = source.numbers("<Bi")
    most = _MAX_ARRAY if form == _ARRAY else BLOCK_SIZE
    if tag != 1 or form > _ARRAY or not 0 < cardinality <= most:
        raise ValueError(f"a container of form {form} cannot have {cardinality} positions")
    if form == _BITS:
        bits = np.frombuffer(source.take(_BIT_SET_BYTES), np.uint8)
        block = build_bitmap(np.flatnonzero(np.unpackbits(bits, bitorder="little")))
    else:
        head = source.take(2) if form == _RUNS else b""
        size = 4 * struct.unpack("<H", head)[0] if head else 2 * cardinality
        body, counts = head + source.take(size), np.array([cardinality])
        portable = assemble_portable_bitmap(
            np.array([0]), counts, np.array([form == _RUNS]), [body]
        )
        block = BitMap.deserialize(portable)  # checks that the positions ascend
    if len(block) != cardinality:
        raise ValueError(f"a container does not hold {cardinality} positions")
    return block
