"""Encodes whole columns of bucket keys as the BinaryRow bytes of each row, as 32-bit words.

Rows are a matrix of fixed slots, followed by the variable parts of the columns.

See docs/format/binary-row.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Int64Array, Mask, UInt8Array, UInt32Array, to_numpy
from paimon_orch.format.row.binary_row import null_bits_size
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot


class VariableLengthRows(NamedTuple):
    """Concatenated rows of different lengths."""

    words: UInt32Array
    starts: Int64Array
    """The first word of each row."""
    counts: Int64Array
    """The number of words of each row."""


def encode_rows(
    columns: Sequence[pa.Array], types: Sequence[DataType]
) -> UInt32Array | VariableLengthRows:
    """Encode columns of equal length as rows; returns a matrix if all rows have equal lengths."""
    rows, arity = len(columns[0]), len(columns)
    head = null_bits_size(arity)
    fixed = np.zeros((rows, head + 8 * arity), np.uint8)
    offsets = np.full(rows, head + 8 * arity, np.int64)
    variable: list[tuple[Int64Array, Int64Array, UInt8Array]] = []
    for index, (column, data_type) in enumerate(zip(columns, types, strict=True)):
        valid = to_numpy(column.is_valid())
        fixed[~valid, (index + 8) // 8] |= 1 << (index + 8) % 8
        slot = fixed[:, head + 8 * index : head + 8 * index + 8]
        part = _write_column(slot, column, valid=valid, data_type=data_type, offsets=offsets)
        if part is not None:
            variable.append(part)
            offsets += part[0]
    if not variable:
        return fixed.view(np.uint32)
    return _assemble_rows(fixed, offsets, variable)


def _write_column(
    slot: UInt8Array, column: pa.Array, valid: Mask, data_type: DataType, offsets: Int64Array
) -> tuple[Int64Array, Int64Array, UInt8Array] | None:
    """Fill the slots of one column; return its variable part, or None for fixed-length types."""
    if not isinstance(data_type, AtomicType):
        raise InputError(f"a bucket key must have a simple type, not {data_type}")
    name, params = data_type.name, data_type.params
    if name in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY):
        return _write_text(slot, column, offsets)
    if name == TypeRoot.DECIMAL:
        return _write_decimal(slot, column, valid=valid, precision=params[0], offsets=offsets)
    if name in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and params[0] > 3:
        per_milli = 1_000 if params[0] <= 6 else 1_000_000
        ticks = _to_int64(column)
        millis, sub_millis = np.divmod(ticks, per_milli)
        slot[:] = _to_little_endian_bytes(offsets << 32 | sub_millis * (1_000_000 // per_milli), 8)
        sizes = np.full(len(column), 8, np.int64)
        return (
            sizes,
            np.arange(0, 8 * len(column), 8),
            _to_little_endian_bytes(millis, 8).reshape(-1),
        )
    if name in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        width = 4 if name == TypeRoot.FLOAT else 8
        floats = to_numpy(column)
        slot[:, :width] = _to_little_endian_bytes(floats.astype(f"<f{width}"), width)
        return None
    width = {
        TypeRoot.BOOLEAN: 1,
        TypeRoot.TINYINT: 1,
        TypeRoot.SMALLINT: 2,
        TypeRoot.INT: 4,
        TypeRoot.DATE: 4,
        TypeRoot.TIME: 4,
    }.get(name, 8)
    slot[:, :width] = _to_little_endian_bytes(_to_int64(column), 8)[:, :width]
    return None


def _to_int64(column: pa.Array) -> Int64Array:
    """Return integers, booleans, dates, times and timestamps as 64-bit integers; null is 0."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    result: Int64Array = to_numpy(column.cast(pa.int64()))
    return result


def _to_little_endian_bytes(values: npt.NDArray[np.generic], width: int) -> UInt8Array:
    """Return the little-endian bytes of each value as a matrix."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).view(np.uint8).reshape(len(values), width)


def _write_text(
    slot: UInt8Array, column: pa.Array, offsets: Int64Array
) -> tuple[Int64Array, Int64Array, UInt8Array]:
    binary = column.fill_null("" if pa.types.is_string(column.type) else b"").cast(
        pa.large_binary()
    )
    _, offset_buffer, data_buffer = binary.buffers()
    ends = np.frombuffer(offset_buffer, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    inline = lengths <= 7
    slot[:] = _to_little_endian_bytes(np.where(inline, 0, offsets << 32 | lengths), 8)
    valid = to_numpy(column.is_valid())
    slot[inline & valid, 7] = (0x80 | lengths[inline & valid]).astype(np.uint8)
    for position in range(7):
        has_byte = lengths > position
        has_byte &= inline
        slot[has_byte, position] = data[starts[has_byte] + position]
    sizes = np.where(inline, 0, lengths + -lengths % 8)
    padded = np.zeros(int(sizes.sum()), np.uint8)
    into = np.cumsum(sizes) - sizes
    count = np.where(inline, 0, lengths)
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    padded[np.repeat(into, count) + within] = data[np.repeat(starts, count) + within]
    return sizes, into, padded


def _write_decimal(
    slot: UInt8Array, column: pa.Array, valid: Mask, precision: int, offsets: Int64Array
) -> tuple[Int64Array, Int64Array, UInt8Array] | None:
    scale = column.type.scale
    column = pc.cast(column, pa.decimal128(38, scale))
    words = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, 16)
    words = np.where(valid[:, None], words[column.offset : column.offset + len(column)], 0)
    if precision <= 18:
        slot[:] = words[:, :8]
        return None
    big = words[:, ::-1]  # 16 big-endian bytes of each value
    sign = big[:, 0] >> 7
    filler = np.where(sign, 0xFF, 0)[:, None]
    # a leading filler byte is dropped if the next byte has the same sign bit
    droppable = (big[:, :-1] == filler) & ((big[:, 1:] >> 7) == sign[:, None])
    drop = np.argmin(np.c_[droppable, np.zeros(len(big), bool)], axis=1)
    places = np.arange(16)[None, :] + drop[:, None]
    minimal = np.where(places < 16, np.take_along_axis(big, np.minimum(places, 15), axis=1), 0)
    lengths = np.where(valid, 16 - drop, 0)
    slot[:] = _to_little_endian_bytes(offsets << 32 | lengths, 8)
    variable = np.where(valid[:, None], minimal, 0).astype(np.uint8)
    return np.full(len(big), 16, np.int64), np.arange(0, 16 * len(big), 16), variable.reshape(-1)


def _assemble_rows(
    fixed: UInt8Array, sizes: Int64Array, variable: list[tuple[Int64Array, Int64Array, UInt8Array]]
) -> VariableLengthRows:
    """Append the variable parts of each row to its fixed part."""
    width = fixed.shape[1]
    starts = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()) // 8, np.uint64)
    fixed_words = np.ascontiguousarray(fixed).view(np.uint64)
    out[(starts[:, None] >> 3) + np.arange(width // 8)] = fixed_words
    targets = starts + width
    for part_sizes, part_starts, data in variable:
        count = part_sizes >> 3
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        source = data.view(np.uint64)
        out[np.repeat(targets >> 3, count) + within] = source[
            np.repeat(part_starts >> 3, count) + within
        ]
        targets += part_sizes
    return VariableLengthRows(out.view(np.uint32), starts >> 2, sizes >> 2)
