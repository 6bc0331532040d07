"""The base of merge functions: rows of many keys, merged in lockstep.

See docs/format/merge-engines.md.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.row.row_kind import RowKind, is_retract
from paimon_orch.format.schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from paimon_orch.merge.aggregate.field_aggregator import FieldAggregator


@dataclass(slots=True, kw_only=True)
class MergeFunction(ABC):
    """Merges the rows of many keys in lockstep: one row of each key at a time."""

    rows: pa.Table
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

    def result(self, target: pa.Schema) -> pa.Table:
        """Return the merged rows in the columns of ``target``."""
        kinds = np.where(self.deleted, int(RowKind.DELETE), int(RowKind.INSERT)).astype(np.int8)
        columns = []
        for name in target.names:
            if name == VALUE_KIND.name:
                columns.append(pa.array(kinds))
            elif name in self.aggregators:
                columns.append(self.aggregators[name].result())
            else:  # the key and the sequence number are taken from the last row
                columns.append(self.rows.column(name).take(pa.array(self.last)).combine_chunks())
        return pa.table(columns, schema=target)


def contiguous_column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = rows.column(name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def value_column_names(schema: TableSchema, rows: pa.Table) -> list[str]:
    """Return the columns that are merged: all except the key, sequence number and row kind."""
    fixed = {SEQUENCE_NUMBER.name, VALUE_KIND.name, *schema.primary_keys}
    return [name for name in rows.column_names if name not in fixed]


def row_kind_masks(rows: pa.Table) -> tuple[Mask, Mask]:
    """Return masks of the retracts (-U and -D) and of the deletes (-D)."""
    kinds = rows.column(VALUE_KIND.name)
    return is_retract(kinds), kinds.to_numpy() == int(RowKind.DELETE)
