"""Aggregate functions that select the value of one row: first, last, ``max`` and ``min``.

See docs/format/aggregate-functions.md.
"""

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Indices, Mask, to_numpy
from paimon_orch.merge.aggregate.field_aggregator import ColumnOfGroups, FieldAggregator
from paimon_orch.merge.sort.key_order import to_comparable_column
from paimon_orch.merge.sort.sequence_order import compute_dense_rank

_NO_ROW = -1


class SelectingAggregator(FieldAggregator):
    """An aggregator that selects the value of one row."""

    row_indices: Indices
    """The index of the selected row of each group, or -1 for null."""

    def __init__(self, name: str, column: ColumnOfGroups, groups: int) -> None:
        super().__init__(name, column, groups)
        self.row_indices = np.full(groups, _NO_ROW, np.int64)

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""
        self.row_indices[groups] = np.where(self.valid[rows], rows, _NO_ROW)

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        self.row_indices[groups] = _NO_ROW


class LastValue(SelectingAggregator):
    """``last_value``, also for columns that every accepted row overwrites; nulls overwrite too."""

    def add(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value, null or not."""
        self.reset(groups, rows)

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Keep the newer value."""

    def retract(self, groups: Indices, rows: Indices) -> None:  # noqa: ARG002
        """Reset to null."""
        self.clear(groups)


class LastNonNullValue(SelectingAggregator):
    """``last_non_null_value``, the default of partial-update and aggregation."""

    def add(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value unless it is null."""
        some = self.valid[rows]
        self.row_indices[groups[some]] = rows[some]

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value only if the group has no value yet."""
        some = self.row_indices[groups] == _NO_ROW
        self.add(groups[some], rows[some])

    def retract(self, groups: Indices, rows: Indices) -> None:
        """Reset to null if the retracted value is not null."""
        self.row_indices[groups[self.valid[rows]]] = _NO_ROW


class FirstValue(SelectingAggregator):
    """``first_value``: the value of the first row, null or not."""

    def __init__(self, name: str, column: ColumnOfGroups, groups: int) -> None:
        super().__init__(name, column, groups)
        self._has_first: Mask = np.zeros(groups, bool)

    def add(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value if it is the first."""
        first = ~self._has_first[groups]
        self.reset(groups[first], rows[first])
        self._has_first[groups[first]] = True

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value, but keep the current value in the first call of a group.

        Java Paimon swaps the two arguments of its function, but not the state of earlier calls.
        """
        has_first = self._has_first[groups]
        self.reset(groups[has_first], rows[has_first])
        self._has_first[groups] = True


class FirstNonNullValue(FirstValue):
    """``first_non_null_value``."""

    def add(self, groups: Indices, rows: Indices) -> None:
        """Select the first value that is not null."""
        some = self.valid[rows]
        super().add(groups[some], rows[some])

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value, unless the current value is the first one."""
        counts = ~self._has_first[groups] & (self.row_indices[groups] != _NO_ROW)
        self.reset(groups[~counts], rows[~counts])
        self._has_first[groups[counts]] = True


class MinMaxAggregator(SelectingAggregator):
    """``max`` or ``min`` in the order of the format; nulls are ignored."""

    def __init__(self, name: str, column: ColumnOfGroups, groups: int, *, largest: bool) -> None:
        super().__init__(name, column, groups)
        comparable = to_comparable_column(column.values)
        if pa.types.is_integer(comparable.type):
            ranks = to_numpy(comparable)
        else:
            ranks = compute_dense_rank(comparable)
        self._ranks = ranks if largest else ~ranks

    def add(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value if it is more extreme."""
        current = self.row_indices[groups]
        better = self.valid[rows] & (
            (current == _NO_ROW) | (self._ranks[rows] > self._ranks[current])
        )
        self.row_indices[groups[better]] = rows[better]
