"""Sorts rows; with a limit, holds only the first rows in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.arrow import to_paimon_fields
from paimon_orch.format.types.data_types import AtomicType, is_blob
from paimon_orch.table.scan.base_scan import BaseScan

if TYPE_CHECKING:
    from sqlglot import exp

_MIN_BUFFERED_ROWS = 262_144  # minimum number of rows to buffer before sorting and limiting them
_RANK_COLUMN = "_rank_{}"
_VALUE_COLUMN = "_value_{}"


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by; NaN is greater than all numbers, and ``-0.0`` equals ``0.0``."""

    column: str
    descending: bool = False
    nulls_first: bool = True


def parse_order(order: str | Sequence[str] | None, schema: TableSchema) -> tuple[SortKey, ...]:
    """Parse ``"price desc nulls last, id"``; nulls are first by default, and last with ``desc``."""
    if order is None:
        return ()
    import sqlglot
    from sqlglot.errors import SqlglotError

    text = order if isinstance(order, str) else ", ".join(order)
    if not text.strip():
        raise InputError("order_by names no column; write for example 'price desc, id'")
    try:
        tree = sqlglot.parse_one(f"SELECT 1 ORDER BY {text}", dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise InputError(f"order {text!r} is not valid: {first}") from error
    ordered = tree.args.get("order")
    parts = {name for name, value in tree.args.items() if value}
    if ordered is None or parts != {"kind", "expressions", "order"} - ({"kind"} - parts):
        raise InputError(
            f"order {text!r} is not a list of columns; write for example 'price desc, id'"
        )
    return tuple(_parse_sort_key(text, node, schema) for node in ordered.expressions)


def _parse_sort_key(text: str, node: "exp.Expr", schema: TableSchema) -> SortKey:
    from sqlglot import exp

    column = node.this
    if not isinstance(node, exp.Ordered) or not isinstance(column, exp.Column) or column.table:
        raise InputError(f"order {text!r}: {node.sql()!r} is not a column")
    field = schema.field(column.name)
    if is_blob(field.type):
        raise InputError(f"order {text!r}: column {field.name!r} is a BLOB, which has no order")
    if not isinstance(field.type, AtomicType):
        raise InputError(f"order {text!r}: column {field.name!r} is nested")
    return SortKey(field.name, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


@dataclass(frozen=True, slots=True)
class SortedScan(BaseScan):
    """The sorted rows of another scan, at most ``limit``."""

    rows: BaseScan
    keys: tuple[SortKey, ...]
    limit: int | None

    @classmethod
    def of(cls, scan: BaseScan, order: str | Sequence[str], limit: int | None) -> "SortedScan":
        """Return the rows of a scan in an order, which names its columns."""
        schema = TableSchema.of_columns(to_paimon_fields(scan.arrow_schema))
        return cls(scan, parse_order(order, schema), limit)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self.rows.arrow_schema

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that the other scan leaves out."""
        return self.rows.rows_not_visible

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the sorted rows; without a limit, holds all rows in memory."""
        return sort_batches(self.rows.to_batches(), self.keys, self.limit, self.arrow_schema)


def sort_batches(
    batches: Iterable[pa.RecordBatch], keys: Sequence[SortKey], limit: int | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield sorted rows, at most ``limit``; without a limit, holds all rows in memory."""
    buffered, row_count = list[pa.RecordBatch](), 0
    for batch in batches:
        buffered.append(batch)
        row_count += batch.num_rows
        if limit is not None and row_count >= max(2 * limit, _MIN_BUFFERED_ROWS):
            buffered = _sort_and_limit(buffered, keys, limit, schema).to_batches()
            row_count = sum(part.num_rows for part in buffered)
    yield from _sort_and_limit(buffered, keys, limit, schema).to_batches()


def _sort_and_limit(
    batches: Sequence[pa.RecordBatch], keys: Sequence[SortKey], limit: int | None, schema: pa.Schema
) -> pa.Table:
    rows = pa.Table.from_batches(batches, schema)
    columns, order = dict[str, pa.ChunkedArray](), list[tuple[str, str]]()
    for number, key in enumerate(keys):
        values = rows.column(key.column)
        columns |= {
            _RANK_COLUMN.format(number): _compute_ranks(values, key),
            _VALUE_COLUMN.format(number): values,
        }
        direction = "descending" if key.descending else "ascending"
        order += [
            (_RANK_COLUMN.format(number), "ascending"),
            (_VALUE_COLUMN.format(number), direction),
        ]
    indices = pc.sort_indices(pa.table(columns), order)
    return rows.take(indices if limit is None else indices[: max(limit, 0)])


def _compute_ranks(values: pa.ChunkedArray, key: SortKey) -> pa.ChunkedArray:
    """Return ranks that order nulls, numbers and NaN; NaN is greater than all numbers."""
    ranks = pc.if_else(pc.is_null(values), 0 if key.nulls_first else 3, 1 + key.descending)
    if pa.types.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), False)
        ranks = pc.if_else(nan, 2 - key.descending, ranks)
    return ranks
