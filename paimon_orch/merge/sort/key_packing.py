"""Keys packed into unsigned 64-bit words with the same order, for numpy's sort and search.

The keys of one merge batch are close together, so a column needs only the bits of (largest -
smallest). Text is packed eight bytes at a time. Most composite and text keys of a batch become one
word.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int32Array, Int64Array, UInt8Array, UInt64Array, to_numpy

_WORD_BITS = 64
_MAX_WORDS = 3  # for more words, Arrow's sort is as fast
_MAX_TEXT_BYTES = 64
_MAX_SHORT_DECIMAL_DIGITS = 18  # digits of an unscaled value that fits 64 bits


def pack_keys(columns: Sequence[pa.Array]) -> list[UInt64Array] | None:
    """Return words, the most significant first, with the order and equality of the rows.

    ``columns`` are comparable key columns (see ``key_order``). The result is None if they have
    nulls or do not fit.
    """
    if not len(columns[0]):
        return None
    words: list[UInt64Array] = []
    free = 0
    for column in columns:
        column_words = _split_into_words(column)
        if column_words is None:
            return None
        for word in column_words:
            low, high = word.min(), word.max()
            bits = int(high - low).bit_length()
            if not bits:
                continue
            if bits <= free:
                words[-1] = (words[-1] << np.uint64(bits)) | (word - low)
                free -= bits
            else:
                words.append(word - low)
                free = _WORD_BITS - bits
    if len(words) > _MAX_WORDS:
        return None
    return words or [np.zeros(len(columns[0]), np.uint64)]


def _split_into_words(column: pa.Array) -> list[UInt64Array] | None:
    """Return a column as numbers, the most significant first."""
    kind = column.type
    if column.null_count:
        return None
    if pa.types.is_integer(kind):
        return [_to_unsigned(to_numpy(column).astype(np.int64, copy=False))]
    if isinstance(kind, pa.Decimal128Type) and kind.precision <= _MAX_SHORT_DECIMAL_DIGITS:
        low_halves = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :: 2]
        return [_to_unsigned(low_halves[: len(column)])]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _split_text(column)
    return None


def _to_unsigned(values: Int64Array) -> UInt64Array:
    return values.view(np.uint64) ^ np.uint64(1 << (_WORD_BITS - 1))


def _split_text(column: pa.Array) -> list[UInt64Array] | None:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    lengths = np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if not longest:
        return []
    if longest > _MAX_TEXT_BYTES:
        return None
    text = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate((text, np.zeros(longest + 8, np.uint8)))
    if shortest == longest:
        return list(_read_equal_length_chunks(padded, len(column), longest))
    if not text.all():
        return None  # a zero byte cannot be distinguished from the padding of shorter values
    return list(_read_chunks(padded, offsets[:-1] - offsets[0], lengths, longest))


def _read_equal_length_chunks(text: UInt8Array, rows: int, length: int) -> Iterator[UInt64Array]:
    for start in range(0, length, 8):
        chunk = np.ndarray((rows,), ">u8", text, offset=start, strides=(length,)).astype(np.uint64)
        yield chunk >> np.uint64(8 * max(0, start + 8 - length))


def _read_chunks(
    text: UInt8Array,
    starts: Int32Array,
    lengths: Int32Array,
    longest: int,
) -> Iterator[UInt64Array]:
    at_every_byte = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))
    for start in range(0, longest, 8):
        chunk = at_every_byte[starts + start].byteswap(inplace=True)
        # the bytes after the end of a value belong to the next value, so they are set to zero
        chunk &= _FIRST_BYTES_MASKS[np.clip(lengths - start, 0, 8)]
        yield chunk >> np.uint64(8 * max(0, start + 8 - longest))


_FIRST_BYTES_MASKS = np.array(
    [(1 << _WORD_BITS) - (1 << (_WORD_BITS - 8 * n)) for n in range(9)], np.uint64
)
