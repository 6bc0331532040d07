"""Field aggregators: compute one column from the rows of each key, for many keys in lockstep.

Merge functions pass the first row of every key, then the second row of the keys that have one, and
so on. This vectorizes over keys, and an aggregator still receives the rows of a key in sequence, as
the format requires. ``groups`` and ``rows`` are index arrays of equal length; the groups of one
call are distinct.
"""

from abc import ABC, abstractmethod

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Indices, Mask


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

    @abstractmethod
    def result(self) -> pa.Array:
        """Return one value per group."""
