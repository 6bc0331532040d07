"""Field aggregators: the value of one column over the rows of each key, for many keys in lockstep.

Merge functions pass the first row of every key, then the second row of the keys that have one, and
so on. Work is vectorized over keys, and an aggregator receives the rows of a key in sequence, as
the format requires. ``groups`` and ``rows`` are index arrays of equal length; the groups of one
call are distinct.
"""

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.merge.sort.key_order import to_comparable_column
from paimon_orch.merge.sort.sequence_order import compute_dense_rank

_NO_ROW = -1


class FieldAggregator(ABC):
    """The state of one column for a number of groups."""

    def __init__(self, name: str, column: pa.Array, groups: int) -> None:
        self.name, self.column = name, column
        self.ignores_retract = False
        self.valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        self.groups = groups

    @abstractmethod
    def add(self, groups: Indices, rows: Indices) -> None:
        """Add a row to each group."""

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Add a row that is older by its sequence group than earlier ones."""
        self.add(groups, rows)

    def take_back(self, groups: Indices, rows: Indices) -> None:
        """Retract a row of each group unless the column ignores retracts."""
        if not self.ignores_retract:
            self.retract(groups, rows)

    def retract(self, groups: Indices, rows: Indices) -> None:  # noqa: ARG002
        """Retract a row of each group."""
        raise InputError(
            f"column {self.name!r}: its aggregate function cannot retract rows (-U, -D); set "
            f"'fields.{self.name}.ignore-retract' = 'true' to ignore them"
        )

    @abstractmethod
    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""

    @abstractmethod
    def clear(self, groups: Indices) -> None:
        """Reset to null."""

    @abstractmethod
    def result(self) -> pa.Array:
        """Return one value per group."""


class SelectingAggregator(FieldAggregator):
    """An aggregator that selects the value of one row; its state is the row index, -1 for null."""

    def __init__(self, name: str, column: pa.Array, groups: int) -> None:
        super().__init__(name, column, groups)
        self.row_indices: Indices = np.full(groups, _NO_ROW, np.int64)

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""
        self.row_indices[groups] = np.where(self.valid[rows], rows, _NO_ROW)

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        self.row_indices[groups] = _NO_ROW

    def result(self) -> pa.Array:
        """Return the selected values."""
        return self.column.take(pa.array(self.row_indices, mask=self.row_indices == _NO_ROW))


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
        """Select the row's value only if there is none."""
        some = self.row_indices[groups] == _NO_ROW
        self.add(groups[some], rows[some])

    def retract(self, groups: Indices, rows: Indices) -> None:
        """Reset to null if the retracted value is not null."""
        self.row_indices[groups[self.valid[rows]]] = _NO_ROW


class FirstValue(SelectingAggregator):
    """``first_value``: the value of the first row, null or not."""

    def __init__(self, name: str, column: pa.Array, groups: int) -> None:
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

    def __init__(self, name: str, column: pa.Array, groups: int, *, largest: bool) -> None:
        super().__init__(name, column, groups)
        comparable = to_comparable_column(column)
        if pa.types.is_integer(comparable.type):
            ranks = comparable.fill_null(0).to_numpy()
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


class BooleanAggregator(FieldAggregator):
    """``bool_and`` and ``bool_or``; nulls are ignored."""

    def __init__(self, name: str, column: pa.Array, groups: int, *, conjunction: bool) -> None:
        super().__init__(name, column, groups)
        self._values: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
        self._conjunction = conjunction
        self._value: Mask = np.zeros(groups, bool)
        self._has_value: Mask = np.zeros(groups, bool)

    def add(self, groups: Indices, rows: Indices) -> None:
        """Combine with the row's value."""
        some = self.valid[rows]
        groups, values = groups[some], self._values[rows[some]]
        old, has_value = self._value[groups], self._has_value[groups]
        combined = old & values if self._conjunction else old | values
        self._value[groups] = np.where(has_value, combined, values)
        self._has_value[groups] = True

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""
        self._value[groups], self._has_value[groups] = self._values[rows], self.valid[rows]

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        self._has_value[groups] = False

    def result(self) -> pa.Array:
        """Return the combined values."""
        return pa.array(self._value, mask=~self._has_value)
