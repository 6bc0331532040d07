"""Opens the catalog that a connection of Airflow describes."""

from collections.abc import Mapping
from typing import Any, Protocol

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.catalog_fields import check_catalog_fields, merge_catalog_options
from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import Allowances

_EXTRA_FIELDS = {
    "allow_stale_external",
    "allow_unknown_options",
    "catalog",
    "catalog_options",
    "metastore",
    "storage_options",
    "uri",
}


class ConnectionFields(Protocol):
    """The fields of an Airflow connection that describe a catalog."""

    host: str | None
    password: str | None

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """Return the field ``extra``, decoded."""
        ...


def open_connection(connection: ConnectionFields) -> Catalog:
    """Return the catalog of a connection; this reads no table.

    Raises :class:`InputError` if the fields contradict each other, or if one is unknown.
    """
    extra = {name: value for name, value in connection.extra_dejson.items() if value != ""}
    unknown = sorted(set(extra) - _EXTRA_FIELDS)
    if unknown:
        raise InputError(
            f"the connection has unknown extra fields {', '.join(unknown)} "
            f"(known: {', '.join(sorted(_EXTRA_FIELDS))})"
        )
    name, warehouse = extra.get("catalog"), connection.host or None
    fields = {
        "metastore": extra.get("metastore"),
        "uri": extra.get("uri"),
        "token": connection.password or None,
    }
    options = merge_catalog_options(fields, _get_mapping(extra, "catalog_options"))
    check_catalog_fields(name=name, warehouse=warehouse, options=options)
    return open_catalog(
        warehouse,
        name=name,
        catalog_options=options,
        storage_options=_get_mapping(extra, "storage_options"),
        allowances=Allowances(
            stale_external=extra.get("allow_stale_external") is True,
            unknown_options=extra.get("allow_unknown_options") is True,
        ),
    )


def _get_mapping(extra: Mapping[str, Any], name: str) -> dict[str, str]:
    value = extra.get(name) or {}
    if not isinstance(value, Mapping):
        raise InputError(f"the extra field {name} of the connection must be a JSON object")
    return {str(key): str(text) for key, text in value.items()}
