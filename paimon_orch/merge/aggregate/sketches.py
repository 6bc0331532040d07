"""Aggregate functions over serialized sets: roaring bitmaps, theta and HLL sketches.

See docs/format/aggregate-functions.md.
"""

import struct
from collections.abc import Callable

from paimon_orch.errors import InputError
from paimon_orch.format.bytes.roaring_union import union_bitmaps_32, union_bitmaps_64
from paimon_orch.merge.aggregate.python_aggregator import CombineFunction

_EMPTY_THETA = bytes.fromhex("01030300001e0000")
_SINGLE_ITEM = 0x20
_SAMPLING_RATE_ONE = struct.pack("<f", 1)
_MIN_LG_K = 7  # the smallest value that the library accepts for unions


def bitmap_union(bits: int) -> CombineFunction:
    """Return the union of serialized roaring bitmaps of 32 or 64 bits."""
    return _combine_non_null(union_bitmaps_32 if bits == 32 else union_bitmaps_64, "roaring bitmap")


def theta_sketch_union() -> CombineFunction:
    """Return the union of serialized theta sketches, as an ordered compact sketch."""

    def union(old: bytes, new: bytes) -> bytes:
        from datasketches import compact_theta_sketch, theta_union

        accumulator = theta_union()
        for data in (old, new):
            accumulator.update(compact_theta_sketch.deserialize(data))
        result = accumulator.get_result()
        return _EMPTY_THETA if result.is_empty() else _to_java_theta(bytes(result.serialize()))

    return _combine_non_null(union, "theta sketch")


def _to_java_theta(theta: bytes) -> bytes:
    """Add the single-item flag and the sampling rate, which only Java's library writes."""
    if theta[0] < 2:
        return theta[:5] + bytes([theta[5] | _SINGLE_ITEM]) + theta[6:]
    return theta[:12] + _SAMPLING_RATE_ONE + theta[16:]


def hll_sketch_union() -> CombineFunction:
    """Return the union of serialized HLL sketches as HLL_4, with the later sketch's precision."""

    def union(old: bytes, new: bytes) -> bytes:
        from datasketches import hll_sketch, hll_union, tgt_hll_type

        earlier, later = hll_sketch.deserialize(old), hll_sketch.deserialize(new)
        accumulator = hll_union(max(later.lg_config_k, _MIN_LG_K))
        accumulator.update(later)
        accumulator.update(earlier)
        return bytes(accumulator.get_result(tgt_hll_type.HLL_4).serialize_compact())

    return _combine_non_null(union, "HLL sketch")


def _combine_non_null(union: Callable[[bytes, bytes], bytes], name: str) -> CombineFunction:
    """Return a union that ignores nulls. Error messages contain the type of invalid input."""

    def combine(old: bytes | None, new: bytes | None) -> bytes | None:
        if old is None or new is None:
            return old if new is None else new
        try:
            return union(old, new)
        except (ValueError, LookupError, RuntimeError, struct.error) as error:
            raise InputError(f"a value is not a serialized {name}: {error}") from error

    return combine
