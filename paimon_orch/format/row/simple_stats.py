"""Column statistics of data files and manifests.

See docs/format/manifest.md#simplestats-record and docs/format/statistics.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from paimon_orch.format.row.binary_row import EMPTY_ROW, serialize_row
from paimon_orch.format.types.data_types import DataType

Bound = TypeVar("Bound", str, bytes)


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds and null count of one column as internal values; None means unknown."""

    min: object = None
    max: object = None
    null_count: int | None = None


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Statistics as stored: serialized rows of minima and maxima, and null counts."""

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] | None = ()

    @classmethod
    def of(cls, columns: Sequence[ColumnStats], types: Sequence[DataType]) -> "SimpleStats":
        """Encode the statistics of columns of these types."""
        return cls(
            serialize_row([column.min for column in columns], types),
            serialize_row([column.max for column in columns], types),
            tuple(column.null_count for column in columns),
        )

    def find_null_count(self, index: int) -> int | None:
        """Return the null count of a column, or None if it is unknown.

        Java Paimon stores -1 for columns without statistics in the footer.
        """
        counts = self.null_counts or ()
        count = counts[index] if index < len(counts) else None
        return None if count is None or count < 0 else count


UNKNOWN_STATS = ColumnStats()
EMPTY_STATS = SimpleStats()
