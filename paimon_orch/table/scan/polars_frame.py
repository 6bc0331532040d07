"""Scans as lazy frames of Polars, which pass on the columns and rows that a query needs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from paimon_orch.optional_packages import require_package
from paimon_orch.table.filter.polars_filter import translate_conjuncts
from paimon_orch.table.scan.pushdown import narrow_scan

if TYPE_CHECKING:
    import polars as pl

    from paimon_orch.table.scan.scan import Scan


def build_lazy_frame(scan: "Scan") -> "pl.LazyFrame":
    """Return a lazy frame of the rows of a scan; see :meth:`Scan.to_polars_lazy`."""
    require_package("polars", "to_polars_lazy", install="polars>=1.20")
    import polars as pl
    from polars.io.plugins import register_io_source

    def read(
        columns: list[str] | None, test: pl.Expr | None, limit: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # Polars counts the limit before it tests rows.
        tests = [] if test is None or limit is not None else translate_conjuncts(test)
        for batch in narrow_scan(scan, columns, tests, limit).to_batches():
            frame = pl.DataFrame(batch)
            yield frame if test is None else frame.filter(test)

    schema = pl.DataFrame(scan.arrow_schema.empty_table()).schema
    return register_io_source(read, schema=schema)
