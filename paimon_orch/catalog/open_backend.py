"""Opens the backend that the options of a catalog name."""

from collections.abc import Callable, Mapping
from typing import Any

from paimon_orch.catalog.backend import CatalogBackend
from paimon_orch.catalog.catalog_options import (
    METASTORE,
    STORAGE_PREFIX,
    WAREHOUSE,
    check_option_names,
    extract_storage_options,
    require_option,
)
from paimon_orch.catalog.file_system import FileSystemBackend
from paimon_orch.catalog.named_catalogs import find_named_catalog
from paimon_orch.errors import InputError
from paimon_orch.storage import resolve_warehouse


def open_backend(uri: str | None, options: Mapping[str, Any]) -> CatalogBackend:
    """Open a catalog; see :meth:`Catalog.__init__` for the arguments."""
    if METASTORE.key in options:
        named = {"uri": uri} if uri is not None else {}
        return _open_metastore({**named, **options})
    if uri is None:
        raise InputError("a catalog needs a warehouse or the name of a configured catalog")
    configured = find_named_catalog(uri)
    storage = {f"{STORAGE_PREFIX}{name}": value for name, value in options.items()}
    if configured is not None:
        return _open_metastore({**configured, **storage})
    return _open_file_system({WAREHOUSE.key: uri, **storage})


def _open_metastore(options: Mapping[str, Any]) -> CatalogBackend:
    kind = str(options.get(METASTORE.key, METASTORE.default))
    opener = _BACKENDS.get(kind)
    if opener is None:
        raise InputError(f"metastore {kind!r} must be one of {', '.join(_BACKENDS)}")
    return opener(options)


def _open_file_system(options: Mapping[str, Any]) -> CatalogBackend:
    check_option_names(options, ())
    warehouse = require_option(options, WAREHOUSE)
    io, root = resolve_warehouse(warehouse, extract_storage_options(options))
    return FileSystemBackend(warehouse, io, root)


_BACKENDS: Mapping[str, Callable[[Mapping[str, Any]], CatalogBackend]] = {
    "filesystem": _open_file_system,
}
