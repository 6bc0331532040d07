"""The options of a catalog, with the names of Paimon; those of table options are elsewhere.

See docs/format/catalogs.md#options.
"""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from paimon_orch.errors import InputError
from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.table_option import AnyOption
from paimon_orch.format.options.value_type import BOOLEAN, DURATION, KEYWORD, NAMES, TEXT
from paimon_orch.stores import list_stores
from paimon_orch.table.permissions import EXTERNAL_PATHS_OPTION, HOSTS_OPTION, TablePermissions

STORAGE_PREFIX = "storage."
"""The prefix of fsspec options of the object store."""

METASTORE = honoured("metastore", KEYWORD, "filesystem")
WAREHOUSE = honoured("warehouse", TEXT)
URI = honoured("uri", TEXT)
ALLOWED_EXTERNAL_PATHS = honoured(EXTERNAL_PATHS_OPTION, NAMES)
ALLOWED_HOSTS = honoured(HOSTS_OPTION, NAMES)
LOCK_ENABLED = honoured("lock.enabled", BOOLEAN)
LOCK_TYPE = honoured("lock.type", KEYWORD)
LOCK_ACQUIRE_TIMEOUT = honoured("lock-acquire-timeout", DURATION, "8 min")
LOCK_CHECK_MAX_SLEEP = honoured("lock-check-max-sleep", DURATION, "8 s")

_PERMISSIONS = {
    ALLOWED_EXTERNAL_PATHS: "PAIMON_ALLOWED_EXTERNAL_PATHS",
    ALLOWED_HOSTS: "PAIMON_ALLOWED_HOSTS",
}
"""What an operator allows to tables: the options of a catalog, and variables that add to them."""

TABLE_DEFAULT_PREFIX = "table-default."
"""The prefix of options that new tables get unless they set them."""

_IGNORED = (
    "allow-upper-case",
    "cache-enabled",
    "cache.",
    "case-sensitive",
    "client-pool-cache.",
    "client-pool-size",
    "default-database",
    "defaultDatabase",
    "file-io.",
    "fs.allow-hadoop-fallback",
    "local-cache.",
    "resolving-file-io.enabled",
)
"""Options of caches and engines: they change no table, and have no effect here."""


def check_option_names(
    options: Mapping[str, Any], known: Iterable[AnyOption], prefixes: Iterable[str] = ()
) -> None:
    """Raise :class:`InputError` for an option that the catalog would ignore in silence."""
    names = {option.key for option in (METASTORE, WAREHOUSE, *_PERMISSIONS, *known)}
    of_stores = (prefix for store in list_stores() for prefix in store.option_prefixes)
    allowed = (STORAGE_PREFIX, TABLE_DEFAULT_PREFIX, *of_stores, *_IGNORED, *prefixes)
    unknown = sorted(name for name in options if name not in names and not name.startswith(allowed))
    if unknown:
        near = get_close_matches(unknown[0], names, n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(sorted(names))}."
        )
        raise InputError(
            f"a catalog with metastore={options.get(METASTORE.key, METASTORE.default)} has no "
            f"option {', '.join(map(repr, unknown))}; {hint} Options of the object store begin "
            f"with {STORAGE_PREFIX!r}."
        )


def require_option(options: Mapping[str, Any], option: AnyOption) -> str:
    """Return the text of an option; raises :class:`InputError` if it is missing."""
    text = str(options.get(option.key) or "").strip()
    if not text:
        kind = options.get(METASTORE.key, METASTORE.default)
        raise InputError(f"a catalog with metastore={kind} needs the option {option.key!r}")
    return text


def add_storage_prefix(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return fsspec options of the object store as options of a catalog."""
    return {f"{STORAGE_PREFIX}{name}": value for name, value in options.items()}


def read_permissions(options: Mapping[str, Any]) -> TablePermissions:
    """Return what the options of the operator, and variables of the environment, allow."""
    paths, hosts = (
        [
            text.strip()
            for texts in (options.get(option.key), os.environ.get(variable))
            for text in str(texts or "").split(",")
            if text.strip()
        ]
        for option, variable in _PERMISSIONS.items()
    )
    return TablePermissions.parse(paths, hosts)


def extract_table_defaults(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that new tables get unless they set them."""
    return {
        name.removeprefix(TABLE_DEFAULT_PREFIX): str(value)
        for name, value in options.items()
        if name.startswith(TABLE_DEFAULT_PREFIX)
    }
