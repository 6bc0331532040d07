"""Java's hash codes, and the iteration order of its hash tables.

Bitmap indexes list their keys in this order. No reader depends on it. It is reproduced so that
equal rows give the same bytes as in Java Paimon; the tests compare whole index files. It takes a
third of the time of building an index over 250,000 distinct strings, and less if values repeat
(``benchmarks/hand_written.py``). Slots that became trees (eight colliding keys in a table of 64
slots or more) have another order, which is not reproduced.

Some aggregate functions of Java Paimon store values in this order, too. Without it two engines
would produce different rows for equal input.

See docs/format/java-hash-order.md.
"""

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array, UInt32Array
from paimon_orch.format.bytes.murmur3 import hash_binary_array, hash_bytes
from paimon_orch.format.file_index.index_keys import Keys, to_float_bits
from paimon_orch.format.text import encode_text
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_MASK = 0xFFFFFFFF
_FIRST_CAPACITY = 16
_TREE_CAPACITY = 64
_MAX_CHAIN_LENGTH = 7


def compute_java_hash_code(value: object, data_type: DataType) -> int | None:
    """Return the hash code of an internal value, or None for unsupported types."""
    if value is None:
        return 0
    if not isinstance(data_type, AtomicType):
        return None
    code = _HASH_FUNCTIONS.get(data_type.name)
    return None if code is None else code(value) & _MASK


def _hash_text(value: str | bytes) -> int:
    return hash_bytes(encode_text(value) if isinstance(value, str) else value)


def _hash_long(value: int) -> int:
    return value ^ value >> 32


def _hash_float(value: float) -> int:
    if math.isnan(value):
        return 0x7FC00000
    return int.from_bytes(struct.pack(">f", value), "big")


def _hash_decimal(value: Decimal) -> int:
    with localcontext(prec=80):
        scale = -int(value.as_tuple().exponent)
        unscaled = int(value.scaleb(scale))
    size, code = abs(unscaled), 0
    for shift in reversed(range(0, max(1, size.bit_length()), 32)):
        code = 31 * code + (size >> shift & _MASK) & _MASK
    return 31 * (-code if unscaled < 0 else code) + scale


_HASH_FUNCTIONS: dict[str, Callable[[Any], int]] = {
    TypeRoot.CHAR: _hash_text,
    TypeRoot.VARCHAR: _hash_text,
    TypeRoot.BOOLEAN: lambda value: 1231 if value else 1237,
    TypeRoot.TINYINT: int,
    TypeRoot.SMALLINT: int,
    TypeRoot.INT: int,
    TypeRoot.BIGINT: _hash_long,
    TypeRoot.FLOAT: _hash_float,
    TypeRoot.DOUBLE: lambda value: _hash_long(int.from_bytes(encode_double_bits(value), "big")),
    TypeRoot.DECIMAL: _hash_decimal,
    TypeRoot.DATE: int,
    TypeRoot.TIME: int,
}


def encode_double_bits(value: float) -> bytes:
    """Return the bits that Java compares: all NaNs are equal, 0.0 and -0.0 differ."""
    return struct.pack(">d", math.nan if math.isnan(value) else value)


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


def compute_java_string_hash(text: str) -> int:
    """Return the 32-bit hash code of a Java string, computed over its UTF-16 units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code


def compute_hash_map_order(hashes: Sequence[int], *, computed: bool = False) -> list[int]:
    """Return the iteration order of a small hash table after inserting keys with these hash codes.

    Unlike :func:`compute_index_hash_map_order`, this does not model the growth by long chains.

    ``computed`` means that keys were added with ``computeIfAbsent``. The table then grows one entry
    later, and new entries are inserted at the front of their slot.
    """
    capacity, numbers = _FIRST_CAPACITY, range(len(hashes))
    while (len(hashes) - computed) * 4 > capacity * 3:
        capacity *= 2
    slots = [(code ^ code >> 16) & (capacity - 1) for code in hashes]
    return sorted(reversed(numbers) if computed else numbers, key=slots.__getitem__)


def compute_index_hash_map_order(hashes: UInt32Array, *, queried_after_insert: bool) -> Int64Array:
    """Return the table order of keys that were inserted if absent, in the given order.

    ``queried_after_insert`` means that a lookup followed the last insertion, which makes the table
    grow.
    """
    spread = hashes ^ hashes >> np.uint32(16)
    capacity = _compute_small_capacity(spread[:_TREE_CAPACITY].tolist())
    while (len(hashes) - (not queried_after_insert)) * 4 > capacity * 3:
        capacity *= 2
    slots = (spread & np.uint32(capacity - 1)).astype(np.int64)
    # a new key is inserted at the front of its chain
    return np.lexsort((-np.arange(len(hashes)), slots))


def _compute_small_capacity(spread: Sequence[int]) -> int:
    """Return the capacity of the table while it is small.

    Java also doubles a small table when a bucket chain becomes too long.
    """
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
