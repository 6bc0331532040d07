"""Defaults for s3fs: those of S3, and of stores with a scheme of their own that speak its protocol."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlparse

from paimon_orch.stores import find_store

_REGION = r"([a-z]+-[a-z0-9-]+?)(?:-internal)?"


def add_compatible_defaults(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of s3fs with the defaults of a store for those that the user does not set."""
    result = dict(options)
    store = find_store(scheme)
    host = None if store is None else store.public_host
    if host is not None and (endpoint := result.pop("endpoint", None)):
        result.setdefault("endpoint_url", endpoint)  # Paimon and ossfs call it endpoint
    url = str(result.get("endpoint_url") or "")
    if url and "://" not in url:
        result["endpoint_url"] = url = f"https://{url}"
    if host is None:
        return result
    # Trailers with checksums are newer than the protocol that these stores speak.
    config: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    # The public service demands names of buckets in the host.
    pattern = r"(?:s3\.)?" + re.escape(host).replace(r"\{region\}", _REGION)
    if match := re.fullmatch(pattern, urlparse(url).hostname or ""):
        config["s3"] = {"addressing_style": "virtual"}
        client = result.get("client_kwargs") or {}
        result["client_kwargs"] = {"region_name": match[1], **client}
    result["config_kwargs"] = config | dict(result.get("config_kwargs") or {})
    return result


@cache
def add_protocol(cls: Any, scheme: str) -> Any:
    """Return a class of fsspec, or one like it, that understands paths of a scheme."""
    protocols = (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol
    if scheme in protocols:
        return cls
    names = {"protocol": (*protocols, scheme), "__module__": cls.__module__}
    return type(cls.__name__, (cls,), names)
