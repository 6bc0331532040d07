"""The aggregate functions ``bool_and`` and ``bool_or``.

See docs/format/aggregate-functions.md.
"""

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Indices, Mask, to_arrow_array, to_numpy
from paimon_orch.merge.aggregate.field_aggregator import ColumnOfGroups, ComputingAggregator


class BooleanAggregator(ComputingAggregator):
    """``bool_and`` and ``bool_or``; nulls are ignored."""

    def __init__(
        self, name: str, column: ColumnOfGroups, groups: int, *, conjunction: bool
    ) -> None:
        super().__init__(name, column, groups)
        self._values: Mask = to_numpy(column.values)
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
        return to_arrow_array(self._value, mask=~self._has_value)
