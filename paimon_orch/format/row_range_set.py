"""Sets of row ids as sorted ranges."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.format.arrays import Int64Array, Mask, Positions

MAX_ROW_ID = 1 << 62
"""The end of the row ids: sums of greater ones overflow, so metadata with them is not used."""


@dataclass(frozen=True, slots=True, eq=False)
class RowRanges:
    """A set of row ids: disjoint ranges in ascending order, with a gap between them."""

    starts: Int64Array
    ends: Int64Array
    """The ids after the last rows."""

    @classmethod
    def of(cls, starts: Int64Array, ends: Int64Array) -> "RowRanges":
        """Return the union of ranges in any order, which may overlap."""
        is_filled = starts < ends
        return _sweep(starts[is_filled], ends[is_filled], 1)

    @classmethod
    def of_positions(cls, positions: Positions) -> "RowRanges":
        """Return the set of ascending row ids."""
        if not len(positions):
            return EMPTY_ROW_RANGES
        breaks = np.flatnonzero(np.diff(positions) != 1) + 1
        starts = np.concatenate([positions[:1], positions[breaks]])
        ends = np.concatenate([positions[breaks - 1], positions[-1:]]) + 1
        return cls(starts, ends)

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return int((self.ends - self.starts).sum())

    def __bool__(self) -> bool:
        """Return whether there are any rows."""
        return len(self.starts) > 0

    def __or__(self, other: "RowRanges") -> "RowRanges":
        """Return the rows of either set."""
        return unite_row_ranges([self, other])

    def __and__(self, other: "RowRanges") -> "RowRanges":
        """Return the rows of both sets."""
        starts = np.concatenate([self.starts, other.starts])
        return _sweep(starts, np.concatenate([self.ends, other.ends]), 2)

    def __sub__(self, other: "RowRanges") -> "RowRanges":
        """Return the rows of this set that are not in the other set."""
        limits = np.iinfo(np.int64)
        gaps = RowRanges(np.append(limits.min, other.ends), np.append(other.starts, limits.max))
        return self & gaps

    def shift(self, offset: int) -> "RowRanges":
        """Return the rows with other ids."""
        return RowRanges(self.starts + offset, self.ends + offset)

    def clip(self, start: int, end: int) -> "RowRanges":
        """Return the rows from ``start`` to ``end``, exclusive."""
        if start >= end:
            return EMPTY_ROW_RANGES
        low = int(np.searchsorted(self.ends, start, "right"))
        high = int(np.searchsorted(self.starts, end, "left"))
        starts, ends = self.starts[low:high], self.ends[low:high]
        return RowRanges(np.maximum(starts, start), np.minimum(ends, end))

    def overlaps(self, starts: Int64Array, ends: Int64Array) -> Mask:
        """Return which of some ranges have a row of the set."""
        if not self:
            return np.zeros(len(starts), bool)
        indices = np.searchsorted(self.ends, starts, "right")
        following = np.append(self.starts, np.iinfo(np.int64).max)[indices]
        overlapping: Mask = (following < ends) & (starts < ends)
        return overlapping

    def to_positions(self, start: int, end: int) -> Positions:
        """Return the rows from ``start`` to ``end``, exclusive, counted from ``start``."""
        clipped = self.clip(start, end)
        starts, counts = clipped.starts - start, clipped.ends - clipped.starts
        before = np.cumsum(counts) - counts
        return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


EMPTY_ROW_RANGES = RowRanges(np.empty(0, np.int64), np.empty(0, np.int64))


def unite_row_ranges(sets: Sequence[RowRanges]) -> RowRanges:
    """Return the rows of any of the sets."""
    if not sets:
        return EMPTY_ROW_RANGES
    return _sweep(
        np.concatenate([rows.starts for rows in sets]),
        np.concatenate([rows.ends for rows in sets]),
        1,
    )


def _sweep(starts: Int64Array, ends: Int64Array, depth: int) -> RowRanges:
    """Return the rows that are in at least ``depth`` of the ranges."""
    if not len(starts):
        return EMPTY_ROW_RANGES
    edges = np.concatenate([starts, ends])
    steps = np.repeat(np.array([1, -1]), len(starts))
    # Ranges that only touch have no row in common, but their union is one range.
    order = np.lexsort((steps if depth > 1 else -steps, edges))
    is_inside = np.cumsum(steps[order]) >= depth
    changes = np.flatnonzero(np.diff(is_inside, prepend=False))
    bounds = edges[order][changes]
    return RowRanges(bounds[::2], bounds[1::2])
