"""Connections to a Hive metastore that demands Kerberos: SASL with the mechanism GSSAPI."""

from typing import Any

from paimon_orch.errors import AccessDeniedError, CatalogUnavailableError, PaimonError
from paimon_orch.metastore.hive_address import SASL_ENABLED
from paimon_orch.optional_packages import require_package

_LARGEST_ANSWER = 100 * 1024 * 1024
"""Bytes. A metastore sends each answer as a whole, and itself accepts as much by default."""
_ADVICE = (
    "a ticket of kinit is needed, in the default cache or in that of the variable KRB5CCNAME, or a "
    "keytab in the variable KRB5_CLIENT_KTNAME"
)


def authenticate(transport: Any, host: str, principal: str) -> Any:
    """Prove to a metastore who the user is; return the transport of the session.

    The ticket is that of the process. Integrity or encryption is what the metastore demands.

    :param transport: an open transport of Thrift, which is closed if this fails
    :param host: the host of the metastore, which replaces ``_HOST`` in its principal
    :raises AccessDeniedError: there is no ticket, or the metastore refuses it
    :raises CatalogUnavailableError: the server does not speak SASL, or is gone
    :raises MissingPackageError: a package of the extra ``hive-kerberos`` is not installed
    """
    for module, package in (("kerberos", None), ("puresasl", "pure-sasl")):
        require_package(
            module,
            "a Hive metastore with Kerberos",
            install="paimon-orch[hive-kerberos]",
            package=package,
        )
    from kerberos import KrbError
    from thrift.transport.TTransport import TSaslClientTransport

    service, _, rest = principal.partition("/")
    server = rest.partition("@")[0]
    server = host if server == "_HOST" else server
    try:
        session = TSaslClientTransport(transport, server, service, max_frame_size=_LARGEST_ANSWER)
        session.open()
    except KrbError as error:
        transport.close()
        raise AccessDeniedError(
            f"{principal} at {host} cannot be used with Kerberos: {_join(error)}; {_ADVICE}"
        ) from error
    except Exception as error:  # a server may answer anything
        transport.close()
        raise _describe_refusal(error, f"{principal} at {host}") from error
    return session


def _describe_refusal(error: Exception, what: str) -> PaimonError:
    from thrift.transport.TTransport import TTransportException

    if isinstance(error, OSError) or getattr(error, "type", None) in (
        TTransportException.END_OF_FILE,
        TTransportException.TIMED_OUT,
    ):
        return CatalogUnavailableError(
            f"{what} ended the connection during the authentication: {error}; if the metastore "
            f"does not demand Kerberos, set {SASL_ENABLED.key} = false"
        )
    return AccessDeniedError(f"{what} refused the authentication: {error}")


def _join(error: Exception) -> str:
    """Return the texts of GSSAPI, which are pairs with codes."""
    parts = (part[0] if isinstance(part, tuple) else part for part in error.args)
    return ": ".join(str(part) for part in parts)
