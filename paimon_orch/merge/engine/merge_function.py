"""The base of merge functions: rows of many keys, merged in lockstep.

See docs/format/merge-engines.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import Indices, Mask, to_arrow_array, to_numpy, to_one_array
from paimon_orch.format.row.row_kind import RowKind, is_retract
from paimon_orch.format.schema import VALUE_KIND
from paimon_orch.merge.aggregate.field_aggregator import (
    ColumnOfGroups,
    ComputingAggregator,
    FieldAggregator,
)
from paimon_orch.merge.aggregate.registry import ColumnAggregation
from paimon_orch.merge.aggregate.selected_value import SelectingAggregator


@dataclass(frozen=True, slots=True)
class RowsOfGroups:
    """The rows of some groups of a batch; the rows of a group are adjacent."""

    batch: pa.Table
    indices: Indices
    """The positions of the rows in the batch."""

    def column(self, name: str) -> ColumnOfGroups:
        """Return a column of the rows."""
        return ColumnOfGroups(self.batch.column(name), self.indices)

    def create_aggregators(
        self, aggregations: Iterable[ColumnAggregation], groups: int
    ) -> dict[str, FieldAggregator]:
        """Return the aggregators of the columns that the rows have."""
        names = set(self.batch.column_names)
        return {
            aggregation.name: aggregation.create(self.column(aggregation.name), groups)
            for aggregation in aggregations
            if aggregation.name in names
        }


@dataclass(slots=True, kw_only=True)
class MergeFunction(ABC):
    """Merges the rows of many keys in lockstep: one row of each key at a time."""

    rows: RowsOfGroups
    groups: int
    aggregators: dict[str, FieldAggregator]
    retracts: Mask
    deletes: Mask
    last: Indices = field(init=False)
    deleted: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.last = np.full(self.groups, -1, np.int64)
        self.deleted = np.zeros(self.groups, bool)

    @abstractmethod
    def take(self, groups: Indices, rows: Indices) -> None:
        """Merge the next row of some groups."""

    def apply_delete(self, groups: Indices, rows: Indices) -> None:
        """Delete the row; a later row is merged with the values of the delete."""
        for aggregator in self.aggregators.values():
            aggregator.reset(groups, rows)
        self.deleted[groups] = True

    def result(self, row_indices: Indices, merged: Indices, *, deletes: bool) -> pa.Table:
        """Return one row for each key of the batch, each value taken from the batch only once.

        :param row_indices: a row of the batch for each key
        :param merged: the positions of the keys whose rows this function merged
        :param deletes: whether to return a -D row for a deleted key
        """
        batch = self.rows.batch
        kinds = to_numpy(batch.column(VALUE_KIND.name))[row_indices]
        kinds[merged] = np.where(self.deleted, int(RowKind.DELETE), int(RowKind.INSERT))
        keep = slice(None) if deletes else np.flatnonzero(~is_retract(to_arrow_array(kinds)))
        row_indices = row_indices.copy()

        def take(column: pa.ChunkedArray, indices: Indices) -> pa.ChunkedArray:
            row_indices[merged] = indices
            kept = row_indices[keep]
            has_null = bool((indices < 0).any())
            selection = to_arrow_array(kept, mask=kept < 0) if has_null else to_arrow_array(kept)
            return pc.take(column, selection, boundscheck=False)

        columns = []
        for name, column in zip(batch.column_names, batch.columns, strict=True):
            aggregator = self.aggregators.get(name)
            if name == VALUE_KIND.name:
                columns.append(pa.chunked_array([to_arrow_array(kinds[keep])]))
            elif isinstance(aggregator, ComputingAggregator):
                values = aggregator.result()
                if pa.types.is_dictionary(column.type):
                    values = values.dictionary_encode()
                extended = pa.chunked_array([*column.chunks, values], column.type)
                columns.append(take(extended, len(column) + np.arange(self.groups)))
            elif isinstance(aggregator, SelectingAggregator):
                selected = aggregator.row_indices
                columns.append(
                    take(column, np.where(selected < 0, -1, self.rows.indices[selected]))
                )
            else:  # the key and the sequence number are taken from the last row
                columns.append(take(column, self.rows.indices[self.last]))
        return pa.table(columns, schema=batch.schema)


def contiguous_column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    return to_one_array(rows.column(name))


MergeFunctionFactory = Callable[[RowsOfGroups, int], MergeFunction]
"""Creates a merge function for the rows of a number of groups."""


def row_kind_masks(rows: RowsOfGroups) -> tuple[Mask, Mask]:
    """Return masks of the retracts (-U and -D) and of the deletes (-D)."""
    kinds = to_numpy(rows.batch.column(VALUE_KIND.name))[rows.indices]
    return is_retract(to_arrow_array(kinds)), kinds == int(RowKind.DELETE)
