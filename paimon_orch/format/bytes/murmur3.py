"""Paimon's murmur3 of one byte string, and of rows of 32-bit words.

It is 32-bit murmur3 with seed 42, except for the one to three bytes after the last whole word:
each is sign-extended and mixed in as a separate word. Packages like ``mmh3`` return a different
hash for these values.

See docs/format/buckets.md#hash.
"""

import struct

import numpy as np

from paimon_orch.format.arrays import Int64Array, UInt32Array

_MASK = 0xFFFFFFFF
_SEED = 42
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_ADDEND = 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35


def hash_bytes(data: bytes) -> int:
    """Return the unsigned hash of one byte string."""
    state, count = _SEED, len(data) // 4
    tail = [byte - 256 if byte > 127 else byte for byte in data[4 * count :]]
    for block in (*struct.unpack_from(f"<{count}I", data), *tail):
        word = block * _C1 & _MASK
        word = (word << 15 | word >> 17) * _C2 & _MASK
        state ^= word
        state = ((state << 13 | state >> 19) * 5 + _ADDEND) & _MASK
    state ^= len(data)
    state = (state ^ state >> 16) * _F1 & _MASK
    state = (state ^ state >> 13) * _F2 & _MASK
    return state ^ state >> 16


def hash_fixed_rows(words: UInt32Array) -> UInt32Array:
    """Return the hash of each row of a matrix of words."""
    state = np.full(len(words), _SEED, np.uint32)
    for index in range(words.shape[1]):
        state = _mix(state, words[:, index])
    return _finalize(state, np.uint32(4 * words.shape[1]))


def hash_variable_rows(words: UInt32Array, starts: Int64Array, counts: Int64Array) -> UInt32Array:
    """Return the hash of each row; row ``i`` has ``counts[i]`` words from ``starts[i]``."""
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    state = _hash_words(words, starts[order], sorted_counts)
    hashes = np.empty(len(order), np.uint32)
    hashes[order] = _finalize(state, (sorted_counts << 2).astype(np.uint32))
    return hashes


def _hash_words(words: UInt32Array, starts: Int64Array, counts: Int64Array) -> UInt32Array:
    """Mix in the words of rows that are sorted by descending count."""
    state = np.full(len(starts), _SEED, np.uint32)
    active = len(starts)
    for index in range(int(counts[0]) if active else 0):
        active = int(np.searchsorted(-counts[:active], -index, side="left"))
        state[:active] = _mix(state[:active], words[starts[:active] + index])
    return state


def _mix(state: UInt32Array, word: UInt32Array) -> UInt32Array:
    word = word * np.uint32(_C1)
    word = word << np.uint32(15) | word >> np.uint32(17)
    state = state ^ word * np.uint32(_C2)
    state = state << np.uint32(13) | state >> np.uint32(19)
    return state * np.uint32(5) + np.uint32(_ADDEND)


def _finalize(state: UInt32Array, byte_counts: "UInt32Array | np.uint32") -> UInt32Array:
    state = state ^ byte_counts
    state = (state ^ state >> np.uint32(16)) * np.uint32(_F1)
    state = (state ^ state >> np.uint32(13)) * np.uint32(_F2)
    return state ^ state >> np.uint32(16)
