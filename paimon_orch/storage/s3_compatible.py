"""Stores with a scheme of their own that speak the protocol of S3: their defaults for s3fs.

They are implemented from the documentation of the stores. Whether they create objects exclusively is
tested before the first write to a bucket, as for each store.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlparse

COMPATIBLE_SCHEMES = ("oss", "obs", "cosn")
_HOSTS_WITH_REGION = re.compile(
    r"^(?:s3\.)?(?:oss-|obs\.|cos\.)([a-z]+-[a-z0-9-]+?)(?:-internal)?"
    r"\.(?:aliyuncs\.com|myhuaweicloud\.com|myqcloud\.com)$"
)
"""The public services, which demand names of buckets in the host, and their regions."""


def add_compatible_defaults(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of s3fs with the defaults of a store for those that the user does not set."""
    result = dict(options)
    if scheme in COMPATIBLE_SCHEMES and (endpoint := result.pop("endpoint", None)):
        result.setdefault("endpoint_url", endpoint)  # Paimon and ossfs call it endpoint
    url = str(result.get("endpoint_url") or "")
    if url and "://" not in url:
        result["endpoint_url"] = url = f"https://{url}"
    if scheme not in COMPATIBLE_SCHEMES:
        return result
    # Trailers with checksums are newer than the protocol that these stores speak.
    config: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    if match := _HOSTS_WITH_REGION.match(urlparse(url).hostname or ""):
        config["s3"] = {"addressing_style": "virtual"}
        client = result.get("client_kwargs") or {}
        result["client_kwargs"] = {"region_name": match[1], **client}
    result["config_kwargs"] = config | dict(result.get("config_kwargs") or {})
    return result


@cache
def add_protocol(cls: Any, scheme: str) -> Any:
    """Return a class of fsspec that also understands paths of a scheme."""
    protocols = (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol
    names = {"protocol": (*protocols, scheme), "__module__": cls.__module__}
    return type(cls.__name__, (cls,), names)
