"""Prefixes of serialized keys as numbers that sort like the keys.

See docs/format/binary-row.md.
"""

from collections.abc import Sequence

import numpy as np

from paimon_orch.format.arrays import Indices, Mask, UInt64Array
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.row.binary_row import null_bits_size
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_ARITY_BYTES = 4
_WORDS = 2
_SIGN = np.uint64(1 << 63)
_NUMBER_BYTES = {TypeRoot.TINYINT: 1, TypeRoot.SMALLINT: 2, TypeRoot.INT: 4, TypeRoot.DATE: 4, TypeRoot.TIME: 4, TypeRoot.BIGINT: 8}  # fmt: skip
_BYTE_TYPES = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)


def encode_key_prefixes(
    keys: BinaryBatch, types: Sequence[DataType], *, unknown: int
) -> UInt64Array:
    """Return a row of two words for each key: if it is smaller than another, so is its key.

    Equal words say nothing about the order of two keys. Words from the first field with a null, of
    another type or with damaged bytes on are ``unknown``.
    """
    words = np.full((len(keys.starts), _WORDS), unknown, np.uint64)
    head = _ARITY_BYTES + null_bits_size(len(types))
    is_known = keys.lengths >= head + 8 * len(types)
    is_known &= keys.starts + keys.lengths + 8 <= len(keys.data)
    is_known &= keys.read_ints(keys.starts) == len(types)
    column = 0
    for index, data_type in enumerate(types):
        if column == _WORDS or not isinstance(data_type, AtomicType):
            break
        bit = index + 8
        null_bytes = keys.starts + _ARITY_BYTES + bit // 8
        is_known &= keys.data[np.minimum(null_bytes, len(keys.data) - 1)] >> bit % 8 & 1 == 0
        slots = keys.starts + head + 8 * index
        if data_type.name in _NUMBER_BYTES:
            longs = keys.read_longs(slots).astype(f"i{_NUMBER_BYTES[data_type.name]}")
            number = longs.astype(np.int64).view(np.uint64) ^ _SIGN
            words[is_known, column] = number[is_known]
            column += 1
        elif data_type.name in _BYTE_TYPES:
            text, is_valid = _encode_texts(keys, slots, _WORDS - column)
            is_known &= is_valid
            words[is_known, column:] = text[is_known]
            break  # the words of a longer text are equal to those of other texts
        else:
            break
    return words


def _encode_texts(keys: BinaryBatch, slots: Indices, count: int) -> tuple[UInt64Array, Mask]:
    """Return the first words of texts, and which texts are within their key."""
    values = keys.read_longs(slots)
    is_inline = values < 0
    row = keys.starts + _ARITY_BYTES
    starts = np.where(is_inline, slots, row + (values >> 32))
    sizes = np.where(is_inline, values >> 56 & 0x7F, values & 0xFFFFFFFF)
    ends = keys.starts + keys.lengths
    is_valid: Mask = (starts >= row) & (sizes <= keys.lengths) & (starts + sizes <= ends)
    words = np.zeros((len(slots), count), np.uint64)
    for column in range(count):
        size = (sizes - 8 * column).clip(0, 8)
        bits = (8 * (8 - size)).astype(np.uint64)
        word = keys.read_longs(starts + 8 * column).view(np.uint64).byteswap()
        # a shift by 64 bits is undefined
        words[:, column] = np.where(
            size > 0, word >> np.minimum(bits, 63) << np.minimum(bits, 63), 0
        )
    return words, is_valid
