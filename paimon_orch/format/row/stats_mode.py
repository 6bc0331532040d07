"""Statistics modes: which statistics are stored, and to what length bounds are truncated.

See docs/format/statistics.md#modes.
"""

import re
from dataclasses import dataclass

from paimon_orch.errors import InputError
from paimon_orch.format.row.simple_stats import Bound, ColumnStats
from paimon_orch.format.text import RawText, decode_text, encode_text
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot

_SURROGATES = range(0xD800, 0xE000)
_TRUNCATE = re.compile(r"truncate\((\d{1,10})\)")


@dataclass(frozen=True, slots=True)
class StatsMode:
    """The value of ``metadata.stats-mode``; ``length`` is None unless bounds are truncated."""

    bounds: bool
    counts: bool
    length: int | None = None

    @classmethod
    def parse(cls, text: str) -> "StatsMode":
        """Parse none, counts, full or truncate(n)."""
        text = text.strip().lower()
        if text in ("none", "counts", "full"):
            return cls(text == "full", text != "none")
        match = _TRUNCATE.fullmatch(text)
        if match is None or int(match.group(1)) < 1:
            raise InputError(
                f"'metadata.stats-mode' = {text!r} must be none, counts, full or truncate(n)"
            )
        return cls(True, True, int(match.group(1)))

    def apply(self, stats: ColumnStats) -> ColumnStats:
        """Return the part of full statistics that this mode stores."""
        low, high = (stats.min, stats.max) if self.bounds else (None, None)
        if self.length is not None:
            low, high = _truncate_bounds(low, high, self.length)
        return ColumnStats(low, high, stats.null_count if self.counts else None)


FULL_STATS = StatsMode(bounds=True, counts=True)


def _truncate_bounds(low: object, high: object, length: int) -> tuple[object, object]:
    """Truncate text and binary bounds; if there is no upper bound, drop both."""
    if isinstance(low, str) and isinstance(high, str):
        text = truncate_max(high, length)
        return (None, None) if text is None else (truncate_min(low, length), text)
    if isinstance(low, bytes) and isinstance(high, bytes):
        data = truncate_max(high, length)
        return (None, None) if data is None else (truncate_min(low, length), data)
    return low, high


def has_bounds(data_type: DataType) -> bool:
    """Return whether columns of this type have a stored minimum and maximum.

    See docs/format/statistics.md#sources-of-bounds.
    """
    if not isinstance(data_type, AtomicType) or data_type.name in (
        TypeRoot.BINARY,
        TypeRoot.VARBINARY,
    ):
        return False
    return not (data_type.name.startswith(TypeRoot.TIMESTAMP) and data_type.params[0] > 6)


def truncate_min(value: Bound, length: int) -> Bound:
    """Return a lower bound of at most ``length`` code points or bytes."""
    return value[:length]


def truncate_max(value: Bound, length: int) -> Bound | None:
    """Return an upper bound of at most ``length`` code points or bytes, or None.

    Java increments U+D7FF to a surrogate and stores it as ``?``, so its bound is too small; here
    it becomes U+E000. See docs/format/statistics.md#truncation.
    """
    if len(value) <= length:
        return value
    if isinstance(value, RawText):
        data = truncate_max(encode_text(value), len(encode_text(value[:length])))
        return None if data is None else decode_text(data)
    if isinstance(value, str):
        for index in range(length - 1, -1, -1):
            successor = ord(value[index]) + 1
            successor = _SURROGATES.stop if successor in _SURROGATES else successor
            if successor <= 0x10FFFF:
                return value[:index] + chr(successor)
        return None
    prefix = value[:length].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
