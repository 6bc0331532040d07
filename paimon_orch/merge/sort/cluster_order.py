"""The order of the rows of clustered files: by columns, or along a space-filling curve.

See docs/format/sort-compaction.md#sort-keys.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.format.options.core_options import (
    CLUSTERING_STRATEGY,
    ZORDER_VAR_LENGTH_CONTRIBUTION,
)
from paimon_orch.format.options.engine_options import SINK_CLUSTERING_STRATEGY
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_arrow_schema
from paimon_orch.merge.sort.space_filling_curves import encode_curve_keys, encode_order_bytes

_CURVE_COLUMN = "__paimon_curve"
_MAX_Z_ORDER_COLUMNS = 4


@dataclass(frozen=True)
class ClusterOrder:
    """The columns to sort by, and the strategy to combine several columns into one order."""

    columns: tuple[str, ...]
    strategy: Literal["order", "zorder", "hilbert"]
    width: int
    """The number of bytes of text and binary values that a curve uses."""

    @classmethod
    def of(cls, schema: TableSchema) -> "ClusterOrder":
        """Return the order that the options of a table define.

        Raises :class:`InputError` if there are no columns or if one of them has no order.
        """
        options = schema.typed_options
        columns = options.clustering_columns
        if not columns:
            raise InputError("'clustering.incremental' = true needs 'clustering.columns'")
        order = cls(columns, _choose_strategy(schema), options.get(ZORDER_VAR_LENGTH_CONTRIBUTION))
        empty = to_arrow_schema([schema.field(name) for name in columns]).empty_table()
        for name in columns:
            encode_order_bytes(empty.column(name).combine_chunks(), name)
        return order

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Return the columns of :meth:`add_keys` that rows are sorted by."""
        return self.columns if self.strategy == "order" else (_CURVE_COLUMN,)

    def add_keys(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns to sort by."""
        if self.strategy == "order":
            return rows
        keys = encode_curve_keys(rows, self.columns, self.strategy, self.width)
        return rows.append_column(_CURVE_COLUMN, keys)

    def drop_keys(self, rows: pa.Table) -> pa.Table:
        """Return rows without the columns that :meth:`add_keys` added."""
        return rows if self.strategy == "order" else rows.drop_columns([_CURVE_COLUMN])


def _choose_strategy(schema: TableSchema) -> Literal["order", "zorder", "hilbert"]:
    options = schema.typed_options
    option = CLUSTERING_STRATEGY if options.has(CLUSTERING_STRATEGY) else SINK_CLUSTERING_STRATEGY
    strategy = options.get(option)
    match strategy.lower():
        case "order":
            return "order"
        case "zorder":
            return "zorder"
        case "hilbert":
            return "hilbert"
        case "auto":
            count = len(options.clustering_columns)
            return (
                "order" if count == 1 else "zorder" if count <= _MAX_Z_ORDER_COLUMNS else "hilbert"
            )
    raise InputError(f"{option.key!r} must be auto, order, zorder or hilbert, got {strategy!r}")
