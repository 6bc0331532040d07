"""The base class of scans, with their output formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.format.display import Displayable
from paimon_orch.format.types.data_types import MAX_LENGTH, AtomicType, Field, TypeRoot
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.optional_packages import require_package
from paimon_orch.table.filter.row_filter import RowFilter
from paimon_orch.table.filter.variant_column import VariantColumn, compute_columns

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

ROW_KIND = Field(
    id=2147483644, name="rowkind", type=AtomicType(True, TypeRoot.VARCHAR, (MAX_LENGTH,))
)


class BaseScan(Displayable, ABC):
    """A planned read of rows; the ``to_`` methods read the data."""

    __slots__ = ()

    def list_values(self) -> Mapping[str, object]:
        """Return the values to show in interactive Python."""
        return {"columns": {field.name: str(field.type) for field in self.arrow_schema}}

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in bounded memory."""

    @property
    def rows_not_visible(self) -> int:
        """Return the number of records that the scan leaves out until a compaction."""
        return 0

    def count(self) -> int:
        """Count the rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a record batch reader, which Polars and DuckDB accept."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow stream, in bounded memory; each call reads them again.

        >>> duckdb.sql("SELECT count(*) FROM scan")
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of the rows; DuckDB asks for it before it reads them."""
        return self.arrow_schema.__arrow_c_schema__()

    def to_arrow(self) -> pa.Table:
        """Read everything into one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.arrow_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Read everything into pandas, which must be installed."""
        require_package("pandas", "to_pandas", install="pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Read everything into Polars, which must be installed."""
        require_package("polars", "to_polars", install="polars")
        import polars as pl

        return pl.DataFrame(self.to_arrow())


def filter_batches(
    batches: Iterable[pa.RecordBatch],
    predicate: Predicate | None,
    target: pa.Schema,
    variants: Sequence[VariantColumn] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match a bound predicate, with the columns of ``target``.

    ``variants`` are the columns of ``target`` that are computed.
    """
    row_filter = None if predicate is None else RowFilter(predicate)
    for batch in batches:
        matching = [batch]
        if row_filter is not None:
            table = row_filter.select(pa.Table.from_batches([batch]))
            matching = table.combine_chunks().to_batches()
        for rows in matching:
            yield compute_columns(rows, target, variants)


def limit_batches(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield at most ``limit`` rows, or all rows if it is None."""
    if limit is None:
        yield from batches
        return
    remaining = limit
    if remaining <= 0:
        return
    for batch in batches:
        yield batch.slice(0, remaining)
        remaining -= batch.num_rows
        if remaining <= 0:
            return
