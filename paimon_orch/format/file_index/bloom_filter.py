"""Bloom filters.

See docs/format/bloom-filter-index.md.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import UInt32Array, UInt64Array
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.file_index.hashing import hash_int64, hash_xxh64
from paimon_orch.format.file_index.index_keys import Key, Keys, has_byte_keys, to_float_bits
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.format.types.predicate import Operator

_HEAD = struct.Struct(">i")
_CHUNK = 32_768  # hashes per step
_MAX_BITS = 2**31 - 1


def compute_bloom_filter_parameters(items: int, fpp: float) -> tuple[int, int]:
    """Return the numbers of bits and hash functions of a filter.

    ``items`` is the number of distinct values, ``fpp`` the false-positive rate. Raises
    :class:`InputError` if no filter has these properties.
    """
    if items < 0 or not 0 < fpp < 1:
        raise InputError(
            f"a bloom filter cannot have {items} items and a false-positive rate of {fpp}; set "
            "'items' to at least 0 and 'fpp' between 0 and 1"
        )
    least = int(-items * math.log(fpp) / (math.log(2) * math.log(2)))
    bits = least + 8 - least % 8
    if bits > _MAX_BITS:
        raise InputError(
            f"a bloom filter of {items} items with a false-positive rate of {fpp} has more than "
            f"{_MAX_BITS} bits; reduce 'items' or raise 'fpp'"
        )
    functions = math.floor(bits / items * math.log(2) + 0.5) if items else 1
    return bits, max(1, functions)


def hash_keys(keys: Keys, data_type: AtomicType) -> UInt64Array:
    """Return the hash of each key."""
    if isinstance(keys, pa.BinaryArray):
        return hash_xxh64(keys)
    bits = to_float_bits(keys) if data_type.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE) else keys
    return hash_int64(bits.astype(np.int64))


class BloomFilterBuilder:
    """Builds a filter from keys; duplicates are allowed."""

    def __init__(self, data_type: AtomicType, items: int = 1_000_000, fpp: float = 0.1) -> None:
        self._type = data_type
        self._count, self._functions = compute_bloom_filter_parameters(items, fpp)
        self._bits = np.zeros(self._count, bool)

    def add(self, keys: Keys) -> None:
        """Insert keys."""
        hashes = hash_keys(keys, self._type)
        for start in range(0, len(hashes), _CHUNK):
            for positions in _compute_bit_positions(
                hashes[start : start + _CHUNK], self._functions, np.uint32(self._count)
            ):
                self._bits[positions] = True

    def finish(self) -> bytes:
        """Return the index."""
        return _HEAD.pack(self._functions) + np.packbits(self._bits, bitorder="little").tobytes()


def _compute_bit_positions(
    hashes: UInt64Array, functions: int, count: np.uint32
) -> "list[UInt32Array]":
    """Return the bit positions that the hash functions give for each hash."""
    halves = hashes.view(np.int32).reshape(-1, 2)
    first, second = halves[:, 0].copy(), halves[:, 1].copy()
    positions = []
    for _ in range(functions):
        first += second
        folded = (first ^ first >> 31).view(np.uint32)
        # numpy divides by a scalar much faster than it computes a remainder
        positions.append(folded - folded // count * count)
    return positions


@dataclass(frozen=True, slots=True)
class BloomFilterIndex:
    """A stored filter, read on the first query."""

    source: ByteSource
    data_type: AtomicType

    def is_built_with(self, items: int, fpp: float) -> bool:
        """Return whether the filter has the size that these options give."""
        bits, functions = compute_bloom_filter_parameters(items, fpp)
        return self.source.length == _HEAD.size + bits // 8 and self.source.read_ints(0, 1) == (
            functions,
        )

    def query(self, op: Operator, keys: Sequence[Key]) -> BitMap | None:
        """Return no rows if the filter contains none of the keys, else None."""
        if op not in (Operator.EQUAL, Operator.IN):
            return None
        data = self.source.bytes()
        (functions,) = _HEAD.unpack_from(data)
        bits = 8 * (len(data) - _HEAD.size)
        if not 0 < functions < 128 or not bits:
            raise ValueError(
                f"a bloom filter cannot have {bits} bits and {functions} hash functions"
            )
        return (
            None if any(self._may_contain(data, functions, bits, key) for key in keys) else BitMap()
        )

    def _may_contain(self, data: bytes, functions: int, bits: int, key: Key) -> bool:
        for bit_hash in iterate_bit_hashes(hash_key(key, self.data_type), functions):
            bit = bit_hash % bits
            if not data[_HEAD.size + (bit >> 3)] >> (bit & 7) & 1:
                return False
        return True


def iterate_bit_hashes(key_hash: int, functions: int) -> Iterator[int]:
    """Yield one number per hash function; modulo the filter size it is the bit of the key."""
    first, second = key_hash & 0xFFFFFFFF, key_hash >> 32
    for _ in range(functions):
        first = (first + second) & 0xFFFFFFFF
        yield first if first < 1 << 31 else first ^ 0xFFFFFFFF


@lru_cache(maxsize=1024)
def hash_key(key: Key, data_type: AtomicType) -> int:
    """Return the hash of one key."""
    if isinstance(key, bytes):
        return int(hash_keys(pa.array([key], pa.binary()), data_type)[0])
    assert not has_byte_keys(data_type)
    dtype = np.int32 if data_type.name == TypeRoot.FLOAT else np.int64
    return int(hash_keys(np.array([key], dtype), data_type)[0])
