"""Unions of serialized bitmaps hold the values of Java's RoaringBitmap 1.2; damage raises errors.

Each line of `roaring_unions.txt` is a union: 32 or 64 bits, the two bitmaps and their union. The
bitmaps are compressed by zlib and encoded in base64. The shaded classes of the Paimon 2.0 bundle
wrote them from sets with every kind of container, tree nodes of all sizes, and removed values.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from pathlib import Path

import pytest
from pyroaring import BitMap

from paimon_orch.format.bytes.roaring_union import union_bitmaps_32, union_bitmaps_64

Union = tuple[int, bytes, bytes, bytes]


def _unions() -> list[Union]:
    lines = (Path(__file__).parent / "roaring_unions.txt").read_text(encoding="ascii").splitlines()
    fields = [line.split() for line in lines]
    return [
        (int(bits), *(zlib.decompress(base64.b64decode(encoded)) for encoded in bitmaps))  # type: ignore[misc]
        for bits, *bitmaps in fields
    ]


UNIONS = _unions()


def unite(bits: int, old: bytes, new: bytes) -> bytes:
    return (union_bitmaps_32 if bits == 32 else union_bitmaps_64)(old, new)


@pytest.mark.parametrize("number", range(len(UNIONS)))
def test_a_union_has_the_values_of_javas_union(number: int) -> None:
    """Java's 64-bit unions also depend on the order of insertion, which rewriting them removes."""
    bits, old, new, union = UNIONS[number]
    empty = BitMap().serialize() if bits == 32 else b"\0"

    assert unite(bits, old, new) == unite(bits, union, empty)


def test_a_union_has_the_bytes_of_javas_union_that_was_inserted_in_ascending_order() -> None:
    equal = [bits for bits, old, new, union in UNIONS if unite(bits, old, new) == union]

    assert (equal.count(32), equal.count(64)) == (32, 8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bits", [32, 64])
def test_damaged_bitmaps_raise_only_value_errors(bits: int) -> None:
    chance = random.Random(bits)  # noqa: S311 - repeatable damage
    small = [(old, new) for size, old, new, _ in UNIONS if size == bits and len(old) < 2000]

    refused = 0
    for old, new in small:
        for _ in range(20):
            damaged = bytearray(old)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(old))] = chance.choice(
                    [0, 1, 255, chance.randrange(256)]
                )
            cut = bytes(damaged[: chance.choice([len(old), chance.randint(0, len(old))])])
            for pair in ((cut, new), (new, cut)):
                try:
                    unite(bits, *pair)
                except (ValueError, struct.error):
                    refused += 1
    assert refused


@pytest.mark.parametrize("length", [0, 1, 9, 20, 30])
def test_a_truncated_64_bit_bitmap_is_refused(length: int) -> None:
    _, old, new, _ = next(union for union in UNIONS if union[0] == 64 and len(union[1]) > 60)

    with pytest.raises(ValueError, match="truncated"):
        union_bitmaps_64(old[:length], new)


def test_a_container_count_larger_than_the_data_is_refused() -> None:
    leaf = struct.pack("<BHB6sq", 4, 0, 0, bytes(6), 0)
    data = b"\1" + struct.pack("<q", 1) + leaf + struct.pack("<ibi", 1, -2, 2**31 - 1)

    with pytest.raises(ValueError, match="do not fit"):
        union_bitmaps_64(data, data)


def leaf(key: bytes, place: int, prefix: bytes = b"") -> bytes:
    return struct.pack("<BHB", 4, 0, len(prefix)) + prefix + key + struct.pack("<q", place)


def branch(
    kind: int, body: bytes, *children: bytes, count: int | None = None, prefix: bytes = bytes(5)
) -> bytes:
    """Return a node whose body is in the stored order."""
    head = struct.pack("<BHB", kind, len(children) if count is None else count, len(prefix))
    return head + prefix + body + b"".join(children)


def container(form: int = 2, cardinality: int = 1, body: bytes = b"\7\0") -> bytes:
    return b"\1" + struct.pack("<Bi", form, cardinality) + body


def bitmap(
    root: bytes, *containers: bytes, keys: int = 2, filled: int = 2, last: int = 1, arrays: int = 1
) -> bytes:
    """Return a 64-bit bitmap; by default it has two keys."""
    places = containers or (container(), container())
    head = b"\1" + struct.pack("<q", keys) + root + struct.pack("<ibi", arrays, -2, len(places))
    return head + b"".join(places) + struct.pack("<qii", filled, 0, last)


def bits(*numbers: int) -> bytes:
    return sum(1 << number for number in numbers).to_bytes(32, "little")


def places(children: dict[int, int]) -> bytes:
    index = bytearray(b"\xff" * 256)
    for byte, place in children.items():
        index[byte] = place
    return b"".join(index[start : start + 8][::-1] for start in range(0, 256, 8))


LEAVES = leaf(bytes(5) + b"\1", 0), leaf(bytes(5) + b"\2", 1)
PAIR = branch(0, b"\0\0\2\1", *LEAVES)
VALID = [
    bitmap(PAIR),
    bitmap(branch(1, b"\0\0\0\0\0\0\2\1" + bytes(8), *LEAVES)),
    bitmap(branch(2, places({1: 47, 2: 0}), *LEAVES)),
    bitmap(branch(3, bits(1, 2), *LEAVES)),
    bitmap(
        branch(0, b"\0\0\2\1", leaf(bytes(5) + b"\1", 2), LEAVES[1]),
        b"\0",
        container(),
        container(),
        last=2,
    ),
    bitmap(leaf(bytes(6), 0), container(), keys=1, filled=1, last=0),
    bitmap(PAIR, container(), container(), b"\0"),
    b"\0",
]
DAMAGED = [
    ("ascending", bitmap(branch(0, b"\0\0\1\2", *LEAVES[::-1]))),
    ("ascending", bitmap(branch(0, b"\0\0\1\1", LEAVES[0], leaf(bytes(5) + b"\1", 1)))),
    ("ascending", bitmap(branch(3, bits(1, 2), LEAVES[0], count=1), keys=1, filled=1)),
    ("ascending", bitmap(branch(3, bits(1), *LEAVES))),
    ("ascending", bitmap(branch(2, places({1: 0}), *LEAVES))),
    ("share a place", bitmap(branch(2, places({1: 0, 2: 0}), *LEAVES))),
    ("share a place", bitmap(branch(2, places({1: 0, 2: 48}), *LEAVES))),
    ("kind 5 at depth 5", bitmap(branch(5, b"", *LEAVES))),
    ("kind 0 at depth 5 cannot have 0", bitmap(branch(0, bytes(4)))),
    ("kind 0 at depth 5 cannot have 5", bitmap(branch(0, bytes(4), *LEAVES, count=5))),
    ("kind 0 at depth 6", bitmap(branch(0, b"\0\0\2\1", *LEAVES, prefix=bytes(6)))),
    ("match its path", bitmap(branch(0, b"\0\0\2\1", LEAVES[0], leaf(bytes(5) + b"\3", 1)))),
    ("2 leaves, but there are 3 keys", bitmap(PAIR, keys=3)),
    ("keys and 1 containers", bitmap(PAIR, filled=1)),
    ("do not match", bitmap(branch(0, b"\0\0\2\1", LEAVES[0], leaf(bytes(5) + b"\2", 2)))),
    ("do not match", bitmap(PAIR, last=0)),
    ("do not match", bitmap(branch(0, b"\0\0\2\1", LEAVES[0], leaf(bytes(5) + b"\2", 0)))),
    ("last place is 2, but there are 2 places", bitmap(PAIR, last=2)),
    ("containers in 2 arrays", bitmap(PAIR, arrays=2)),
    ("do not match", bitmap(PAIR)[: 9 + len(PAIR)] + struct.pack("<ibiqii", 1, -2, -1, 2, 0, 1)),
    ("form 3 cannot", bitmap(PAIR, container(3), container())),
    ("cannot have 0 positions", bitmap(PAIR, container(2, 0, b""), container())),
    ("cannot have 4097 positions", bitmap(PAIR, container(2, 4_097, bytes(8_194)), container())),
    ("cannot have 65537 positions", bitmap(PAIR, container(1, 65_537, bytes(8_192)), container())),
    ("cannot have 1 positions", bitmap(PAIR, b"\2" + container()[1:], container())),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(VALID)))
def test_small_trees_are_valid(number: int) -> None:
    data = VALID[number]

    assert union_bitmaps_64(data, b"\0")[1:9] == (data[1:9] if data != b"\0" else b"")


@pytest.mark.parametrize("number", range(len(DAMAGED)))
def test_each_damage_of_a_64_bit_bitmap_is_refused(number: int) -> None:
    reason, data = DAMAGED[number]

    with pytest.raises(ValueError, match=reason):
        union_bitmaps_64(data, b"\0")


@pytest.mark.parametrize(
    ("form", "cardinality", "body"),
    [
        (2, 2, b"\7\0\7\0"),
        (2, 2, b"\7\0\6\0"),
        (1, 2, b"\1" + bytes(8_191)),
        (0, 2, b"\1\0\7\0\0\0"),
        (0, 2, b"\1\0\xff\xff\1\0"),
        (0, 4, b"\2\0\7\0\1\0\10\0\1\0"),
    ],
    ids=["twice", "descending", "fewer bits", "shorter run", "run after the end", "runs overlap"],
)
def test_a_damaged_container_is_refused(form: int, cardinality: int, body: bytes) -> None:
    data = bitmap(leaf(bytes(6), 0), container(form, cardinality, body), keys=1, filled=1, last=0)
    with pytest.raises(ValueError, match=r"does not hold 2 positions|Invalid bitmap"):
        union_bitmaps_64(data, b"\0")
