"""Rows in an order: all of them, or the first ones in the memory that these take."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.table.scan.lazy_rows import BaseScan

if TYPE_CHECKING:
    from sqlglot import exp

_MIN_BUFFERED_ROWS = 262_144  # that are held at least before they are sorted and cut
_RANK_COLUMN = "_rank_{}"
_VALUE_COLUMN = "_value_{}"


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column that rows are sorted by; NaN is the largest number, ``-0.0`` equals ``0.0``."""

    column: str
    descending: bool = False
    nulls_first: bool = True


def parse_order(order: str | Sequence[str] | None, schema: TableSchema) -> tuple[SortKey, ...]:
    """Parse ``"price desc nulls last, id"``, or a list of such columns; None is no order.

    As in Spark nulls come first in ascending and last in descending order, unless it is said. Raises
    :class:`InputError` for what is not understood, and for nested columns.
    """
    if order is None:
        return ()
    import sqlglot
    from sqlglot.errors import SqlglotError

    text = order if isinstance(order, str) else ", ".join(order)
    try:
        tree = sqlglot.parse_one(f"SELECT 1 ORDER BY {text}", dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise InputError(f"order {text!r} cannot be understood: {first}") from error
    ordered = tree.args.get("order")
    parts = {name for name, value in tree.args.items() if value}
    if ordered is None or parts != {"kind", "expressions", "order"} - ({"kind"} - parts):
        raise InputError(
            f"order {text!r} cannot be understood: name columns, as in 'price desc, id'"
        )
    return tuple(_parse_sort_key(text, node, schema) for node in ordered.expressions)


def _parse_sort_key(text: str, node: "exp.Expr", schema: TableSchema) -> SortKey:
    from sqlglot import exp

    column = node.this
    if not isinstance(node, exp.Ordered) or not isinstance(column, exp.Column) or column.table:
        raise InputError(f"order {text!r}: {node.sql()!r} is not a column")
    field = schema.field(column.name)
    if not isinstance(field.type, AtomicType):
        raise InputError(f"order {text!r}: column {field.name!r} is nested")
    return SortKey(field.name, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


@dataclass(frozen=True, slots=True)
class SortedScan(BaseScan):
    """Other rows, sorted by columns of theirs, and the first of them if there is a limit."""

    rows: BaseScan
    keys: tuple[SortKey, ...]
    limit: int | None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return self.rows.arrow_schema

    @property
    def rows_not_visible(self) -> int:
        """Count the records that the other rows leave out."""
        return self.rows.rows_not_visible

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, all of which are held in memory if there is no limit."""
        return sort_batches(self.rows.to_batches(), self.keys, self.limit, self.arrow_schema)


def sort_batches(
    batches: Iterable[pa.RecordBatch], keys: Sequence[SortKey], limit: int | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``schema`` sorted, or the first of them; without a limit all are held in memory."""
    kept, held = list[pa.RecordBatch](), 0
    for batch in batches:
        kept.append(batch)
        held += batch.num_rows
        if limit is not None and held >= max(2 * limit, _MIN_BUFFERED_ROWS):
            kept = _sort_and_limit(kept, keys, limit, schema).to_batches()
            held = sum(part.num_rows for part in kept)
    yield from _sort_and_limit(kept, keys, limit, schema).to_batches()


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
    places = pc.sort_indices(pa.table(columns), order)
    return rows.take(places if limit is None else places[: max(limit, 0)])


def _compute_ranks(values: pa.ChunkedArray, key: SortKey) -> pa.ChunkedArray:
    """Return which rows come first whatever their values: nulls, and NaN, which is above all numbers."""
    ranks = pc.if_else(pc.is_null(values), 0 if key.nulls_first else 3, 1 + key.descending)
    if pa.types.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), False)
        ranks = pc.if_else(nan, 2 - key.descending, ranks)
    return ranks
