"""Which fields of a Dagster resource or component describe a catalog, and how they combine.

Values may still be the names of environment variables, so only the presence of fields is checked.
"""

from collections.abc import Mapping
from typing import TypeVar

from paimon_orch.errors import InputError

_Value = TypeVar("_Value")


def merge_catalog_options(
    fields: Mapping[str, _Value | None], options: Mapping[str, _Value]
) -> dict[str, _Value]:
    """Return the fields that are set together with other options of the catalog.

    Raises :class:`InputError` for an option that also is a field.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    repeated = sorted(set(options) & {*given, "warehouse"})
    if repeated:
        raise InputError(
            f"set {', '.join(repeated)} as a field of its own, and not in catalog_options"
        )
    return {**given, **options}


def check_catalog_fields(
    *, name: str | None, warehouse: str | None, options: Mapping[str, object]
) -> None:
    """Raise :class:`InputError` unless the fields describe exactly one catalog."""
    if name is not None:
        extra = sorted({"metastore"} & set(options)) + ["warehouse"] * (warehouse is not None)
        if extra:
            raise InputError(
                f"catalog names a configured catalog, so {' and '.join(extra)} cannot be set"
            )
    elif "metastore" not in options:
        if options:
            raise InputError(
                f"{', '.join(sorted(options))} requires metastore (filesystem, rest, hive or jdbc) "
                "or catalog (the name of a configured catalog)"
            )
        if warehouse is None:
            raise InputError(
                "set one of catalog (the name of a configured catalog), warehouse (the location of "
                "the tables) and metastore (filesystem, rest, hive or jdbc)"
            )
