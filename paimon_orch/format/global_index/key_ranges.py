"""The keys that a query selects, and the decoding of stored keys.

See docs/format/global-index-files.md#keys.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paimon_orch.format.file_index.index_keys import Key, get_key_codec, has_byte_keys
from paimon_orch.format.file_index.index_query import IndexFilter, IndexQuery
from paimon_orch.format.global_index.index_blocks import read_varint
from paimon_orch.format.global_index.sorted_column import has_nanoseconds
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Leaf, Operator

_MILLIS_BYTES = 8
_MICROS_PER_MILLI, _NANOS_PER_MICRO = 1000, 1000
_INFINITY_AND_NAN = {4: (0x7F800000, 0x7FC00000), 8: (0x7FF << 52, 0x7FF8 << 48)}
_LIKE_WILDCARDS = "%_\\"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys between two bounds; None is no bound."""

    low: Key | None = None
    high: Key | None = None
    excludes_low: bool = False
    excludes_high: bool = False

    def find(self, count: int, key_at: Callable[[int], Key]) -> tuple[int, int]:
        """Return the first and the end index of the keys among ``count`` ascending keys."""
        start, end, indices = 0, count, range(count)
        if self.low is not None:
            bisect = bisect_right if self.excludes_low else bisect_left
            start = bisect(indices, self.low, key=key_at)
        if self.high is not None:
            bisect = bisect_left if self.excludes_high else bisect_right
            end = bisect(indices, self.high, key=key_at)
        return start, max(start, end)

    def overlaps(self, first: Key, last: Key) -> bool:
        """Return whether keys from ``first`` to ``last`` may be in the range."""
        start, end = self.find(2, lambda index: (first, last)[index])
        return start < 2 and end > 0


def decode_key(data: bytes, data_type: AtomicType) -> Key:
    """Return a stored key as file indexes represent it. Raises ``ValueError`` for a wrong length."""
    if has_byte_keys(data_type):
        return data
    if has_nanoseconds(data_type):
        nanos, end = read_varint(data, _MILLIS_BYTES)
        millis = int.from_bytes(data[:_MILLIS_BYTES], "little", signed=True)
        key, width = millis * _MICROS_PER_MILLI + nanos // _NANOS_PER_MICRO, end
    else:
        codec = get_key_codec(data_type)
        key, width = int.from_bytes(data, "little", signed=True), codec.width
        if codec.is_float:
            key = _to_sortable(key, width)
    if len(data) != width:
        raise ValueError(f"a key has {len(data)} bytes, but its type has {width}")
    return key


def _to_sortable(bits: int, width: int) -> int:
    """Return the integer of a floating-point number in total order; all NaNs are equal."""
    largest = (1 << 8 * width - 1) - 1
    infinity, nan = _INFINITY_AND_NAN[width]
    if bits & largest > infinity:
        return nan
    return bits if bits >= 0 else bits ^ largest


@dataclass(frozen=True, slots=True)
class KeySelection:
    """The rows that a test of a column may select."""

    ranges: tuple[KeyRange, ...] = ()
    nulls: bool = False


def select_keys(
    index_filter: IndexFilter, leaf: Leaf, data_type: AtomicType, *, negated: bool
) -> KeySelection | None:
    """Return the keys of the rows that may pass a test; None if an index cannot decide it."""
    if leaf.op is Operator.LIKE and not negated and (prefix := _find_prefix(leaf)):
        # UTF-8 has no byte 0xFF, so the next prefix of the same length exists.
        end = prefix[:-1] + bytes((prefix[-1] + 1,))
        return KeySelection((KeyRange(prefix, end, excludes_high=True),))
    queries = index_filter.plan_queries(leaf, data_type, negated=negated)
    if queries is None:
        return None
    ranges = list[KeyRange]()
    for query in queries:
        if query.op is Operator.IS_NULL:
            return KeySelection(nulls=True)
        ranges += _to_ranges(query)
    return KeySelection(tuple(ranges))


def _to_ranges(query: IndexQuery) -> Sequence[KeyRange]:
    match query.op:
        case Operator.EQUAL | Operator.IN:
            return [KeyRange(key, key) for key in sorted(set(query.keys))]
        case Operator.LESS | Operator.LESS_OR_EQUAL:
            return [KeyRange(high=query.keys[0], excludes_high=query.op is Operator.LESS)]
        case Operator.GREATER | Operator.GREATER_OR_EQUAL:
            return [KeyRange(low=query.keys[0], excludes_low=query.op is Operator.GREATER)]
    return [KeyRange()]  # few keys are excluded


def _find_prefix(leaf: Leaf) -> bytes:
    """Return the text before the first wildcard of a pattern with wildcards."""
    pattern: str = leaf.values[0].as_py()
    places = [pattern.find(char) for char in _LIKE_WILDCARDS if char in pattern]
    return pattern[: min(places)].encode() if places else b""
