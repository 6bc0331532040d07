"""Field aggregators: the value of one column over the rows of each key, for many keys in lockstep.

The engines feed rows in lockstep: the first row of every key, then the second row of those keys that have one, and so
on. Work stays vectorised over keys, and the rules stay the sequential ones of the format: a fold sees the rows of a
key one after the other. ``groups`` and ``rows`` are index arrays of equal length; no group comes twice in one call.
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
            f"column {self.name!r}: its aggregate function cannot take rows back (-U, -D); set "
            f"'fields.{self.name}.ignore-retract' = 'true' to leave them out"
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
        self.at: Indices = np.full(groups, _NO_ROW, np.int64)

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""
        self.at[groups] = np.where(self.valid[rows], rows, _NO_ROW)

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        self.at[groups] = _NO_ROW

    def result(self) -> pa.Array:
        """Return the selected values."""
        return self.column.take(pa.array(self.at, mask=self.at == _NO_ROW))


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
        self.at[groups[some]] = rows[some]

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value only if there is none."""
        some = self.at[groups] == _NO_ROW
        self.add(groups[some], rows[some])

    def retract(self, groups: Indices, rows: Indices) -> None:
        """Reset to null if the retracted value is not null."""
        self.at[groups[self.valid[rows]]] = _NO_ROW


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
        """Select the row's value, except in the first call of a group, which keeps the current value.

        Java calls its function with the two arguments exchanged; what it remembers of earlier calls stays the same.
        """
        known = self._has_first[groups]
        self.reset(groups[known], rows[known])
        self._has_first[groups] = True


class FirstNonNullValue(FirstValue):
    """``first_non_null_value``."""

    def add(self, groups: Indices, rows: Indices) -> None:
        """Select the first value that is not null."""
        some = self.valid[rows]
        super().add(groups[some], rows[some])

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Select the row's value, null or not, unless the current value is not yet counted as the first."""
        counts = ~self._has_first[groups] & (self.at[groups] != _NO_ROW)
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
        at = self.at[groups]
        better = self.valid[rows] & ((at == _NO_ROW) | (self._ranks[rows] > self._ranks[at]))
        self.at[groups[better]] = rows[better]


class BooleanAggregator(FieldAggregator):
    """``bool_and`` and ``bool_or``; nulls are ignored."""

    def __init__(self, name: str, column: pa.Array, groups: int, *, conjunction: bool) -> None:
        super().__init__(name, column, groups)
        self._values: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
        self._conjunction = conjunction
        self._value: Mask = np.zeros(groups, bool)
        self._known: Mask = np.zeros(groups, bool)

    def add(self, groups: Indices, rows: Indices) -> None:
        """Combine with the row's value."""
        some = self.valid[rows]
        groups, values = groups[some], self._values[rows[some]]
        old, known = self._value[groups], self._known[groups]
        combined = old & values if self._conjunction else old | values
        self._value[groups] = np.where(known, combined, values)
        self._known[groups] = True

    def reset(self, groups: Indices, rows: Indices) -> None:
        """Reset to a row's value."""
        self._value[groups], self._known[groups] = self._values[rows], self.valid[rows]

    def clear(self, groups: Indices) -> None:
        """Reset to null."""
        self._known[groups] = False

    def result(self) -> pa.Array:
        """Return the combined values."""
        return pa.array(self._value, mask=~self._known)
