"""Opens catalogs for the command line, the Spark data source and Dagster."""

from collections.abc import Mapping
from typing import Any

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.catalog_options import METASTORE, WAREHOUSE, add_storage_prefix
from paimon_orch.catalog.named_catalogs import find_named_catalog, list_named_catalogs
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.storage.object_store_options import parse_storage_option


def open_catalog(
    location: str | None = None,
    *,
    name: str | None = None,
    catalog_options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    allowances: Allowances = NO_ALLOWANCES,
) -> Catalog:
    """Open a catalog by its location, its configured name, or its options.

    ``location`` is a warehouse or the name of a configured catalog; with the catalog option
    ``metastore``, it is the option ``warehouse``. ``name`` is a configured name only. Without
    ``metastore``, the options override those of the configured catalog. The texts of
    ``storage_options`` are parsed as on the command line. Raises :class:`InputError` if the
    arguments contradict each other.
    """
    options = dict(catalog_options or {})
    storage = dict(
        parse_storage_option(f"{key}={text}") for key, text in (storage_options or {}).items()
    )
    if name is None and METASTORE.key not in options and not options:
        return Catalog(location, allowances=allowances, **storage)
    if METASTORE.key in options:
        if name is not None:
            raise InputError(f"catalog {name!r} is configured; remove the option 'metastore'")
        resolved, name = _add_warehouse(options, location), None
    else:
        name = _require_name(name, location, options)
        resolved = {METASTORE.key: METASTORE.default} | _find_configured(name) | options
    catalog = Catalog(**resolved, **add_storage_prefix(storage), allowances=allowances)
    catalog.name = name
    return catalog


def _add_warehouse(options: Mapping[str, str], location: str | None) -> dict[str, Any]:
    """Return the options with the location as ``warehouse``."""
    if location is None:
        return dict(options)
    if options.get(WAREHOUSE.key, location) != location:
        raise InputError(
            f"the option 'warehouse' contradicts the location {location!r} of the catalog"
        )
    return {**options, WAREHOUSE.key: location}


def _require_name(name: str | None, location: str | None, options: Mapping[str, str]) -> str:
    """Return the name of the catalog that the options change."""
    if name is not None and location is not None:
        raise InputError(f"catalog {name!r} has a warehouse; remove the location {location!r}")
    named = location if name is None else name
    if named is None or (name is None and find_named_catalog(named) is None):
        raise InputError(
            f"catalog options ({', '.join(sorted(options))}) need the option 'metastore', or the "
            "name of a configured catalog"
        )
    return named


def _find_configured(name: str) -> dict[str, Any]:
    options = find_named_catalog(name)
    if options is None:
        names = ", ".join(list_named_catalogs()) or "none"
        raise InputError(f"no catalog {name!r} is configured (configured catalogs: {names})")
    return options
