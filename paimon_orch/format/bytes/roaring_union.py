"""Unions of serialized Roaring bitmaps, with the same bytes as Java's RoaringBitmap 1.2.

Java calls ``runOptimize`` before it writes.

This module is hand-written because pyroaring selects other containers and cannot read this 64-bit
form.

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

The place of a container, the unused places after the last one and the places inside a node of kind
2 follow from the order of insertion, so a union inserts as Java does. Damaged data raises
``ValueError``.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from paimon_orch.format.arrays import Int64Array
from paimon_orch.format.bytes.roaring import BLOCK_SIZE, assemble_portable_bitmap, read_containers

_RUNS, _BITS, _ARRAY = range(3)
_MAX_ARRAY = 4096
_BIT_SET_BYTES = BLOCK_SIZE // 8
_LEAF = 4
_CAPACITY = (4, 16, 48, 256)
_BODY_BYTES = (4, 16, 256, 32)
_KEY_BYTES = 6
_NO_CHILD = 0xFF
_NOT_TRIMMED = -2
_MIN_FOR_RUNS = 4  # an array with fewer positions is never larger than its runs


class _Container(NamedTuple):
    """The stored positions of one block of 65536; a run body begins with the run count."""

    form: int
    cardinality: int
    body: bytes

    def values(self) -> Int64Array:
        """Return the positions, ascending."""
        values = self._values()
        if (
            len(values) != self.cardinality
            or values[-1] >= BLOCK_SIZE
            or (np.diff(values) <= 0).any()
        ):
            raise ValueError(f"a container does not hold {self.cardinality} ascending positions")
        return values

    def _values(self) -> Int64Array:
        if self.form == _ARRAY:
            return np.frombuffer(self.body, "<u2").astype(np.int64)
        if self.form == _BITS:
            bits = np.unpackbits(np.frombuffer(self.body, np.uint8), bitorder="little")
            return np.flatnonzero(bits)
        run_starts, run_extents = (
            np.frombuffer(self.body, "<u2", offset=2).reshape(-1, 2).astype(np.int64).T
        )
        ends = np.cumsum(run_extents + 1)
        shift = np.repeat(run_starts - ends + run_extents + 1, run_extents + 1)
        return np.arange(len(shift)) + shift

    def optimize(self) -> "_Container":
        """Return the container with runs if that is smaller; run containers are unchanged."""
        if self.form == _RUNS or self.cardinality < _MIN_FOR_RUNS:
            return self
        values = self.values()
        return (
            _build_smallest_container(values)
            if 2 + 4 * _count_runs(values) < len(self.body)
            else self
        )

    def to_efficient(self) -> "_Container":
        """Return the smallest container; for equal sizes a run container is unchanged."""
        if self.form != _RUNS:
            return self.optimize()
        return _build_smallest_container(self.values(), was_runs=True)


def _count_runs(values: Int64Array) -> int:
    return int(np.count_nonzero(np.diff(values) != 1)) + 1 if len(values) else 0


def _build_smallest_container(values: Int64Array, *, was_runs: bool = False) -> _Container:
    """Return positions in the smallest container; with ``was_runs``, runs win a tie."""
    count, runs = len(values), _count_runs(values)
    as_runs = 2 + 4 * runs
    other = 2 * count if count <= _MAX_ARRAY else _BIT_SET_BYTES
    # Java adds two bytes to the size of an array when it decides whether runs become an array, but
    # not when it decides whether an array becomes runs.
    allowed = min(2 * count + 2, _BIT_SET_BYTES) if was_runs else other - 1
    if as_runs <= allowed:
        first = np.flatnonzero(np.diff(values, prepend=-2) != 1)
        lengths = np.diff(first, append=count) - 1
        pairs = np.stack([values[first], lengths], axis=1).astype("<u2")
        return _Container(_RUNS, count, struct.pack("<H", runs) + pairs.tobytes())
    if count <= _MAX_ARRAY:
        return _Container(_ARRAY, count, values.astype("<u2").tobytes())
    mask = np.zeros(BLOCK_SIZE, bool)
    mask[values] = True
    return _Container(_BITS, count, np.packbits(mask, bitorder="little").tobytes())


def _union_containers(old: _Container, new: _Container) -> _Container:
    forms = {old.form, new.form}
    values = np.union1d(old.values(), new.values())
    return _build_smallest_container(values, was_runs=_RUNS in forms and _BITS not in forms)


def union_bitmaps_32(old: bytes, new: bytes) -> bytes:
    """Return the union of two 32-bit bitmaps in the portable form."""
    blocks = dict(_read_blocks(old))
    for key, container in _read_blocks(new):
        previous = blocks.get(key)
        blocks[key] = container if previous is None else _union_containers(previous, container)
    ordered = sorted(blocks)
    containers = [blocks[key].to_efficient() for key in ordered]
    return assemble_portable_bitmap(
        np.array(ordered, np.int64),
        np.array([container.cardinality for container in containers], np.int64),
        np.array([container.form == _RUNS for container in containers], bool),
        [container.body for container in containers],
    )


def _read_blocks(data: bytes) -> Iterator[tuple[int, _Container]]:
    locations, end = read_containers(data)
    if end > len(data):
        raise ValueError("the bitmap is truncated")
    for block in locations:
        body = data[block.start : block.end]
        form = _BITS if block.cardinality > _MAX_ARRAY else _ARRAY
        cardinality = block.cardinality
        yield block.block, _Container(_RUNS if block.is_run else form, cardinality, body)


@dataclass(slots=True)
class _Leaf:
    """The high 48 bits of some positions, and the place of the container with the low 16 bits."""

    prefix: bytes
    key: bytes
    place: int


@dataclass(slots=True)
class _Branch:
    """A node that selects a child by one key byte, after a common prefix.

    ``index`` is the body in memory: the ordered key bytes for kinds 0 and 1, the places of the
    children for kind 2.
    """

    prefix: bytes
    kind: int = 0
    index: bytearray = field(default_factory=lambda: bytearray(4))
    children: "dict[int, _Node]" = field(default_factory=dict)

    def put(self, byte: int, child: "_Node") -> None:
        """Add a child; a full node becomes one of the next kind."""
        count = len(self.children)
        if count == _CAPACITY[self.kind]:
            self._grow()
        if self.kind <= 1:
            self.index[count] = byte
            self.index[: count + 1] = sorted(self.index[: count + 1])
        elif self.kind == 2:
            used_places = {self.index[other] for other in self.children}
            free = count if count not in used_places else min(set(range(48)) - used_places)
            self.index[byte] = free
        self.children[byte] = child

    def _grow(self) -> None:
        self.kind += 1
        if self.kind == 1:
            self.index += bytes(12)
        elif self.kind == 2:
            places = bytearray([_NO_CHILD]) * 256
            for place, byte in enumerate(self.index):
                places[byte] = place
            self.index = places

    def body(self) -> bytes:
        """Return the serialized index."""
        if self.kind == 3:
            mask = np.zeros(256, bool)
            mask[list(self.children)] = True
            return np.packbits(mask, bitorder="little").tobytes()
        return _reverse_words(self.index)


_Node = _Branch | _Leaf


def _reverse_words(data: bytes | bytearray) -> bytes:
    """Reverse each group of 8 bytes, or the only group of 4."""
    width = min(8, len(data))
    return np.frombuffer(data, np.uint8).reshape(-1, width)[:, ::-1].tobytes()


@dataclass(slots=True)
class _Bitmap64:
    """A 64-bit bitmap: the tree of high parts, its leaves by key, and the containers by place."""

    root: _Node | None = None
    leaves: dict[bytes, _Leaf] = field(default_factory=dict)
    places: list[_Container | None] = field(default_factory=list)
    last: int = -1
    """The last place in use."""

    def add(self, key: bytes, container: _Container) -> None:
        """Merge a container into the one with the same high part, or insert it."""
        leaf = self.leaves.get(key)
        if leaf is not None:
            previous = self.places[leaf.place]
            assert previous is not None
            self.places[leaf.place] = _union_containers(previous, container)
            return
        self.last += 1
        if self.last >= len(self.places):  # the array in Java grows by half
            grown = max(self.last + 1, len(self.places) + len(self.places) // 2)
            self.places += [None] * (grown - len(self.places))
        self.places[self.last] = container
        self.leaves[key] = leaf = _Leaf(b"", key, self.last)
        self.root = leaf if self.root is None else _insert_leaf(self.root, leaf, 0)


def _insert_leaf(node: _Node, leaf: _Leaf, depth: int) -> _Node:
    """Insert a leaf below a node; return the node that replaces it."""
    shared = node.key[depth:] if isinstance(node, _Leaf) else node.prefix
    key_tail = leaf.key[depth:]
    common = next(
        (index for index, byte in enumerate(shared) if byte != key_tail[index]), len(shared)
    )
    if isinstance(node, _Branch) and common == len(shared):
        child = node.children.get(key_tail[common])
        if child is None:
            node.put(key_tail[common], leaf)
        else:
            node.children[key_tail[common]] = _insert_leaf(child, leaf, depth + common + 1)
        return node
    branch = _Branch(shared[:common])
    node.prefix = b"" if isinstance(node, _Leaf) else shared[common + 1 :]
    branch.put(shared[common], node)
    branch.put(key_tail[common], leaf)
    return branch


def union_bitmaps_64(old: bytes, new: bytes) -> bytes:
    """Return the union of two 64-bit bitmaps, as Java's ``Roaring64Bitmap`` serializes it."""
    bitmap, other = _read_bitmap64(old), _read_bitmap64(new)
    for key, leaf in other.leaves.items():
        container = other.places[leaf.place]
        assert container is not None
        bitmap.add(key, container)
    if bitmap.root is None:
        return b"\0"
    parts = [struct.pack("<Bq", 1, len(bitmap.leaves))]
    _write_node(bitmap.root, parts)
    parts.append(struct.pack("<ibi", 1, _NOT_TRIMMED, len(bitmap.places)))
    container_count = 0
    for container in bitmap.places:
        if container is None:
            parts.append(b"\0")
        else:
            container_count += 1
            form, cardinality, body = container.optimize()
            parts += (struct.pack("<BBi", 1, form, cardinality), body)
    parts.append(struct.pack("<qii", container_count, 0, bitmap.last))
    return b"".join(parts)


def _write_node(node: _Node, parts: list[bytes]) -> None:
    if isinstance(node, _Leaf):
        parts.append(struct.pack("<BHB", _LEAF, 0, len(node.prefix)) + node.prefix)
        parts.append(node.key + struct.pack("<q", node.place))
        return
    head = struct.pack("<BHB", node.kind, len(node.children), len(node.prefix))
    parts.append(head + node.prefix + node.body())
    for _, child in sorted(node.children.items()):
        _write_node(child, parts)


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


def _read_bitmap64(data: bytes) -> _Bitmap64:
    source, bitmap = _ByteReader(data), _Bitmap64()
    (tag,) = source.numbers("<B")
    if tag == 0:
        return bitmap
    (keys,) = source.numbers("<q")
    bitmap.root = _read_node(source, b"", bitmap.leaves)
    bitmap.places = _read_containers(source)
    container_count, _, bitmap.last = source.numbers("<qii")
    if (keys, container_count) != (len(bitmap.leaves),) * 2:
        raise ValueError(
            f"the tree has {len(bitmap.leaves)} leaves, but there are {keys} keys and "
            f"{container_count} containers"
        )
    filled = {place for place, container in enumerate(bitmap.places) if container is not None}
    if filled != {leaf.place for leaf in bitmap.leaves.values()} or max(filled) > bitmap.last:
        raise ValueError("leaves and containers do not match")
    if bitmap.last >= len(bitmap.places):
        raise ValueError(
            f"the last place is {bitmap.last}, but there are {len(bitmap.places)} places"
        )
    return bitmap


def _read_node(source: _ByteReader, path: bytes, leaves: dict[bytes, _Leaf]) -> _Node:
    kind, count, length = source.numbers("<BHB")
    prefix = source.take(length)
    if kind == _LEAF:
        key = source.take(_KEY_BYTES)
        if not key.startswith(path):
            raise ValueError("a key does not match its path in the tree")
        leaves[key] = leaf = _Leaf(prefix, key, *source.numbers("<q"))
        return leaf
    path += prefix
    if kind > _LEAF or not 0 < count <= _CAPACITY[kind] or len(path) >= _KEY_BYTES:
        raise ValueError(f"a node of kind {kind} at depth {len(path)} cannot have {count} children")
    body = source.take(_BODY_BYTES[kind])
    branch = _Branch(prefix, kind, bytearray(b"" if kind == 3 else _reverse_words(body)))
    for byte in _decode_child_bytes(kind, count, body, branch.index):
        branch.children[byte] = _read_node(source, path + bytes([byte]), leaves)
    return branch


def _decode_child_bytes(kind: int, count: int, body: bytes, index: bytearray) -> list[int]:
    """Return the key bytes of the children of a node, ascending."""
    if kind <= 1:
        children = list(index[:count])
    elif kind == 2:
        children = [byte for byte, place in enumerate(index) if place != _NO_CHILD]
        if (
            len({index[byte] for byte in children}) < len(children)
            or max(index[b] for b in children) >= 48
        ):
            raise ValueError("children share a place")
    else:
        bits = np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little")
        children = np.flatnonzero(bits).tolist()
    if len(children) != count or children != sorted(set(children)):
        raise ValueError("the children of a node are not in ascending order")
    return children


def _read_containers(source: _ByteReader) -> list[_Container | None]:
    arrays, _, count = source.numbers("<ibi")
    if arrays != 1:
        raise ValueError(f"containers in {arrays} arrays")
    source.check_remaining(count)
    return [_read_container(source) for _ in range(count)]


def _read_container(source: _ByteReader) -> _Container | None:
    (tag,) = source.numbers("<B")
    if tag == 0:
        return None
    form, cardinality = source.numbers("<Bi")
    if tag != 1 or form > _ARRAY or not 0 < cardinality <= BLOCK_SIZE:
        raise ValueError(f"a container of form {form} cannot have {cardinality} positions")
    if form == _RUNS:
        head = source.take(2)
        return _Container(form, cardinality, head + source.take(4 * struct.unpack("<H", head)[0]))
    size = 2 * cardinality if form == _ARRAY else _BIT_SET_BYTES
    return _Container(form, cardinality, source.take(size))
