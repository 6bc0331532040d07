"""Field aggregators: compute one column from the rows of each key, for many keys in lockstep.

Merge functions pass the first row of every key, then the second row of the keys that have one, and
so on. This vectorizes over keys, and an aggregator still receives the rows of a key in sequence, as
the format requires. ``groups`` and ``rows`` are index arrays of equal length; the groups of one
call are distinct.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask, to_arrow_array, to_numpy, to_one_array


class ColumnOfGroups:
    """One column of the rows of some groups, which are a part of the rows of a batch.

    Values are copied only for aggregators that compute with them.
    """

    def __init__(self, column: pa.ChunkedArray, rows: Indices) -> None:
        self.batch_column = column
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def valid(self) -> Mask:
        """A mask of the values that are not null."""
        if not self.batch_column.null_count:
            return np.ones(len(self), bool)
        mask: Mask = to_numpy(self.batch_column.is_valid())[self._rows]
        return mask

    @cached_property
    def values(self) -> pa.Array:
        """The values as one array, which is not a dictionary array."""
        taken = pc.take(self.batch_column, to_arrow_array(self._rows), boundscheck=False)
        column = to_one_array(taken)
        is_dictionary = pa.types.is_dictionary(column.type)
        return column.cast(column.type.value_type) if is_dictionary else column


class FieldAggregator(ABC):
    """The state of one column for a number of groups."""

    def __init__(self, name: str, column: ColumnOfGroups, groups: int) -> None:
        self.name = name
        self.ignores_retract = False
        self.valid = column.valid
        self.groups = groups

    @abstractmethod
    def add(self, groups: Indices, rows: Indices) -> None:
        """Add a row to each group."""

    def add_older(self, groups: Indices, rows: Indices) -> None:
        """Add a row whose sequence in its sequence group is older than that of earlier rows."""
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


class ComputingAggregator(FieldAggregator):
    """An aggregator that computes new values."""

    @abstractmethod
    def result(self) -> pa.Array:
        """Return one value per group."""
