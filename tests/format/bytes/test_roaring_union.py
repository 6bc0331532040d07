"""Unions of serialized bitmaps equal those of Java's RoaringBitmap 1.2; damage raises errors.

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
def test_a_union_has_the_same_bytes_as_in_java(number: int) -> None:
    bits, old, new, union = UNIONS[number]

    assert unite(bits, old, new) == union


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
