"""Hashes of bloom filters, for whole columns.

XXH64 is hand-written with numpy: with the package ``xxhash``, which hashes one value per call,
building a bloom filter over strings takes 1.9 times as long (``benchmarks/hand_written.py``).

See docs/format/bloom-filter-index.md#hash-of-a-value.
"""

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Int64Array, Mask, UInt64Array
from paimon_orch.format.bytes.binary_batch import BinaryBatch, chunk_longest_first

_CHUNK = 32_768  # values per step; their state fits the processor cache
_PRIME1, _PRIME2, _PRIME3, _PRIME4, _PRIME5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def hash_int64(numbers: Int64Array) -> UInt64Array:
    """Return the 64-bit hash of integers; its shifts are arithmetic.

    See docs/format/bloom-filter-index.md#hash-of-a-value.
    """
    out = np.empty(len(numbers), np.int64)
    for start in range(0, len(numbers), _CHUNK):
        k = numbers[start : start + _CHUNK]
        k = ~k + (k << 21)
        k ^= k >> 24
        k = (k + (k << 3)) + (k << 8)
        k ^= k >> 14
        k = (k + (k << 2)) + (k << 4)
        k ^= k >> 28
        out[start : start + _CHUNK] = k + (k << 31)
    return out.view(np.uint64)


def hash_xxh64(values: pa.BinaryArray) -> UInt64Array:
    """Return the XXH64 hash, with seed 0, of values that are not null."""
    batch = BinaryBatch.from_arrow(values)
    out = np.empty(len(batch.starts), np.uint64)
    for rows in chunk_longest_first(batch.lengths):
        out[rows] = _hash_xxh64_chunk(batch, batch.starts[rows], batch.lengths[rows])
    return out


def _find_rows(mask: Mask) -> "Int64Array | slice":
    """Return the true positions of a mask; a slice if all are true, which is faster in numpy."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _rotate_left(value: UInt64Array, bits: int) -> UInt64Array:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


def _round(state: UInt64Array, word: UInt64Array) -> UInt64Array:
    return _rotate_left(state + word * _PRIME2, 31) * _PRIME1


def _hash_xxh64_chunk(
    batch: BinaryBatch, positions: Int64Array, lengths: Int64Array
) -> UInt64Array:
    """Hash values in descending order of their lengths."""
    words = batch.words64
    state = np.full(len(positions), _PRIME5, np.uint64)
    stripes = lengths >> 5
    long = int(np.count_nonzero(stripes))
    if long:
        state[:long] = _hash_stripes(words, positions[:long], stripes[:long])
    state += lengths.astype(np.uint64)
    positions, remaining = positions + (stripes << 5), lengths & 31
    for _ in range(int(remaining.max(initial=0)) >> 3):
        rows = _find_rows(remaining >= 8)
        word = _round(np.zeros(1, np.uint64), words[positions[rows]])
        state[rows] = _rotate_left(state[rows] ^ word, 27) * _PRIME1 + _PRIME4
        positions[rows] += 8
        remaining[rows] -= 8
    if (remaining >= 4).any():
        rows = _find_rows(remaining >= 4)
        word = (words[positions[rows]] & np.uint64(0xFFFFFFFF)) * _PRIME1
        state[rows] = _rotate_left(state[rows] ^ word, 23) * _PRIME2 + _PRIME3
        positions[rows] += 4
        remaining[rows] -= 4
    for byte in range(int(remaining.max(initial=0))):
        rows = _find_rows(remaining > byte)
        word = batch.data[positions[rows] + byte].astype(np.uint64) * _PRIME5
        state[rows] = _rotate_left(state[rows] ^ word, 11) * _PRIME1
    state ^= state >> np.uint64(33)
    state *= _PRIME2
    state ^= state >> np.uint64(29)
    state *= _PRIME3
    return state ^ state >> np.uint64(32)


def _hash_stripes(words: UInt64Array, positions: Int64Array, stripes: Int64Array) -> UInt64Array:
    """Return the state after the whole 32-byte stripes; each value has at least one."""
    with np.errstate(over="ignore"):
        seeds = (_PRIME1 + _PRIME2, _PRIME2, np.uint64(0), np.uint64(0) - _PRIME1)
    lanes = [np.full(len(positions), seed, np.uint64) for seed in seeds]
    active = len(positions)
    for stripe in range(int(stripes[0])):
        while stripes[active - 1] <= stripe:
            active = int(np.searchsorted(-stripes, -stripe, side="left"))
        for number, lane in enumerate(lanes):
            lane[:active] = _round(
                lane[:active], words[positions[:active] + 32 * stripe + 8 * number]
            )
    rotations = zip(lanes, (1, 7, 12, 18), strict=True)
    state: UInt64Array = sum(
        (_rotate_left(lane, bits) for lane, bits in rotations), np.zeros(len(positions), np.uint64)
    )
    for lane in lanes:
        state = (state ^ _round(np.zeros(1, np.uint64), lane)) * _PRIME1 + _PRIME4
    return state
