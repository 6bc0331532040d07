"""Hash codes of the reference, and the order in which its hash tables list their entries.

Some aggregate functions of the reference keep values in a hash table and store them in its order. The order carries no
meaning, but two engines that disagree on it would rewrite equal rows as different ones.
"""

from collections.abc import Sequence

from paimon_orch.format.binary_row import encode_row
from paimon_orch.format.types import AtomicType, DataType

_MASK = 0xFFFFFFFF
_SEED = 42
_FIRST_CAPACITY = 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def murmur(data: bytes) -> int:
    """Return the 32-bit hash of bytes (format section 7.2); bytes behind the last word count one by one."""
    state = _SEED
    words = len(data) // 4 * 4
    blocks = [int.from_bytes(data[at : at + 4], "little") for at in range(0, words, 4)]
    blocks += [byte - 256 if byte > 127 else byte for byte in data[words:]]
    for block in blocks:
        word = _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        state = (_rotate(state ^ word, 13) * 5 + 0xE6546B64) & _MASK
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16


def hash_code(value: object, data_type: DataType) -> int | None:
    """Return the hash code of an internal value, None for types whose code is not reproduced."""
    if value is None:
        return 0
    if not isinstance(data_type, AtomicType):
        return None
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return murmur(value) if data_type.name in ("CHAR", "VARCHAR") else None
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int) and data_type.name == "BIGINT":
        return (value ^ value >> 32) & _MASK
    if isinstance(value, int) and data_type.name in ("TINYINT", "SMALLINT", "INT"):
        return value & _MASK
    return None


def hash_row(values: Sequence[object], types: Sequence[DataType]) -> int:
    """Return the hash code of a row."""
    return murmur(encode_row(values, types))


def table_order(hashes: Sequence[int]) -> list[int]:
    """Return in which order a hash table lists entries that were put in with these hash codes."""
    capacity = _FIRST_CAPACITY
    while len(hashes) * 4 > capacity * 3:
        capacity *= 2
    slots = [(code ^ code >> 16) & (capacity - 1) for code in hashes]
    return sorted(range(len(hashes)), key=slots.__getitem__)
