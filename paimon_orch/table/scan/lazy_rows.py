"""Rows that are still to be read, and the forms to have them in."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.format.types.data_types import MAX_LENGTH, AtomicType, Field, TypeRoot
from paimon_orch.format.types.predicate import Predicate, to_arrow_expression

if TYPE_CHECKING:
    import pandas as pd

ROW_KIND = Field(
    id=2147483644, name="rowkind", type=AtomicType(True, TypeRoot.VARCHAR, (MAX_LENGTH,))
)


class BaseScan(ABC):
    """What a scan or another read gives: nothing is read before one of the methods is called."""

    __slots__ = ()

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in bounded memory."""

    @property
    def rows_not_visible(self) -> int:
        """Count the records that are left out until they are compacted; only scans of tables leave any out."""
        return 0

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a record batch reader, which Polars and DuckDB take as it is."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Read everything into one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.arrow_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Read everything into pandas."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame


def filter_batches(
    batches: Iterable[pa.RecordBatch], predicate: Predicate | None, target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a bound predicate keeps, in the columns of ``target``."""
    condition = None if predicate is None else to_arrow_expression(predicate)
    for batch in batches:
        kept = [batch]
        if condition is not None:
            table = pa.Table.from_batches([batch]).filter(condition)
            kept = table.combine_chunks().to_batches()
        for rows in kept:
            columns = [rows.column(name) for name in target.names]
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def limit_batches(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield at most so many rows; None is no limit."""
    if limit is None:
        yield from batches
        return
    left = limit
    if left <= 0:
        return
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return
