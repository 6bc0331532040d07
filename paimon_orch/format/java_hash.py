"""Java's hash codes, and the iteration order of its hash tables.

Some aggregate functions of Java Paimon store values in this order. Without it two engines would
produce different rows for equal input.

See docs/format/java-hash-order.md.
"""

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

from paimon_orch.format.bytes.murmur3 import hash_bytes
from paimon_orch.format.text import encode_text
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_MASK = 0xFFFFFFFF
_FIRST_CAPACITY = 16


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


def compute_hash_map_order(hashes: Sequence[int], *, computed: bool = False) -> list[int]:
    """Return the iteration order of a hash table after inserting keys with these hash codes.

    Slots that became trees (eight colliding keys) have another order, which is not reproduced.

    ``computed`` means that keys were added with ``computeIfAbsent``. The table then grows one entry
    later, and new entries are inserted at the front of their slot.
    """
    capacity, numbers = _FIRST_CAPACITY, range(len(hashes))
    while (len(hashes) - computed) * 4 > capacity * 3:
        capacity *= 2
    slots = [(code ^ code >> 16) & (capacity - 1) for code in hashes]
    return sorted(reversed(numbers) if computed else numbers, key=slots.__getitem__)
