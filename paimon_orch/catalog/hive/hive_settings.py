"""The options of a Hive catalog, and what it reads from ``hive-site.xml``."""

import getpass
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from xml.etree import ElementTree as ET

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
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import honoured
from paimon_orch.format.options.table_option import AnyOption
from paimon_orch.format.options.value_type import BOOLEAN, DURATION, INTEGER, KEYWORD, TEXT

CONF_DIR = honoured("hive-conf-dir", TEXT)
TABLE_TYPE = honoured("table.type", KEYWORD, "managed", choices=("managed", "external"))
LOCATION_IN_PROPERTIES = honoured("location-in-properties", BOOLEAN, "false")
SYNC_ALL_PROPERTIES = honoured("sync-all-properties", BOOLEAN, "true")
ALTER_CASCADE = honoured("alter-table-cascade", BOOLEAN, "true")
SKIP_UPDATE_STATS = honoured("hive.skip-update-stats", BOOLEAN, "false")
SOCKET_TIMEOUT = honoured("hive.metastore.client.socket.timeout", DURATION, "600 s")
BATCH_SIZE = honoured("hive.metastore.batch.retrieve.max", INTEGER, "300", bounds=(1, float("inf")))

_OPTIONS: tuple[AnyOption, ...] = (
    URI,
    CONF_DIR,
    TABLE_TYPE,
    LOCATION_IN_PROPERTIES,
    SYNC_ALL_PROPERTIES,
    ALTER_CASCADE,
    SKIP_UPDATE_STATS,
    SOCKET_TIMEOUT,
    BATCH_SIZE,
    LOCK_ENABLED,
    LOCK_TYPE,
    LOCK_ACQUIRE_TIMEOUT,
    LOCK_CHECK_MAX_SLEEP,
)
_WITHOUT_EFFECT = ("format-table.enabled", "hadoop-conf-dir")
"""Options of table formats that are never listed, and of Hadoop's file systems."""

_SITE_URIS = "hive.metastore.uris"
_SITE_WAREHOUSE = "hive.metastore.warehouse.dir"
_REQUIRED_VALUES = {
    "hive.metastore.sasl.enabled": "false",
    "hive.metastore.use.SSL": "false",
    "hive.metastore.client.auth.mode": "NONE",
    "hive.metastore.thrift.framed.transport.enabled": "false",
    "hive.metastore.thrift.compact.protocol.enabled": "false",
    "hive.metastore.client.thrift.transport.mode": "binary",
    "metastore.client.class": "org.apache.hadoop.hive.metastore.HiveMetaStoreClient",
}
"""How this library connects; configurations that require another way are refused."""

_DEFAULT_PORT = 9083
_SITE_FILE = "hive-site.xml"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreAddress:
    """How to reach a metastore. It has no secrets, and is pickled with tables."""

    uris: tuple[tuple[str, int], ...]
    """Hosts and ports, which are tried in turn."""
    socket_timeout: float
    """Seconds."""
    user: str
    """The user whose name the metastore uses for permissions of files, as it trusts clients."""

    def __str__(self) -> str:
        return ",".join(f"thrift://{host}:{port}" for host, port in self.uris)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveSettings:
    """The checked options of a Hive catalog."""

    address: MetastoreAddress
    warehouse: str
    """A path or URI, without a trailing slash."""
    options: Options


def read_settings(options: Mapping[str, Any]) -> HiveSettings:
    """Check the options of a catalog; raises :class:`InputError`."""
    check_option_names(options, _OPTIONS, (*_WITHOUT_EFFECT, *_REQUIRED_VALUES))
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
    site = _read_site(texts)
    _check_connection({**site, **texts})
    # The rest may be secrets of object stores; these options are pickled and shown with tables.
    keys = {option.key for option in _OPTIONS}
    known = {name: value for name, value in texts.items() if name in keys}
    typed = Options({**_select_known(site), **known})
    for option in _OPTIONS:
        if typed.has(option):
            option.check(typed.values[option.key])
    _check_choices(typed)
    uris = texts.get(URI.key) or site.get(_SITE_URIS)
    warehouse = texts.get(WAREHOUSE.key) or site.get(_SITE_WAREHOUSE)
    if not uris or not warehouse:
        missing = URI.key if not uris else WAREHOUSE.key
        raise InputError(
            f"a catalog with {METASTORE.key}=hive needs the option {missing!r}, or {CONF_DIR.key!r}"
            f" with a {_SITE_FILE} that has {_SITE_URIS} and {_SITE_WAREHOUSE}"
        )
    address = MetastoreAddress(
        uris=tuple(_parse_uris(uris)),
        socket_timeout=typed.get(SOCKET_TIMEOUT).total_seconds(),
        user=os.environ.get("HADOOP_USER_NAME") or getpass.getuser(),
    )
    if not urlparse(warehouse).scheme:  # the metastore has another working directory
        warehouse = str(Path(warehouse).expanduser().absolute())
    return HiveSettings(address=address, warehouse=warehouse.rstrip("/") or "/", options=typed)


def _select_known(site: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of ``hive-site.xml`` that are options of the catalog, too."""
    return {o.key: site[o.key] for o in (SOCKET_TIMEOUT, BATCH_SIZE) if o.key in site}


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


def _check_connection(settings: Mapping[str, str]) -> None:
    for key, required in _REQUIRED_VALUES.items():
        value = settings.get(key, required).strip()
        if value.lower() != required.lower():
            raise InputError(
                f"{key} = {value} is not supported: the connection to a Hive metastore has no "
                f"SASL (Kerberos), no SSL and no other protocol ({key} = {required})"
            )


def _parse_uris(text: str) -> Iterator[tuple[str, int]]:
    for uri in filter(None, map(str.strip, text.split(","))):
        try:
            parsed = urlparse(uri)
            host, port = parsed.hostname, parsed.port
        except ValueError:
            host, port, parsed = None, None, urlparse("")
        if parsed.scheme != "thrift" or not host or parsed.username or parsed.path not in ("", "/"):
            raise InputError(
                f"option {URI.key!r} must be thrift://host:port, or several of them with commas"
            )
        yield host, port or _DEFAULT_PORT


def _read_site(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of ``hive-site.xml`` in the configured directory, if there is one."""
    configured = options.get(CONF_DIR.key)
    directory = configured or os.environ.get("HIVE_CONF_DIR")
    if not directory:
        return {}
    path = Path(directory) / _SITE_FILE
    if not path.is_file():
        if configured is None:
            return {}
        raise InputError(f"option {CONF_DIR.key!r}: {path} does not exist")
    return _parse_site(path)


class _SiteBuilder(ET.TreeBuilder):
    """Builds the document, but refuses declarations, which could define huge entities."""

    def doctype(self, *_names: str | None) -> None:
        raise InputError("has a DOCTYPE, which is not read")


def _parse_site(path: Path) -> dict[str, str]:
    parser = ET.XMLParser(target=_SiteBuilder())  # noqa: S314 - no entities, see above
    try:
        parser.feed(path.read_bytes())
        root = parser.close()
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    except (ET.ParseError, OSError) as error:
        # The message of the parser has no content of the file, but its cause may.
        raise InputError(f"{path} cannot be read: {error}") from None
    properties = {
        (entry.findtext("name") or "").strip(): (entry.findtext("value") or "").strip()
        for entry in root.iter("property")
    }
    for key in (_SITE_URIS, _SITE_WAREHOUSE):
        if "${" in properties.get(key, ""):
            raise InputError(f"{path}: the value of {key} has a variable, which is not resolved")
    return properties
