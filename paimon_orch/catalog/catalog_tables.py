"""System tables of a whole catalog: its tables, their partitions and options.

See docs/format/system-tables.md#system-tables-of-a-catalog.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_orch.errors import CancelledError, InputError, NotFoundError, describe_error
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.safe_text import get_logger
from paimon_orch.table.metadata_tables import Record, build_partitions_table, build_rows
from paimon_orch.table.scan.base_scan import BaseScan
from paimon_orch.table.scan.order_by import SortedScan
from paimon_orch.table.system_table import MetadataScan
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from paimon_orch.catalog.catalog import Catalog

logger = get_logger(__name__)

SYSTEM_DATABASE = "sys"
TABLES_COLUMNS = pa.schema(
    {
        "database_name": pa.string(),
        "table_name": pa.string(),
        "table_type": pa.string(),
        "partitioned": pa.bool_(),
        "primary_key": pa.bool_(),
        "owner": pa.string(),
        "created_at": pa.int64(),
        "created_by": pa.string(),
        "updated_at": pa.int64(),
        "updated_by": pa.string(),
        "record_count": pa.int64(),
        "file_size_in_bytes": pa.int64(),
        "file_count": pa.int64(),
        "last_file_creation_time": pa.int64(),
    }
)
PARTITIONS_COLUMNS = pa.schema(
    {
        "database_name": pa.string(),
        "table_name": pa.string(),
        "partition_name": pa.string(),
        "record_count": pa.int64(),
        "file_size_in_bytes": pa.int64(),
        "file_count": pa.int64(),
        "last_file_creation_time": pa.int64(),
        "done": pa.bool_(),
    }
)
TABLE_OPTIONS_COLUMNS = pa.schema(
    {
        "database_name": pa.string(),
        "table_name": pa.string(),
        "key": pa.string(),
        "value": pa.string(),
    }
)


def _build_table_rows(table: Table) -> list[Record]:
    """Return the row of one table; the sums are null, as in Java without a REST catalog."""
    schema = table.stores.get_schema()
    row = {
        "table_type": schema.options.get("type", "table"),
        "partitioned": bool(schema.partition_keys),
        "primary_key": bool(schema.primary_keys),
    }
    return [row]


def _build_partition_rows(table: Table) -> list[Record]:
    if not table.stores.get_schema().partition_keys:
        return []
    rows = build_partitions_table(table, table.snapshot()).to_pylist()
    return [
        {
            "partition_name": row["partition"],
            **{name: row[name] for name in ("record_count", "file_size_in_bytes", "file_count")},
            # Without a time zone, times are local wall clock times.
            "last_file_creation_time": None
            if row["last_update_time"] is None
            else round(row["last_update_time"].timestamp() * 1000),
            "done": row["done"],
        }
        for row in rows
    ]


def _build_option_rows(table: Table) -> list[Record]:
    options = {**hide_secrets(table.stores.get_schema().options), "path": table.paths.root}
    return [{"key": key, "value": value} for key, value in sorted(options.items())]


_TABLES: Mapping[str, tuple[pa.Schema, Callable[[Table], list[Record]]]] = {
    "tables": (TABLES_COLUMNS, _build_table_rows),
    "partitions": (PARTITIONS_COLUMNS, _build_partition_rows),
    "all_table_options": (TABLE_OPTIONS_COLUMNS, _build_option_rows),
}


@dataclass(frozen=True, slots=True)
class CatalogSystemTable:
    """One read-only system table of a catalog, from :meth:`Catalog.system`."""

    catalog: "Catalog"
    name: str

    def __post_init__(self) -> None:
        if self.name not in _TABLES:
            raise NotFoundError(
                f"{self.catalog.uri} has no system table {SYSTEM_DATABASE}.{self.name}; the system "
                f"tables are {', '.join(_TABLES)}"
            )

    def scan(
        self,
        columns: list[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        limit: int | None = None,
        order_by: str | Sequence[str] | None = None,
        **version: object,
    ) -> BaseScan:
        """Describe a read as :meth:`Table.scan` does, of the newest snapshots.

        Raises :class:`InputError` if an older version is selected.
        """
        if any(value is not None for value in version.values()):
            raise InputError(f"{SYSTEM_DATABASE}.{self.name} has no snapshots; read it as it is")
        form, _ = _TABLES[self.name]
        scan = MetadataScan.of(
            form,
            partial(_read_rows, self.catalog, self.name),
            columns=columns,
            filter=filter,
            limit=limit if order_by is None else None,
        )
        if order_by is None:
            return scan
        return SortedScan.of(scan, order_by, limit)


def _read_rows(catalog: "Catalog", name: str) -> pa.Table:
    form, build = _TABLES[name]
    return build_rows(list(_iterate_rows(catalog, build)), form)


def _iterate_rows(catalog: "Catalog", build: Callable[[Table], list[Record]]) -> Iterator[Record]:
    for identifier in catalog.find_tables():
        try:
            rows = build(catalog.table(identifier))
        except NotFoundError:  # dropped meanwhile
            continue
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the other tables of the lake are listed
            logger.warning("%s is left out: %s", identifier, describe_error(error))
            continue
        database, _, table = identifier.partition(".")
        names = {"database_name": database, "table_name": table}
        yield from (names | row for row in rows)
