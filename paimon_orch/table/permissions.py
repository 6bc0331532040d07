"""What a table may use outside of its directory: the files and hosts that the operator allows.

Options of a table come from storage, where everybody who may write to the table can set them. They
ask; the options of the catalog allow. See SECURITY.md#who-trusts-whom.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from paimon_orch.errors import InputError, NotAllowedError
from paimon_orch.format.external_paths import strip_file_scheme
from paimon_orch.format.options.core_options import (
    DATA_FILE_EXTERNAL_PATHS,
    DATA_FILE_EXTERNAL_PATHS_STRATEGY,
    GLOBAL_INDEX_EXTERNAL_PATH,
    ICEBERG_HIVE_CONF_DIR,
    ICEBERG_REST_SETTING,
    ICEBERG_STORAGE,
    ICEBERG_URI,
    PARTITION_MARK_DONE_ACTION,
    PARTITION_MARK_DONE_HTTP_URL,
)
from paimon_orch.format.schema import TableSchema

EXTERNAL_PATHS_OPTION = "allowed-external-paths"
HOSTS_OPTION = "allowed-hosts"
_PLACEHOLDER = re.compile(r"\{database\}|\{table\}")
_BOTH_NAMES = re.compile(r"^[^{}]*\{database\}\.[^{}]*\{table\}[^{}]*$")
"""The name of a database contains no dot, so the two names cannot be those of another table."""


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """A place outside of the table that an option asks for."""

    option: str
    place: str
    """The path of a directory, or the URL of a server."""
    is_host: bool = False

    def describe_refusal(self, allowed: Sequence[str] = ()) -> str:
        """Say which option asks for what, without the user and the parameters of a URL.

        ``allowed`` are the directories that the table may use.
        """
        if self.is_host:
            try:
                host = urlsplit(self.place).netloc.rpartition("@")[2]
            except ValueError:  # the text, which may contain a password, is not shown
                host = "in a URL that cannot be parsed"
            return (
                f"option {self.option!r} asks for the host {host}, which is not allowed. If the "
                f"table may use it, add it to the catalog option {HOSTS_OPTION!r}"
            )
        return (
            f"option {self.option!r} asks for the directory {self.place}, which is not allowed "
            f"(allowed for this table: {', '.join(allowed) or 'none'}). If the table may use it, "
            f"add a directory with {{database}} and {{table}} to the catalog option "
            f"{EXTERNAL_PATHS_OPTION!r}, or {self.place}/*, which opens it to all tables"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePermissions:
    """The operator's permissions for all tables of a catalog."""

    external_paths: tuple[str, ...] = ()
    """Directories with ``{database}`` and ``{table}``, the names of a table, or open to all."""
    hosts: tuple[str, ...] = ()
    """Names or addresses in lower case, with a port if only that one is allowed."""

    @classmethod
    def parse(cls, external_paths: Iterable[str], hosts: Iterable[str]) -> "TablePermissions":
        """Check and normalize the values of the options of a catalog.

        Raises :class:`InputError` for a path that is not absolute or could be the same for two
        tables, and for a host with a path.
        """
        return cls(
            external_paths=tuple(map(_parse_directory, external_paths)),
            hosts=tuple(map(_parse_host, hosts)),
        )

    def list_directories(self, identifier: str) -> list[str]:
        """Return the allowed directories of one table or branch."""
        database, _, table = identifier.partition("$")[0].partition(".")
        names = {"{database}": database, "{table}": table}
        # in one pass, because a database may have the name {table}
        return [
            _PLACEHOLDER.sub(lambda match: names[match[0]], path) for path in self.external_paths
        ]

    def list_shared_directories(self) -> list[str]:
        """Return the directories in which tables have their own allowed directories."""
        parts = (_PLACEHOLDER.split(path, maxsplit=1) for path in self.external_paths)
        return [before.rpartition("/")[0] for before, *after in parts if after]

    def owns(self, identifier: str, path: str) -> bool:
        """Return whether no other table may use a directory, whatever its options ask for."""
        templates = [each for each in self.external_paths if _PLACEHOLDER.search(each)]
        if len(templates) != 1:  # the directories of two templates may contain each other
            return False
        shared = set(self.external_paths) - set(templates)
        [own] = replace(self, external_paths=tuple(templates)).list_directories(identifier)
        return f"{path}/".startswith(f"{own}/") and not any(
            f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
            for other in shared
        )

    def allows(self, identifier: str, request: PlaceRequest) -> bool:
        """Return whether a table may use a place that one of its options names."""
        if request.is_host:
            return self._allows_host(request.place)
        allowed = self.list_directories(identifier)
        return any(f"{request.place}/".startswith(f"{path}/") for path in allowed)

    def check(self, identifier: str, requests: Iterable[PlaceRequest]) -> None:
        """Raise :class:`NotAllowedError` for a place that a table may not use."""
        for request in requests:
            if not self.allows(identifier, request):
                allowed = self.list_directories(identifier)
                raise NotAllowedError(f"{identifier}: {request.describe_refusal(allowed)}")

    def list_refusals(self, identifier: str, schema: TableSchema) -> list[str]:
        """Describe the options of a table that ask for places which it may not use."""
        requests = (
            *find_directory_requests(schema),
            *find_mark_requests(schema),
            *find_iceberg_requests(schema),
        )
        allowed = self.list_directories(identifier)
        return [
            request.describe_refusal(allowed)
            for request in requests
            if not self.allows(identifier, request)
        ]

    def _allows_host(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return False
        if not host:
            return False
        named = f"[{host}]" if ":" in host else host
        return named in self.hosts or (port is not None and f"{named}:{port}" in self.hosts)


NO_PERMISSIONS = TablePermissions()


def find_directory_requests(schema: TableSchema) -> Iterator[PlaceRequest]:
    """Yield the directories outside of a table to which its options move new files."""
    options = schema.typed_options
    if options.get(DATA_FILE_EXTERNAL_PATHS_STRATEGY) != "none":
        for uri in options.get(DATA_FILE_EXTERNAL_PATHS) or ():
            yield PlaceRequest(DATA_FILE_EXTERNAL_PATHS.key, strip_file_scheme(uri).rstrip("/"))
    if uri := (options.get(GLOBAL_INDEX_EXTERNAL_PATH) or "").strip():
        yield PlaceRequest(GLOBAL_INDEX_EXTERNAL_PATH.key, strip_file_scheme(uri).rstrip("/"))


def find_mark_requests(schema: TableSchema) -> Iterator[PlaceRequest]:
    """Yield the server to which the partitions of a table are reported."""
    options = schema.typed_options
    actions = options.get(PARTITION_MARK_DONE_ACTION).lower().split(",")
    if "http-report" in map(str.strip, actions):
        url = options.get(PARTITION_MARK_DONE_HTTP_URL) or ""
        yield PlaceRequest(PARTITION_MARK_DONE_HTTP_URL.key, url, is_host=True)


def find_iceberg_requests(schema: TableSchema) -> Iterator[PlaceRequest]:
    """Yield the servers of the external Iceberg catalog of a table, and their local settings."""
    storage = schema.typed_options.get(ICEBERG_STORAGE)
    if storage == "hive-catalog":
        for url in (schema.typed_options.get(ICEBERG_URI) or "").split(","):
            if url.strip():
                yield PlaceRequest(ICEBERG_URI.key, url.strip(), is_host=True)
        if directory := (schema.typed_options.get(ICEBERG_HIVE_CONF_DIR) or "").rstrip("/"):
            yield PlaceRequest(ICEBERG_HIVE_CONF_DIR.key, directory)
    elif storage == "rest-catalog":
        for name in ("uri", "oauth2-server-uri"):
            key = ICEBERG_REST_SETTING.named(name).key
            if url := schema.options.get(key, "").strip():
                yield PlaceRequest(key, url, is_host=True)


def _parse_directory(text: str) -> str:
    """Return a path that is the same for two tables only if it ends with ``/*`` in the option.

    The names of the database and the table are appended unless the path contains them.
    """
    path = strip_file_scheme(text.strip()).rstrip("/")
    is_shared = path.endswith("/*")
    path = path.removesuffix("/*").rstrip("/")
    if "://" not in path and not Path(path).is_absolute():
        raise InputError(
            f"catalog option {EXTERNAL_PATHS_OPTION!r} has {text!r}, which must be an absolute path "
            "or a URI, such as s3://bucket/external/{database}/{table}"
        )
    if is_shared:
        return path
    for component in path.split("/"):
        if len(_PLACEHOLDER.findall(component)) > 1 and not _BOTH_NAMES.search(component):
            raise InputError(
                f"catalog option {EXTERNAL_PATHS_OPTION!r} has {text!r}, which may be the same "
                "directory for two tables; write {database}/{table} or {database}.{table}"
            )
    database = "" if "{database}" in path else "/{database}.db"
    return f"{path}{database}{'' if '{table}' in path else '/{table}'}"


def _parse_host(text: str) -> str:
    host = text.strip().lower()
    if not host or "/" in host or "@" in host:
        raise InputError(
            f"catalog option {HOSTS_OPTION!r} has {text!r}, which must be a host or host:port"
        )
    return host
