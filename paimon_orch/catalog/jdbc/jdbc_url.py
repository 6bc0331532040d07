"""Addresses of SQL databases in the form of JDBC, and their drivers in Python.

See docs/format/catalogs.md#addresses.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pendulum
import sqlalchemy as sa

from paimon_orch.errors import InputError
from paimon_orch.optional_packages import require_package

_PROTOCOL = re.compile(r"jdbc:([^:]+):(.*)", re.DOTALL)
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)?(?::(\d+))?")
_POSTGRES_PARAMETERS = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "gssEncMode": "gssencmode",
    "loginTimeout": "connect_timeout",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslmode": "sslmode",
    "sslpassword": "sslpassword",
    "sslrootcert": "sslrootcert",
}
"""Parameters of Java's driver that libpq has, too."""

_IGNORED_PARAMETERS = {
    "postgresql": (
        "binaryTransfer",
        "defaultRowFetchSize",
        "disableColumnSanitiser",
        "loggerLevel",
        "prepareThreshold",
        "preparedStatementCacheQueries",
        "reWriteBatchedInserts",
        "socketTimeout",
        "stringtype",
        "tcpKeepAlive",
    ),
    "mysql": (
        "allowPublicKeyRetrieval",
        "autoReconnect",
        "cachePrepStmts",
        "characterEncoding",
        "connectionTimeZone",
        "rewriteBatchedStatements",
        "serverTimezone",
        "socketTimeout",
        "useServerPrepStmts",
        "useUnicode",
    ),
    "sqlite": (),
}
"""Parameters that tune Java's driver and change no result."""


@dataclass(frozen=True, slots=True)
class JdbcAddress:
    """An SQL database, and how to connect to it."""

    description: str
    """The address without parameters and credentials."""
    url: sa.URL = field(repr=False)
    connect_arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        """Return the name of the database system: ``sqlite``, ``postgresql`` or ``mysql``."""
        return self.url.get_backend_name()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts that no message may contain."""
        texts = (self.url.password, self.connect_arguments.get("sslpassword"))
        return tuple(str(text) for text in texts if text)


def parse_jdbc_url(uri: str, properties: Mapping[str, str]) -> JdbcAddress:
    """Return the address for a ``jdbc:`` URI and properties of its driver, such as ``user``.

    Parameters of the URI take precedence over properties. Raises :class:`InputError` for an
    address or a parameter that is not supported, or if the driver is not installed.
    """
    match = _PROTOCOL.fullmatch(uri.strip())
    if match is None:
        raise InputError(
            "the option 'uri' must begin with 'jdbc:' and a protocol, for example "
            "jdbc:postgresql://host/database"
        )
    protocol, rest = match.groups()
    parse = _PARSERS.get(protocol)
    if parse is None:
        raise InputError(f"JDBC protocol {protocol!r} must be one of {', '.join(_PARSERS)}")
    place, _, query = rest.partition("?")
    parameters = {**properties, **dict(parse_qsl(query, keep_blank_values=True))}
    for name in _IGNORED_PARAMETERS[protocol]:
        parameters.pop(name, None)
    return parse(place, parameters)


def _parse_sqlite(place: str, parameters: dict[str, str]) -> JdbcAddress:
    _refuse_parameters("sqlite", parameters)
    path = place.removeprefix("file:")
    if not path or path.startswith(":"):
        raise InputError("a JDBC catalog in SQLite needs the path of a file: jdbc:sqlite:/path.db")
    # Tasks of a Spark cluster have other working directories.
    absolute = Path(path).absolute()
    url = sa.URL.create("sqlite+pysqlite", database=str(absolute))
    return JdbcAddress(f"jdbc:sqlite:{absolute}", url, {"timeout": 30.0})


def _parse_postgresql(place: str, parameters: dict[str, str]) -> JdbcAddress:
    hosts, database = _split_place("postgresql", place)
    description = f"jdbc:postgresql://{','.join(hosts)}/{database}"
    user, password = parameters.pop("user", None), parameters.pop("password", None)
    options = [f"-c timezone={_find_time_zone()}"]
    schemas = parameters.pop("currentSchema", None)
    if schemas is not None:
        escaped = schemas.replace("\\", "\\\\").replace(" ", "\\ ")
        options.append(f"-c search_path={escaped}")
    if parameters.pop("ssl", "false").lower() in ("", "true"):
        parameters.setdefault("sslmode", "verify-full")
    arguments: dict[str, Any] = {
        argument: parameters.pop(name)
        for name, argument in _POSTGRES_PARAMETERS.items()
        if name in parameters
    }
    if "options" in parameters:
        options.append(parameters.pop("options"))
    _refuse_parameters("postgresql", parameters)
    names, ports = _split_hosts("postgresql", hosts, "5432")
    arguments |= {"host": ",".join(names), "port": ",".join(ports), "options": " ".join(options)}
    require_package(
        "psycopg2",
        "a JDBC catalog in PostgreSQL",
        install="paimon-orch[jdbc-postgres]",
        package="psycopg2-binary",
    )
    url = sa.URL.create(
        "postgresql+psycopg2", username=user, password=password, database=database or user
    )
    return JdbcAddress(description, url, arguments)


def _parse_mysql(place: str, parameters: dict[str, str]) -> JdbcAddress:
    hosts, database = _split_place("mysql", place)
    if len(hosts) > 1 or not database:
        raise InputError(
            "a JDBC catalog in MySQL needs one host and a database: jdbc:mysql://host/database"
        )
    user, password = parameters.pop("user", None), parameters.pop("password", None)
    arguments: dict[str, Any] = {}
    if "connectTimeout" in parameters:
        milliseconds = _parse_number("connectTimeout", parameters.pop("connectTimeout"))
        arguments["connect_timeout"] = max(1, milliseconds // 1000)
    if parameters.get("useSSL", "").lower() == "false":
        del parameters["useSSL"]
    _refuse_parameters("mysql", parameters)
    [name], [port] = _split_hosts("mysql", hosts, "3306")
    require_package("pymysql", "a JDBC catalog in MySQL", install="paimon-orch[jdbc-mysql]")
    url = sa.URL.create(
        "mysql+pymysql",
        username=user,
        password=password,
        host=name,
        port=int(port),
        database=database,
    )
    return JdbcAddress(f"jdbc:mysql://{hosts[0]}/{database}", url, arguments)


_PARSERS: Mapping[str, Callable[[str, dict[str, str]], JdbcAddress]] = {
    "sqlite": _parse_sqlite,
    "postgresql": _parse_postgresql,
    "mysql": _parse_mysql,
}


def _split_place(protocol: str, place: str) -> tuple[list[str], str]:
    """Return hosts and database of ``//host:1,other/database`` or ``database``."""
    if not place.startswith("//"):
        return ["localhost"], unquote(place)
    hosts, _, database = place[2:].partition("/")
    if "@" in hosts:
        raise InputError(
            f"the option 'uri' of a catalog in {protocol} cannot contain a user before the host; "
            "use the options 'jdbc.user' and 'jdbc.password'"
        )
    return (hosts or "localhost").split(","), unquote(database)


def _split_hosts(protocol: str, hosts: list[str], port: str) -> tuple[list[str], list[str]]:
    matches = [_HOST.fullmatch(host) for host in hosts]
    if not all(matches):
        raise InputError(
            f"the hosts of jdbc:{protocol} {','.join(hosts)!r} must be host or host:port"
        )
    parts = [match.groups() for match in matches if match is not None]
    names = [(name or "localhost").strip("[]") for name, _ in parts]
    return names, [number or port for _, number in parts]


def _refuse_parameters(protocol: str, parameters: Mapping[str, str]) -> None:
    if parameters:
        names = ", ".join(map(repr, sorted(parameters)))
        raise InputError(
            f"jdbc:{protocol} does not support the parameter {names} here; leave it out"
        )


def _parse_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"JDBC parameter {name!r} must be a whole number, got {text!r}") from None


def _find_time_zone() -> str:
    """Return the time zone of this process in the form of PostgreSQL.

    The table of locks has local times of the sessions, so all sessions must have one zone: Java
    sets that of its process.
    """
    name = os.environ.get("TZ", "").lstrip(":") or pendulum.now("local").timezone_name or ""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_+/-]*", name):
        return name
    offset = datetime.now().astimezone().utcoffset()
    minutes = 0 if offset is None else int(offset.total_seconds() // 60)
    sign, hours, rest = "-" if minutes >= 0 else "+", abs(minutes) // 60, abs(minutes) % 60
    return f"<local>{sign}{hours:02}:{rest:02}"
