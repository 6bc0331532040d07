"""Decodes one field of many serialized rows as a column, for file statistics.

See docs/format/binary-row.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from paimon_orch.format.arrays import AnyArray, Indices, Mask
from paimon_orch.format.bytes.binary_batch import BinaryBatch
from paimon_orch.format.row.binary_row import null_bits_size
from paimon_orch.format.text import decode_text
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_ARITY_BYTES = 4
_INTEGER_DTYPES = {TypeRoot.BOOLEAN: np.bool_, TypeRoot.TINYINT: np.int8, TypeRoot.SMALLINT: np.int16, TypeRoot.INT: np.int32,
          TypeRoot.DATE: np.int32, TypeRoot.TIME: np.int32, TypeRoot.BIGINT: np.int64}  # fmt: skip
_FLOAT_DTYPES = {TypeRoot.FLOAT: (np.int32, np.float32), TypeRoot.DOUBLE: (np.int64, np.float64)}


class FieldColumn(NamedTuple):
    """Internal values of a field, which are not null, and which rows have the expected arity."""

    values: AnyArray
    valid: Mask
    rows: Mask


def read_field_column(
    rows: Sequence[bytes], index: int, arity: int, data_type: DataType
) -> FieldColumn | None:
    """Return one field of rows, or None if its type has no fast path or a row is damaged."""
    if not isinstance(data_type, AtomicType):
        return None
    batch = BinaryBatch.of(rows)
    if (batch.lengths < _ARITY_BYTES).any():
        return None
    has_arity = batch.read_ints(batch.starts) == arity
    head = null_bits_size(arity)
    if (batch.lengths[has_arity] < _ARITY_BYTES + head + 8 * arity).any():
        return None
    row = batch.starts + _ARITY_BYTES
    bit = index + 8
    last = len(batch.data) - 1
    valid = has_arity & (batch.data[np.minimum(row + bit // 8, last)] >> bit % 8 & 1 == 0)
    values = _decode_values(
        batch, row, slots=row + head + 8 * index, valid=valid, data_type=data_type
    )
    return None if values is None else FieldColumn(values, valid, has_arity)


def _decode_values(
    batch: BinaryBatch, row: Indices, slots: Indices, valid: Mask, data_type: AtomicType
) -> AnyArray | None:
    words, name = batch.read_longs(slots), data_type.name
    if name in _INTEGER_DTYPES:
        return (
            (words & 0xFF != 0) if name == TypeRoot.BOOLEAN else words.astype(_INTEGER_DTYPES[name])
        )
    if name in _FLOAT_DTYPES:
        integer_dtype, floating = _FLOAT_DTYPES[name]
        return words.astype(integer_dtype).view(floating).astype(np.float64)
    ends = batch.starts + batch.lengths
    if name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and data_type.params[0] <= 6:
        if data_type.params[0] <= 3:
            return words
        starts = row + (words >> 32)
        if ((starts < row) | (starts + 8 > ends))[valid].any():
            return None
        return batch.read_longs(starts) * 1_000 + (words & 0xFFFFFFFF) // 1_000
    if name == TypeRoot.VARCHAR:
        return _decode_texts(batch, row, slots=slots, words=words, valid=valid)
    return None


def _decode_texts(
    batch: BinaryBatch, row: Indices, slots: Indices, words: Indices, valid: Mask
) -> AnyArray | None:
    inline = words < 0
    starts = np.where(inline, slots, row + (words >> 32))[valid]
    sizes = np.where(inline, words >> 56 & 0x7F, words & 0xFFFFFFFF)[valid]
    ends = (batch.starts + batch.lengths)[valid]
    if ((starts < row[valid]) | (starts + sizes > ends)).any():
        return None
    strings = np.empty(len(words), object)
    strings[valid] = [decode_text(part) for part in batch.slices(starts, starts + sizes)]
    return strings
