"""Which options a REST server may set: those of a list, and endpoints on allowed hosts.

A server could otherwise choose an implementation of a file system, a local file to read, or a host
that gets requests with the credentials of the user. See SECURITY.md#who-trusts-whom.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from paimon_orch.catalog.catalog_options import (
    ALLOWED_HOSTS,
    TABLE_DEFAULT_PREFIX,
    read_permissions,
)
from paimon_orch.catalog.rest.rest_options import (
    DATA_TOKEN_ENABLED,
    DLF_OSS_ENDPOINT,
    HEADER_PREFIX,
    PREFIX,
)
from paimon_orch.catalog.store_options import is_endpoint, is_store_option
from paimon_orch.errors import NotAllowedError
from paimon_orch.table.permissions import PlaceRequest

_NAMES = (PREFIX.key, DATA_TOKEN_ENABLED.key)
_PREFIXES = (HEADER_PREFIX, TABLE_DEFAULT_PREFIX)


def select_served_options(
    served: Mapping[str, str], own: Mapping[str, Any], uri: str
) -> dict[str, str]:
    """Return the options of an answer that are used; the others are ignored.

    ``own`` are the options of the user, and ``uri`` is the address of the server. Raises
    :class:`NotAllowedError` for an endpoint on a host that is neither the server's nor allowed.
    """
    selected = dict[str, str]()
    for name, value in served.items():
        is_address = name == DLF_OSS_ENDPOINT.key or is_endpoint(name)
        if is_address and value:
            if name in own:
                continue
            _check_endpoint(name, value, own, uri)
        is_known = is_address or is_store_option(name) or name in _NAMES
        if is_known or name.startswith(_PREFIXES):
            selected[name] = value
    return selected


def _check_endpoint(name: str, value: str, own: Mapping[str, Any], uri: str) -> None:
    url = value if "://" in value else f"https://{value}"
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    request = PlaceRequest(name, url, is_host=True)
    if host != urlsplit(uri).hostname and not read_permissions(own).allows(uri, request):
        raise NotAllowedError(
            f"the server {uri} names the endpoint {host} of an object store in {name!r}, which is "
            f"not allowed. If it is right, set {name!r} in the options of the catalog, or add the "
            f"host to {ALLOWED_HOSTS.key!r}"
        )
