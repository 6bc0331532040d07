"""A lazy frame of Polars, from a table or the location of its directory."""

from typing import TYPE_CHECKING, Any

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import InputError
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    import polars as pl


def scan_paimon(table: Table | str, **scan: Any) -> "pl.LazyFrame":
    """Return a lazy frame of Polars, which reads the columns and files that a query needs.

    ``table`` is a table, or its location in a warehouse, which may be a URL. Other arguments are
    those of :meth:`Table.scan`, such as ``snapshot_id``.

    >>> scan_paimon("/lake/shop.db/orders").filter(pl.col("id") < 3).collect()
    """
    return _open(table).scan(**scan).to_polars_lazy()


def _open(table: Table | str) -> Table:
    if isinstance(table, Table):
        return table
    given: Any = table
    parts = given.rstrip("/").rsplit("/", 2) if isinstance(given, str) else []
    if len(parts) != 3 or not parts[1].endswith(".db"):
        raise InputError(
            "scan_paimon needs a table, such as Catalog('/lake').table('shop.orders'), or the "
            f"location of its directory, such as '/lake/shop.db/orders', not {table!r}"
        )
    warehouse, database, name = parts
    return Catalog(warehouse or "/").table(f"{database.removesuffix('.db')}.{name}")
