"""How to reach a Hive metastore: by its URIs, or by ``hive-site.xml``."""

import getpass
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse
from xml.etree import ElementTree as ET

from paimon_orch.errors import InputError
from paimon_orch.format.options import Options
from paimon_orch.format.options.option_builders import honoured
from paimon_orch.format.options.value_type import BOOLEAN, DURATION, TEXT

SOCKET_TIMEOUT = honoured("hive.metastore.client.socket.timeout", DURATION, "600 s")
SASL_ENABLED = honoured("hive.metastore.sasl.enabled", BOOLEAN, "false")
PRINCIPAL = honoured("hive.metastore.kerberos.principal", TEXT)
USE_SSL = honoured("hive.metastore.use.SSL", BOOLEAN, "false")
SECURITY_OPTIONS = (SASL_ENABLED, PRINCIPAL, USE_SSL)
CONNECTION_OPTIONS = (SOCKET_TIMEOUT, *SECURITY_OPTIONS)
SITE_FILE = "hive-site.xml"
SITE_URIS = "hive.metastore.uris"
SITE_WAREHOUSE = "hive.metastore.warehouse.dir"
CLIENT_CLASS = "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"
REQUIRED_SETTINGS: Mapping[str, str] = {
    "hive.metastore.client.auth.mode": "NONE",
    "hive.metastore.thrift.framed.transport.enabled": "false",
    "hive.metastore.thrift.compact.protocol.enabled": "false",
    "hive.metastore.client.thrift.transport.mode": "binary",
    "metastore.client.class": CLIENT_CLASS,
}
"""How this library connects; configurations that require another way are refused."""

_DEFAULT_PORT = 9083
_PRINCIPAL = re.compile(r"[^/@\s]+/[^/@\s]+(@[^/@\s]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreAddress:
    """How to reach a metastore. It has no secrets, and is pickled with tables."""

    uris: tuple[tuple[str, int], ...]
    """Hosts and ports, which are tried in turn."""
    socket_timeout: float
    """Seconds."""
    user: str
    """The user whose name a metastore without Kerberos uses for permissions of files."""
    principal: str | None
    """The Kerberos principal of the metastore, as ``hive/_HOST@REALM``; None without Kerberos."""
    uses_tls: bool

    def __str__(self) -> str:
        return ",".join(f"thrift://{host}:{port}" for host, port in self.uris)


def build_address(uris: str, options: Options, *, option: str) -> MetastoreAddress:
    """Return the address of a metastore; ``option`` is the key of the URIs in messages."""
    return MetastoreAddress(
        uris=tuple(_parse_uris(uris, option)),
        socket_timeout=_get_timeout(options),
        user=os.environ.get("HADOOP_USER_NAME") or _get_user_name(),
        principal=_get_principal(options),
        uses_tls=options.get(USE_SSL),
    )


def _get_timeout(options: Options) -> float:
    seconds: float = options.get(SOCKET_TIMEOUT).total_seconds()
    if seconds <= 0:  # for 0, Hive waits forever
        raise InputError(f"{SOCKET_TIMEOUT.key} must be more than 0, such as 600 s")
    return seconds


def _get_principal(options: Options) -> str | None:
    if not options.get(SASL_ENABLED):
        return None
    principal = options.get(PRINCIPAL)
    if principal is None or not _PRINCIPAL.fullmatch(principal):
        raise InputError(
            f"{SASL_ENABLED.key} = true needs {PRINCIPAL.key} with the principal of the metastore, "
            f"such as hive/_HOST@EXAMPLE.COM; found {principal!r}"
        )
    return principal


def _get_user_name() -> str:
    """Return the name of the user, or the number of one that the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def check_connection_settings(settings: Mapping[str, str]) -> None:
    """Raise :class:`InputError` for settings of another kind of connection."""
    for key, required in REQUIRED_SETTINGS.items():
        value = settings.get(key, required).strip()
        if value.lower() != required.lower():
            raise InputError(
                f"{key} = {value} is not supported; connections to a Hive metastore are made with "
                f"{key} = {required}"
            )


def _parse_uris(text: str, option: str) -> Iterator[tuple[str, int]]:
    for uri in filter(None, map(str.strip, text.split(","))):
        try:
            parsed = urlparse(uri)
            host, port = parsed.hostname, parsed.port
        except ValueError:
            host, port, parsed = None, None, urlparse("")
        if parsed.scheme != "thrift" or not host or parsed.username or parsed.path not in ("", "/"):
            raise InputError(
                f"option {option!r} must be thrift://host:port, or several of them with commas"
            )
        yield host, port or _DEFAULT_PORT


def read_hive_site(configured: str | None, *, option: str) -> dict[str, str]:
    """Return the properties of ``hive-site.xml`` in a directory, if there is one.

    The default is the directory in ``HIVE_CONF_DIR``. ``option`` is the key of the configured
    directory in messages.
    """
    directory = configured or os.environ.get("HIVE_CONF_DIR")
    if not directory:
        return {}
    path = Path(directory) / SITE_FILE
    if not path.is_file():
        if configured is None:
            return {}
        raise InputError(f"option {option!r}: {path} does not exist")
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
    for key in (SITE_URIS, SITE_WAREHOUSE):
        if "${" in properties.get(key, ""):
            raise InputError(f"{path}: the value of {key} has a variable, which is not resolved")
    return properties
