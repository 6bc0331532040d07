"""The order in which Java's hash tables list the keys of a bitmap index.

No reader depends on it. It is reproduced so that equal rows give the same bytes as in Java Paimon; the
tests compare whole index files. It takes a third of the time of building an index over 250,000
distinct texts, and less if values repeat (``benchmarks/hand_written.py``). Slots that became trees
(eight colliding keys in a table of 64 slots or more) have another order, which is not reproduced.

See docs/format/java-hash-order.md.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array, UInt32Array
from paimon_orch.format.bytes.murmur3 import hash_binary_array
from paimon_orch.format.file_index.index_keys import Keys, to_float_bits
from paimon_orch.format.types.data_types import AtomicType, TypeRoot

_FIRST_CAPACITY = 16
_TREE_CAPACITY = 64
_MAX_CHAIN_LENGTH = 7


def compute_java_hash_codes(keys: Keys, data_type: AtomicType) -> UInt32Array:
    """Return the hash code of each key of a bitmap index."""
    if isinstance(keys, pa.BinaryArray):
        return hash_binary_array(keys)
    if data_type.name == TypeRoot.BOOLEAN:
        return np.where(keys == 1, 1231, 1237).astype(np.uint32)
    bits = to_float_bits(keys) if data_type.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE) else keys
    if bits.dtype.itemsize < 8:
        return bits.astype(np.int32).view(np.uint32)
    wide = bits.astype(np.int64).view(np.uint64)
    return ((wide ^ wide >> np.uint64(32)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def compute_index_hash_map_order(hashes: UInt32Array, *, queried_after_insert: bool) -> Int64Array:
    """Return the table order of keys that were inserted if absent, in the given order.

    ``queried_after_insert``: a lookup followed the last insertion, which makes the table grow.
    """
    spread = hashes ^ hashes >> np.uint32(16)
    capacity = _compute_small_capacity(spread[:_TREE_CAPACITY].tolist())
    while (len(hashes) - (not queried_after_insert)) * 4 > capacity * 3:
        capacity *= 2
    slots = (spread & np.uint32(capacity - 1)).astype(np.int64)
    # a new key is inserted at the front of its chain
    return np.lexsort((-np.arange(len(hashes)), slots))


def _compute_small_capacity(spread: Sequence[int]) -> int:
    """Return the capacity after the first keys: long chains make a small table grow early."""
    capacity = _FIRST_CAPACITY
    for number, code in enumerate(spread):
        if number * 4 > capacity * 3:
            capacity *= 2
        if capacity >= _TREE_CAPACITY:
            break
        chain = sum((other ^ code) & (capacity - 1) == 0 for other in spread[:number])
        if chain >= _MAX_CHAIN_LENGTH:
            capacity *= 2
    return capacity


def compute_java_string_hash(text: str) -> int:
    """Return the 32-bit hash code of a Java string: over UTF-16 units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code
