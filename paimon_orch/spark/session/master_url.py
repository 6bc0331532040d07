"""Checks the address of a Spark cluster before a JVM or a client of Spark Connect starts.

Spark reports an address of an unknown form as an error of Java, and tries for up to ten minutes to
reach a host that does not answer.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from paimon_orch.errors import InputError, TransientError

CONNECT_SECONDS = 5.0
"""The time limit of a TCP connection to a host of the cluster."""

_FORMS = (
    "local[*] or local[4] for this machine, spark://host:7077, yarn, k8s://https://host:443, or "
    "sc://host:15002 for Spark Connect"
)
_LOCAL = re.compile(
    r"local(\[(\*|0*[1-9]\d*)(\s*,\s*0*[1-9]\d*)?\])?"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
)
CONNECT_PORT = 15002
"""The default port of Spark Connect."""

_YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")  # spark-submit requires one of them


def check_master(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """Check the form of a master, or of a Spark Connect address, without network access.

    :raises InputError: if Spark does not know the form, or if the configuration of YARN is missing
    """
    if master == "yarn":
        if not any(environ.get(name) for name in _YARN_VARIABLES):
            raise InputError(
                "the Spark master yarn needs the directory of Hadoop's configuration in the "
                f"environment variable {' or '.join(_YARN_VARIABLES)}"
            )
        return
    if _LOCAL.fullmatch(master):
        return
    if not list_endpoints(master):
        raise InputError(f"{hide_parameters(master)!r} is not a Spark master; use {_FORMS}")


def require_reachable(master: str, timeout: float = CONNECT_SECONDS) -> None:
    """Connect to a host of the cluster by TCP, and close the connection.

    Of several masters, one must answer, because the others may be standbys. Addresses behind an
    HTTP proxy are not checked.

    :raises TransientError: if no host answers within ``timeout`` seconds
    """
    failures = []
    for host, port in list_endpoints(master):
        if not master.startswith("spark://") and _has_proxy(host):
            return
        try:
            socket.create_connection((host, port), timeout).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if isinstance(error, TimeoutError):
                reason = f"no answer within {timeout:g} seconds"
            failures.append(f"{host}:{port}: {reason}")
        else:
            return
    if failures:
        raise TransientError(
            f"Spark cannot be reached at {hide_parameters(master)} ({'; '.join(failures)}). Check "
            "the address, and that the cluster is running; nothing was started."
        )


def list_endpoints(master: str) -> list[tuple[str, int]]:
    """Return the host and port of each master; empty for local masters and for unknown forms."""
    try:
        return list(_parse_endpoints(master))
    except ValueError:
        return []


def hide_parameters(master: str) -> str:
    """Return the address without the parameters of Spark Connect, which may have a token."""
    return master.partition(";")[0]


def _parse_endpoints(master: str) -> Iterator[tuple[str, int]]:
    """Yield the endpoints; raises ``ValueError`` for an invalid address."""
    scheme, separator, address = master.partition("://")
    if not separator:
        return
    if scheme == "spark":
        for part in address.split(","):
            yield _parse_host(part, None)
    elif scheme == "sc":
        yield _parse_host(hide_parameters(address).removesuffix("/"), CONNECT_PORT)
    elif scheme == "k8s":
        protocol, _, host = address.rpartition("://")
        if protocol not in ("", "http", "https"):
            raise ValueError(protocol)
        yield _parse_host(host.removesuffix("/"), 80 if protocol == "http" else 443)


def _parse_host(text: str, default_port: int | None) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    port = default_port if parts.port is None else parts.port
    if not parts.hostname or not port or parts.path or parts.query or parts.username:
        raise ValueError(text)
    return parts.hostname, port


def _has_proxy(host: str) -> bool:
    """Return whether HTTP clients, such as those of gRPC and Kubernetes, may use a proxy."""
    proxies = getproxies_environment()
    has_proxy = any(name in proxies for name in ("grpc", "http", "https", "all"))
    return has_proxy and not proxy_bypass(host)
