"""Paimon's options of object stores as options of fsspec.

Catalog options and the data tokens of REST servers have Paimon's names, such as ``s3.access-key``
and ``fs.oss.accessKeyId``.

See docs/format/catalogs.md#options-of-object-stores.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paimon_orch.catalog.catalog_options import (
    ALLOWED_EXTERNAL_PATHS,
    ALLOWED_HOSTS,
    STORAGE_PREFIX,
    URI,
    WAREHOUSE,
    read_permissions,
)
from paimon_orch.errors import NotAllowedError, UnsupportedError
from paimon_orch.format.external_paths import strip_file_scheme
from paimon_orch.safe_text import mask_secrets, note_secrets
from paimon_orch.storage import FileIO, StorageCredentials, resolve_warehouse
from paimon_orch.storage.object_store_options import (
    StorageOptions,
    find_secrets,
    parse_storage_option,
)
from paimon_orch.stores import find_store, list_schemes, list_stores
from paimon_orch.table.permissions import PlaceRequest


def open_location(
    options: Mapping[str, Any], location: str, credentials: StorageCredentials | None = None
) -> tuple[FileIO, str]:
    """Return the file system and root path of a warehouse or table, from the catalog's options."""
    explicit = {
        **translate_store_options(options, location),
        **_extract_storage_options(options),
    }
    return resolve_warehouse(location, explicit, credentials=credentials)


def open_served_location(
    options: Mapping[str, Any], location: str, credentials: StorageCredentials | None = None
) -> tuple[FileIO, str]:
    """Return the file system and root path of a table whose location a server has named.

    Raises :class:`UnsupportedError` unless it is local or in a known store: other schemes are those
    of other implementations of fsspec, some of which run code.
    """
    scheme = location.partition(":")[0].lower() if ":" in location.split("/", 1)[0] else ""
    if scheme not in ("", "file", *list_schemes()) or "::" in location:
        known = ", ".join(f"{name}://" for name in list_schemes())
        raise UnsupportedError(
            f"the catalog names the location {mask_secrets(location)!r}; tables are read from "
            f"local paths and {known} only"
        )
    return open_location(options, location, credentials)


def confine_to_served_directory(
    options: Mapping[str, Any], io: FileIO, root: str, identifier: str, *, warehouse: str = ""
) -> FileIO:
    """Return the file system for the directory that a server names for a table or a database.

    Raises :class:`NotAllowedError` for a local directory unless it is below the warehouse, by
    default the option of the catalog, or in a directory that the operator allows this table. Links
    between these directories and the table are not followed. A server, such as an HDFS, must be that
    of the warehouse or of a configuration, or its host must be allowed.
    """
    if not io.capabilities.is_local:
        _check_server(options, root, identifier, warehouse)
        return io.confine((root,))
    local = strip_file_scheme(warehouse or str(options.get(WAREHOUSE.key) or ""))
    allowed = [path.rstrip("/") for path in read_permissions(options).list_directories(identifier)]
    above = []
    if local.startswith("/"):  # the name of a warehouse of a REST server is not a path
        above = [resolve_warehouse(local)[1], str(Path(local).resolve())]
    anchors = [path for path in (*above, *allowed) if root.startswith(f"{path}/")]
    if root not in allowed and not anchors:
        raise NotAllowedError(
            f"the catalog names the local directory {root} for {identifier}, which is not allowed "
            f"(allowed: {', '.join(dict.fromkeys((*above, *allowed))) or 'none'}). If it is right, "
            f"add it to the catalog option {ALLOWED_EXTERNAL_PATHS.key!r}, or {root.rpartition('/')[0]}/*, which opens a "
            "directory to all tables"
        )
    return io.confine((root,), anchors)


def _check_server(options: Mapping[str, Any], root: str, identifier: str, warehouse: str) -> None:
    """Raise :class:`NotAllowedError` for a server of a store that only the catalog server names."""
    store = find_store(root.partition("://")[0])
    storage_options = StorageOptions.of(_extract_storage_options(options)).resolve()
    named = None if store is None else store.read_server(root, storage_options)
    if named is None:
        return
    own = urlsplit(warehouse or str(options.get(WAREHOUSE.key) or ""))
    is_own = own.scheme == named.scheme and own.netloc and named.has_authority(own.netloc)
    if is_own or named.is_configured:
        return
    request = PlaceRequest("location", named.client_url, is_host=True)
    servers = {urlsplit(uri.strip()).hostname for uri in str(options.get(URI.key) or "").split(",")}
    is_server = urlsplit(named.root).hostname in servers - {None}
    if not is_server and not read_permissions(options).allows(identifier, request):
        raise NotAllowedError(
            f"the catalog names {named.root} for {identifier}, which is neither the HDFS of the "
            f"warehouse nor in Hadoop's configuration. If it is right, add the host "
            f"{named.authority} to the catalog option {ALLOWED_HOSTS.key!r}"
        )


def _extract_storage_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fsspec options, without their prefix; texts are parsed."""
    storage = dict[str, Any]()
    for name, value in options.items():
        if name.startswith(STORAGE_PREFIX):
            key = name.removeprefix(STORAGE_PREFIX)
            is_text = isinstance(value, str)
            storage[key] = parse_storage_option(f"{key}={value}")[1] if is_text else value
    return storage


def translate_store_options(options: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the fsspec options of the store of ``location``; other options are left out."""
    store = find_store(location.partition("://")[0])
    if store is None:
        return {}
    settings = store.translate_options(options)
    note_secrets(find_secrets(settings))
    return settings


def is_store_option(name: str) -> bool:
    """Return whether the name is that of a Paimon option of a store."""
    return any(store.find_setting(name) is not None for store in list_stores())


def is_endpoint(name: str) -> bool:
    """Return whether the name is that of a Paimon option with the address of a store."""
    return any(store.find_setting(name) in store.endpoints for store in list_stores())
