"""The options of a Hive catalog, and what it reads from ``hive-site.xml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from paimon_orch.catalog.catalog_options import (
    LOCK_ACQUIRE_TIMEOUT,
    LOCK_CHECK_MAX_SLEEP,
    LOCK_ENABLED,
    LOCK_TYPE,
    METASTORE,
    URI,
    WAREHOUSE,
    check_option_names,
)
from paimon_orch.errors import InputError
from paimon_orch.format.argument_checks import format_option_value
from paimon_orch.format.options import Options
from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.table_option import AnyOption
from paimon_orch.format.options.value_type import BOOLEAN, INTEGER, KEYWORD, TEXT
from paimon_orch.metastore.hive_address import (
    CONNECTION_OPTIONS,
    REQUIRED_SETTINGS,
    SITE_FILE,
    SITE_URIS,
    SITE_WAREHOUSE,
    MetastoreAddress,
    build_address,
    check_connection_settings,
    read_hive_site,
)

CONF_DIR = honoured("hive-conf-dir", TEXT)
TABLE_TYPE = honoured("table.type", KEYWORD, "managed", choices=("managed", "external"))
LOCATION_IN_PROPERTIES = honoured("location-in-properties", BOOLEAN, "false")
SYNC_ALL_PROPERTIES = honoured("sync-all-properties", BOOLEAN, "true")
ALTER_CASCADE = honoured("alter-table-cascade", BOOLEAN, "true")
SKIP_UPDATE_STATS = honoured("hive.skip-update-stats", BOOLEAN, "false")
BATCH_SIZE = honoured("hive.metastore.batch.retrieve.max", INTEGER, "300", bounds=(1, float("inf")))

_OPTIONS: tuple[AnyOption, ...] = (
    URI,
    CONF_DIR,
    TABLE_TYPE,
    LOCATION_IN_PROPERTIES,
    SYNC_ALL_PROPERTIES,
    ALTER_CASCADE,
    SKIP_UPDATE_STATS,
    *CONNECTION_OPTIONS,
    BATCH_SIZE,
    LOCK_ENABLED,
    LOCK_TYPE,
    LOCK_ACQUIRE_TIMEOUT,
    LOCK_CHECK_MAX_SLEEP,
)
_WITHOUT_EFFECT = ("format-table.enabled", "hadoop-conf-dir")
"""Options of table formats that are never listed, and of Hadoop's file systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveSettings:
    """The checked options of a Hive catalog."""

    address: MetastoreAddress
    warehouse: str
    """A path or URI, without a trailing slash."""
    options: Options


def read_settings(options: Mapping[str, Any]) -> HiveSettings:
    """Check the options of a catalog; raises :class:`InputError`."""
    check_option_names(options, _OPTIONS, (*_WITHOUT_EFFECT, *REQUIRED_SETTINGS))
    texts = {
        name: format_option_value(value) for name, value in options.items() if value is not None
    }
    site = read_hive_site(texts.get(CONF_DIR.key), option=CONF_DIR.key)
    check_connection_settings({**site, **texts})
    # The rest may be secrets of object stores; these options are pickled and shown with tables.
    keys = {option.key for option in _OPTIONS}
    known = {name: value for name, value in texts.items() if name in keys}
    of_site = {o.key: site[o.key] for o in (*CONNECTION_OPTIONS, BATCH_SIZE) if o.key in site}
    typed = Options({**of_site, **known})
    for option in _OPTIONS:
        if typed.has(option):
            option.check(typed.values[option.key])
    _check_choices(typed)
    uris = texts.get(URI.key) or site.get(SITE_URIS)
    warehouse = texts.get(WAREHOUSE.key) or site.get(SITE_WAREHOUSE)
    if not uris or not warehouse:
        missing = URI.key if not uris else WAREHOUSE.key
        raise InputError(
            f"a catalog with {METASTORE.key}=hive needs the option {missing!r}, or {CONF_DIR.key!r}"
            f" with a {SITE_FILE} that has {SITE_URIS} and {SITE_WAREHOUSE}"
        )
    address = build_address(uris, typed, option=URI.key)
    if not urlparse(warehouse).scheme:  # the metastore has another working directory
        warehouse = str(Path(warehouse).expanduser().absolute())
    return HiveSettings(address=address, warehouse=warehouse.rstrip("/") or "/", options=typed)


def _check_choices(options: Options) -> None:
    table_type, lock_type = options.get(TABLE_TYPE), options.get(LOCK_TYPE)
    if table_type not in TABLE_TYPE.choices:
        raise InputError(
            f"option {TABLE_TYPE.key!r} = {table_type!r} must be {' or '.join(TABLE_TYPE.choices)}"
        )
    if lock_type not in (None, "hive"):
        raise InputError(
            f"option {LOCK_TYPE.key!r} = {lock_type!r} is not supported; the locks of a Hive "
            "catalog are those of the metastore ('hive')"
        )
