"""Opens the entry of a table in an external Iceberg catalog, which the table's options name.

See docs/format/iceberg-metadata.md#external-catalogs.
"""

from paimon_orch.format.options.core_options import ICEBERG_DATABASE, ICEBERG_STORAGE, ICEBERG_TABLE
from paimon_orch.format.paths import MAIN_BRANCH, TablePaths
from paimon_orch.format.schema import TableSchema
from paimon_orch.table.iceberg.catalog_entry import IcebergCatalogEntry
from paimon_orch.table.iceberg.hive_entry import open_hive_entry
from paimon_orch.table.iceberg.iceberg_settings import HIVE_CATALOG, REST_CATALOG
from paimon_orch.table.iceberg.rest_entry import open_rest_entry


def open_catalog_entry(
    identifier: str, schema: TableSchema, paths: TablePaths
) -> IcebergCatalogEntry | None:
    """Return the entry of a table, or None if no external catalog has one. Does not connect.

    Raises :class:`InputError` for wrong or missing options, and if an optional package is missing.
    """
    names = find_entry_names(identifier, schema, paths)
    if not names:
        return None
    if schema.typed_options.get(ICEBERG_STORAGE) == HIVE_CATALOG:
        return open_hive_entry(schema, names)
    return open_rest_entry(schema, names[0])


def find_entry_names(
    identifier: str, schema: TableSchema, paths: TablePaths
) -> list[tuple[str, str]]:
    """Return the database and name of each entry of a table in an external catalog."""
    options = schema.typed_options
    storage = options.get(ICEBERG_STORAGE)
    if storage not in (HIVE_CATALOG, REST_CATALOG) or paths.branch != MAIN_BRANCH:
        return []
    database, table = _split_identifier(identifier, paths)
    table = options.get(ICEBERG_TABLE) or table
    databases = options.get(ICEBERG_DATABASE) or database
    if storage == REST_CATALOG:
        return [(databases, table)]
    return [(name.strip(), table) for name in databases.split(";")]


def _split_identifier(identifier: str, paths: TablePaths) -> tuple[str, str]:
    """Return the database and the table; a table without a full name has those of its path."""
    database, dot, table = identifier.partition(".")
    if dot:
        return database, table
    directory, _, name = paths.root.rpartition("/")
    return directory.rpartition("/")[2].removesuffix(".db"), name
