"""Opens the backend that the options of a catalog name."""

from collections.abc import Callable, Mapping
from typing import Any

from paimon_orch.catalog.backend import CatalogBackend
from paimon_orch.catalog.catalog_options import (
    METASTORE,
    TABLE_DEFAULT_PREFIX,
    URI,
    WAREHOUSE,
    add_storage_prefix,
    check_option_names,
    require_option,
)
from paimon_orch.catalog.file_system import FileSystemBackend
from paimon_orch.catalog.named_catalogs import find_named_catalog
from paimon_orch.catalog.store_options import open_location
from paimon_orch.errors import InputError
from paimon_orch.format.options.secret_options import is_secret_option
from paimon_orch.optional_packages import require_package
from paimon_orch.safe_text import note_secrets


def resolve_options(
    uri: str | None, options: Mapping[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """Return the name of a configured catalog, if ``uri`` is one, and all options of the catalog.

    See :meth:`Catalog.__init__` for the arguments.
    """
    if METASTORE.key in options:
        named = {URI.key: uri} if uri is not None else {}
        return None, {**named, **options}
    if uri is None:
        raise InputError("a catalog needs a warehouse or the name of a configured catalog")
    configured = find_named_catalog(uri)
    storage = add_storage_prefix(options)
    if configured is not None:
        return uri, {**configured, **storage}
    return None, {WAREHOUSE.key: uri, **storage}


def open_backend(options: Mapping[str, Any]) -> CatalogBackend:
    """Open the catalog that the option ``metastore`` names."""
    kind = str(options.get(METASTORE.key, METASTORE.default))
    opener = _BACKENDS.get(kind)
    if opener is None:
        raise InputError(f"metastore {kind!r} must be one of {', '.join(_BACKENDS)}")
    note_secrets(
        value
        for name, value in options.items()
        if is_secret_option(name.removeprefix(TABLE_DEFAULT_PREFIX))
    )
    return opener(options)


def _open_file_system(options: Mapping[str, Any]) -> CatalogBackend:
    check_option_names(options, ())
    warehouse = require_option(options, WAREHOUSE)
    io, root = open_location(options, warehouse)
    return FileSystemBackend(warehouse, io, root)


# The other backends are imported on first use: requests and SQLAlchemy take longer to import than
# the rest of this floor.
def _open_hive(options: Mapping[str, Any]) -> CatalogBackend:
    from paimon_orch.catalog.hive.hive_backend import open_hive

    return open_hive(options)


def _open_rest(options: Mapping[str, Any]) -> CatalogBackend:
    from paimon_orch.catalog.rest.rest_backend import open_rest_backend

    return open_rest_backend(options)


def _open_jdbc(options: Mapping[str, Any]) -> CatalogBackend:
    require_package("sqlalchemy", "a JDBC catalog", install="paimon-orch[jdbc]")
    from paimon_orch.catalog.jdbc.jdbc_backend import open_jdbc_backend

    return open_jdbc_backend(options)


_BACKENDS: Mapping[str, Callable[[Mapping[str, Any]], CatalogBackend]] = {
    "filesystem": _open_file_system,
    "hive": _open_hive,
    "jdbc": _open_jdbc,
    "rest": _open_rest,
}
