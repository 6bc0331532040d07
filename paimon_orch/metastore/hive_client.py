"""Requests to a Hive metastore over Thrift: connections, repetitions and errors."""

import os
import select
import socket
import ssl
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paimon_orch.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    InputError,
    NotFoundError,
    PaimonError,
    UnsupportedError,
)
from paimon_orch.metastore.hive_address import PRINCIPAL, SASL_ENABLED, USE_SSL, MetastoreAddress
from paimon_orch.metastore.hive_kerberos import authenticate
from paimon_orch.optional_packages import require_package
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)

_CONNECT_TIMEOUT = 10.0
_TLS_ADVICE = (
    f"{USE_SSL.key} = true: trusted are the certificates of the system, or those in the PEM file of "
    "the variable SSL_CERT_FILE; a truststore of Java is not read"
)
_PERMISSION_WORDS = ("Permission.NotAllow", "Permission denied", "AccessControlException")
"""Words in messages of the metastore and its plugins when it refuses a user."""


def import_thrift_types() -> Any:
    """Return the module of the metastore's Thrift structures.

    Raises :class:`MissingPackageError` if an optional package is missing.
    """
    for module in ("thrift", "pymetastore"):
        require_package(module, "a Hive metastore", install="paimon-orch[hive]")
    from pymetastore.hive_metastore import ttypes

    return ttypes


@dataclass(frozen=True, slots=True)
class HiveClient:
    """Calls the methods of a metastore; each thread of each process has a connection of its own.

    Connections are opened when they are needed, so the object is cheap to create and to pickle.
    """

    address: MetastoreAddress

    def read(self, method: str, *arguments: Any) -> Any:
        """Call a method that can be repeated; it is repeated once if the connection was cut."""
        try:
            return self._call(method, arguments)
        except CommitOutcomeUnknownError as error:
            logger.info("%s; repeating the request", error)
        try:
            return self._call(method, arguments)
        except CommitOutcomeUnknownError as error:
            raise CatalogUnavailableError(
                f"{self.address}: {method} has no answer, as the connection was cut twice"
            ) from error

    def write(self, method: str, *arguments: Any) -> Any:
        """Call a method once.

        Raises :class:`CatalogUnavailableError` if the request was not sent, and
        :class:`CommitOutcomeUnknownError` if the connection was cut before the answer.
        """
        return self._call(method, arguments)

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        from thrift.protocol.TProtocol import TProtocolException
        from thrift.Thrift import TApplicationException, TException
        from thrift.transport.TTransport import TTransportException

        connection = _get_connection(self.address)
        try:
            return getattr(connection.client, method)(*arguments)
        except (TTransportException, OSError, UnicodeDecodeError) as error:
            _drop_connection(self.address)
            raise self._describe_cut(method, error) from error
        except TException as error:
            if isinstance(error, (TApplicationException, TProtocolException)):
                _drop_connection(self.address)  # the next call could read the rest of the answer
            raise _translate_error(error, f"{self.address}: {method}") from error
        except BaseException as error:  # or an interrupt: the next call would read the answer
            _drop_connection(self.address)
            if self.address.principal is None or not isinstance(error, Exception):
                raise
            # for example, the session of Kerberos has expired
            raise self._describe_cut(method, error) from error

    def _describe_cut(self, method: str, error: Exception) -> PaimonError:
        from thrift.transport.TTransport import TTransportException

        if getattr(error, "type", None) == TTransportException.TIMED_OUT:
            reason = f"no answer within {self.address.socket_timeout:g} s"
        else:
            reason = f"the connection was cut: {error}"
        return CommitOutcomeUnknownError(
            f"{self.address}: it is not known whether the metastore carried out {method} ({reason})"
        )


def request_table(database: str, table: str) -> Any:
    """Return the request of one table."""
    types = import_thrift_types()
    return types.GetTableRequest(dbName=database, tblName=table, capabilities=_capabilities())


def request_tables(database: str, tables: Sequence[str]) -> Any:
    """Return the request of several tables."""
    types = import_thrift_types()
    return types.GetTablesRequest(
        dbName=database, tblNames=list(tables), capabilities=_capabilities()
    )


def _capabilities() -> Any:
    """Return the capability without which one insert-only table makes a whole listing fail."""
    types = import_thrift_types()
    return types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES])


class _Connection:
    """One open connection. Its socket is closed when the thread or the process ends."""

    def __init__(self, address: MetastoreAddress) -> None:
        import_thrift_types()
        from pymetastore.hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TTransport import TBufferedTransport

        from paimon_orch.metastore.hive_stream import LimitedStream

        self._handle, host = _connect(address)
        self._handle.settimeout(address.socket_timeout)
        stream = LimitedStream(self._handle)
        self.begin_answer = stream.begin_answer
        transport = TBufferedTransport(stream)
        if address.principal is not None:
            transport = authenticate(transport, host, address.principal)
        self.close = weakref.finalize(self, transport.close)
        self.client = Client(TBinaryProtocol(transport))

    def is_open(self) -> bool:
        """Return whether the server has not closed the connection meanwhile.

        A server sends nothing between answers, so what can be read is the end of the connection.
        """
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return not poll.poll(0)


class _OpenConnections(threading.local):
    """The connections of a thread by process, as a forked process must not use those of its parent."""

    def __init__(self) -> None:
        self.by_process: dict[tuple[int, MetastoreAddress], _Connection] = {}


_open_connections = _OpenConnections()


def _get_connection(address: MetastoreAddress) -> _Connection:
    """Return this thread's connection; a new one if the server has closed it meanwhile."""
    connections, key = _open_connections.by_process, (os.getpid(), address)
    connection = connections.get(key)
    if connection is None or not connection.is_open():
        _drop_connection(address)
        connection = _Connection(address)
        if address.principal is None:  # with Kerberos the metastore knows the user
            _send_user(connection, address)
        connections[key] = connection
    connection.begin_answer()
    return connection


def _send_user(connection: _Connection, address: MetastoreAddress) -> None:
    try:
        connection.client.set_ugi(address.user, [address.user])
    except Exception as error:
        connection.close()
        tls = "" if address.uses_tls else f", or TLS, set {USE_SSL.key} = true"
        raise CatalogUnavailableError(
            f"{address} cannot be used: {error}; if the metastore demands Kerberos, set "
            f"{SASL_ENABLED.key} = true and {PRINCIPAL.key}{tls}"
        ) from error


def _drop_connection(address: MetastoreAddress) -> None:
    connection = _open_connections.by_process.pop((os.getpid(), address), None)
    if connection is not None:
        connection.close()


def _connect(address: MetastoreAddress) -> tuple[socket.socket, str]:
    """Connect to the first server that answers; return the connection and the host."""
    problems = []
    for host, port in address.uris:
        try:
            plain = socket.create_connection((host, port), _CONNECT_TIMEOUT)
            return (_start_tls(plain, host) if address.uses_tls else plain), host
        except OSError as error:
            problems.append(f"{host}:{port}: {error}")
    advice = f"; {_TLS_ADVICE}" if address.uses_tls else ""
    raise CatalogUnavailableError(
        f"no connection to the Hive metastore {address} ({'; '.join(problems)}){advice}"
    )


def _start_tls(plain: socket.socket, host: str) -> socket.socket:
    """Return the encrypted connection; the certificate of the server must be trusted."""
    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    except OSError:
        plain.close()
        raise


def _translate_error(error: Exception, what: str) -> PaimonError:
    """Return our error for an answer of the metastore."""
    from pymetastore.hive_metastore import ttypes
    from thrift.Thrift import TApplicationException

    text = str(getattr(error, "message", None) or error)
    message = f"{what}: {text}"
    if any(word in text for word in _PERMISSION_WORDS):
        return AccessDeniedError(message)
    match error:
        case ttypes.NoSuchObjectException() | ttypes.UnknownDBException():
            return NotFoundError(message)
        case ttypes.UnknownTableException() | ttypes.UnknownPartitionException():
            return NotFoundError(message)
        case ttypes.NoSuchLockException() | ttypes.NoSuchTxnException():
            return NotFoundError(message)
        case ttypes.AlreadyExistsException():
            return AlreadyExistsError(message)
        case ttypes.InvalidOperationException() | ttypes.InvalidObjectException():
            return InputError(message)
        case TApplicationException(type=TApplicationException.UNKNOWN_METHOD):
            return UnsupportedError(f"{message}; Hive 2.3 or newer is needed")
    return CatalogUnavailableError(f"{what}: the metastore failed: {type(error).__name__}: {text}")
