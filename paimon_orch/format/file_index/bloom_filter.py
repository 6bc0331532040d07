"""Bloom filters (file-index section 3)."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from paimon_orch.errors import InputError
from paimon_orch.format.file_index.container import Blob
from paimon_orch.format.file_index.hashing import mix, xxh64
from paimon_orch.format.file_index.values import Key, Keys, bits_of, is_bytes
from paimon_orch.format.types.data_types import AtomicType

_HEAD = struct.Struct(">i")
_CHUNK = 32_768  # hashes at a time
_MAX_BITS = 2**31 - 1


def parameters(items: int, fpp: float) -> tuple[int, int]:
    """Return the bits and the hash functions for so many distinct values and such a share of false positives.

    Raises :class:`InputError` if there is no such filter.
    """
    if items < 0 or not 0 < fpp < 1:
        raise InputError(f"a bloom filter of {items} items with a false share of {fpp} cannot be")
    least = int(-items * math.log(fpp) / (math.log(2) * math.log(2)))
    bits = least + 8 - least % 8
    if bits > _MAX_BITS:
        raise InputError(
            f"a bloom filter of {items} items with a false share of {fpp} is too large"
        )
    functions = math.floor(bits / items * math.log(2) + 0.5) if items else 1
    return bits, max(1, functions)


def hashes(keys: Keys, data_type: AtomicType) -> npt.NDArray[np.uint64]:
    """Return the hash of each key."""
    if isinstance(keys, pa.BinaryArray):
        return xxh64(keys)
    bits = bits_of(keys) if data_type.name in ("FLOAT", "DOUBLE") else keys
    return mix(bits.astype(np.int64))


class BloomFilterBuilder:
    """A filter that takes keys as they come; each key once is enough."""

    def __init__(self, data_type: AtomicType, items: int = 1_000_000, fpp: float = 0.1) -> None:
        self._type = data_type
        self._count, self._functions = parameters(items, fpp)
        self._bits = np.zeros(self._count, bool)

    def add(self, keys: Keys) -> None:
        """Insert keys."""
        found = hashes(keys, self._type)
        for at in range(0, len(found), _CHUNK):
            for positions in _positions(
                found[at : at + _CHUNK], self._functions, np.uint32(self._count)
            ):
                self._bits[positions] = True

    def finish(self) -> bytes:
        """Return the index."""
        return _HEAD.pack(self._functions) + np.packbits(self._bits, bitorder="little").tobytes()


def _positions(
    found: npt.NDArray[np.uint64], functions: int, count: np.uint32
) -> "list[npt.NDArray[np.uint32]]":
    """Return the bit of each hash, for one function after the other."""
    halves = found.view(np.int32).reshape(-1, 2)
    first, second = halves[:, 0].copy(), halves[:, 1].copy()
    positions = []
    for _ in range(functions):
        first += second
        folded = (first ^ first >> 31).view(np.uint32)
        # numpy divides by one number much faster than it takes remainders
        positions.append(folded - folded // count * count)
    return positions


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A stored filter; it is read when it is first asked."""

    blob: Blob
    data_type: AtomicType

    def is_made_with(self, items: int, fpp: float) -> bool:
        """Tell whether the filter has the size that these options ask for."""
        bits, functions = parameters(items, fpp)
        return self.blob.length == _HEAD.size + bits // 8 and self.blob.ints(0, 1) == (functions,)

    def query(self, op: str, keys: Sequence[Key]) -> BitMap | None:
        """Return no rows if none can hold one of the keys, else None."""
        if op not in ("=", "in"):
            return None
        data = self.blob.bytes()
        (functions,) = _HEAD.unpack_from(data)
        bits = 8 * (len(data) - _HEAD.size)
        if not 0 < functions < 128 or not bits:
            raise ValueError(f"a bloom filter of {bits} bits and {functions} functions")
        return None if any(self._may_hold(data, functions, bits, key) for key in keys) else BitMap()

    def _may_hold(self, data: bytes, functions: int, bits: int, key: Key) -> bool:
        found = hash_of_key(key, self.data_type)
        first, second = found & 0xFFFFFFFF, found >> 32
        for _ in range(functions):
            first = (first + second) & 0xFFFFFFFF
            at = (first if first < 1 << 31 else first ^ 0xFFFFFFFF) % bits
            if not data[_HEAD.size + (at >> 3)] >> (at & 7) & 1:
                return False
        return True


@lru_cache(maxsize=1024)
def hash_of_key(key: Key, data_type: AtomicType) -> int:
    """Return the hash of one key."""
    if isinstance(key, bytes):
        return int(hashes(pa.array([key], pa.binary()), data_type)[0])
    assert not is_bytes(data_type)
    dtype = np.int32 if data_type.name == "FLOAT" else np.int64
    return int(hashes(np.array([key], dtype), data_type)[0])
