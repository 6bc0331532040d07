"""Calls of hdfs-native: one client per process and cluster, time limits, errors.

Each call is that of the blocking client, in a thread of its own, which is left alone at the time
limit: the client would wait forever for a NameNode that accepts connections and does not answer. Its
other client can stop the process: when a connection breaks, it wakes Python while it holds a lock
that Python's thread waits for in its next call.
"""

import atexit
import errno
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paimon_orch.errors import AccessDeniedError, InputError, UnsupportedError
from paimon_orch.safe_text import mask_secrets
from paimon_orch.storage.hdfs_settings import (
    CONFIG_VARIABLE,
    USER_VARIABLE,
    HdfsSettings,
    find_process_user,
)
from paimon_orch.storage.store_operation import limit_call

T = TypeVar("T")

CALL_SECONDS = 60.0
"""The time limit of the calls of an operation, as for a connection of Hadoop's client."""
_EXIT_SECONDS = 1.0
_THREAD = "paimon-orch-hdfs"
_RPC_ERROR = re.compile(r'^(?:Fatal)?RPCError\("([\w.$]+)", "(.*)"\)$', re.DOTALL)
_EXCEPTIONS_BY_ERRNO = {
    errno.EACCES: ("AccessControlException",),
    errno.EDQUOT: (
        "QuotaExceededException",
        "DSQuotaExceededException",
        "NSQuotaExceededException",
    ),
    errno.EINVAL: ("InvalidPathException",),
    errno.EISDIR: ("PathIsNotEmptyDirectoryException", "PathIsDirectoryException"),
    errno.ENOTDIR: ("ParentNotDirectoryException",),
}
_ERRNO_BY_EXCEPTION = {
    name: number for number, names in _EXCEPTIONS_BY_ERRNO.items() for name in names
}
_REFUSALS = (
    "SafeModeException",
    "StandbyException",
    "RetriableException",
    "RetryStartFileException",
)
_KERBEROS_ERROR = re.compile("SASL|GSSAPI|Kerberos", re.IGNORECASE)
_GSSAPI_ERROR = re.compile(r'^GSSAPIError\(.*, \d+, "(.*)"\)$', re.DOTALL)
_GET_A_TICKET = (
    "get a ticket with kinit (KRB5CCNAME is its file), or set the storage options "
    "kerberos_principal and kerberos_keytab, of a keytab that has a key of the principal"
)
_KERBEROS_ADVICE = (
    ("Failed to load libgssapi", "install libgssapi-krb5-2 (on Red Hat krb5-libs)"),
    ("KDC|realm", "/etc/krb5.conf (KRB5_CONFIG) must name the realm and a KDC that answers"),
    (
        "expired|[Nn]o (?:Kerberos )?credentials",
        _GET_A_TICKET,
    ),
)
"""Patterns of messages, and what to do."""
_NOT_SECURE = (
    "hadoop.security.authentication is not set to kerberos; set "
    f"{CONFIG_VARIABLE} to the directory of the cluster's core-site.xml"
)
_DATA_PROTECTION = "dfs.data.transfer.protection"


class RefusedForNowError(Exception):
    """The NameNode answered that it does not carry out the call at the moment."""


class ConnectionLostError(ConnectionError):
    """A connection failed, or a time limit ended; the call may have been carried out."""


class _Calls:
    """The clients of this process, and the threads of their calls."""

    process: int | None = None
    """The process that has used HDFS, which is the parent of a forked one."""
    lock = threading.Lock()
    clients: dict[Any, Any] = {}  # noqa: RUF012 - of the process

    @classmethod
    def start(cls, function: Callable[[], T]) -> Future[T]:
        """Call a function in a new thread. Raises :class:`UnsupportedError`."""
        if cls.process is None:
            cls.process = os.getpid()
            atexit.register(cls.wait_for_threads)
        if cls.process != os.getpid():
            raise UnsupportedError(
                f"this process was forked from process {cls.process} after that had used HDFS, "
                "and the client of HDFS does not work in it. Start processes with the method "
                "'spawn' of multiprocessing, or fork before HDFS is used"
            )
        future = Future[T]()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - raised by the caller
                future.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - a panic, which is no Exception
                future.set_exception(RuntimeError(str(error)))

        threading.Thread(target=run, name=_THREAD, daemon=True).start()
        return future

    @classmethod
    def wait_for_threads(cls) -> None:
        """Wait for a moment for calls that are about to return.

        If one returns when the interpreter has ended, Python ends its thread, which aborts the
        process after its work.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        for thread in threading.enumerate():
            if thread.name == _THREAD:
                thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True, slots=True)
class HdfsClient:
    """Calls one HDFS."""

    settings: HdfsSettings
    path: str
    """The warehouse, without the URI of the HDFS."""
    key: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    """What identifies the cluster, and how it is used."""

    def __post_init__(self) -> None:
        settings = self.settings
        names = settings.settings.items(), settings.kerberos.items()
        key = (
            settings.root,
            settings.user,
            self.path if settings.mounts else "",
            *map(frozenset, names),
        )
        object.__setattr__(self, "key", key)

    def call(self, path: str, make: Callable[[Any], T]) -> T:
        """Return the result of ``make(client)``, where the client is that of hdfs-native.

        ``path`` is that of errors. Raises :class:`FileNotFoundError`, :class:`FileExistsError`,
        :class:`RefusedForNowError`, :class:`ConnectionLostError`, or another ``OSError`` or
        :class:`PaimonError`, after which no repetition helps.
        """
        limit = limit_call(CALL_SECONDS)
        future = _Calls.start(lambda: make(self._connect()))
        if not wait([future], limit).done:
            # its connection would not answer later calls either
            _Calls.clients.pop(self.key, None)
            raise ConnectionLostError(f"no answer within {limit:.2g} seconds")
        try:
            return future.result()
        except OSError as error:
            raise self._translate_os_error(path, error) from error
        except RuntimeError as error:
            raise self._translate_runtime_error(path, error) from error

    def _connect(self) -> Any:
        with _Calls.lock:
            client = _Calls.clients.get(self.key)
            if client is None:
                client = _Calls.clients[self.key] = self._open()
            return client

    def _open(self) -> Any:
        from hdfs_native import Client

        self._set_user()
        # Each NameNode is asked once; the waits between attempts are those of our retry policy.
        limits = {"dfs.client.failover.max.attempts": str(self.settings.count_name_nodes() - 1)}
        settings = self.settings.build_client_settings(self.path) | limits
        # Tasks have the settings of the process that opened the warehouse, and not other files.
        client = Client(self.settings.client_url, settings, os.devnull, **self.settings.kerberos)
        return client.inner  # a file of the outer one closes itself when it is collected

    def _set_user(self) -> None:
        """Set the user of this process; hdfs-native reads it from the environment only.

        Raises :class:`InputError` if the process acts for another user already.
        """
        if self.settings.requires_kerberos:
            return
        user, actual = self.settings.user, os.environ.get(USER_VARIABLE)
        if actual is None:
            wanted = user or self.settings.default_user
            if wanted is not None and wanted != find_process_user():
                os.environ[USER_VARIABLE] = wanted
        elif user not in (None, actual):
            raise InputError(
                f"{self.settings.root} is used by the user {user}, but {USER_VARIABLE} is {actual} "
                "in this process, and a process is one user of HDFS"
            )

    def _translate_os_error(self, path: str, error: OSError) -> Exception:
        if error.errno is not None:  # not of hdfs-native
            return error
        text = _first_line(str(error))
        if isinstance(error, IsADirectoryError) or text.startswith("Path is not a file"):
            return OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if isinstance(error, FileNotFoundError):
            return OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(error, FileExistsError):
            return OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return ConnectionLostError(text + self._hint_at_name(text) + self._hint_at_security(text))

    def _translate_runtime_error(self, path: str, error: RuntimeError) -> Exception:
        """Return the error for one that hdfs-native does not give a type."""
        text = str(error)
        match = _RPC_ERROR.match(text)
        if match is None:
            return self._translate_other(path, text)
        name, message = match[1].rpartition(".")[2].rpartition("$")[2], _first_line(match[2])
        if name in _REFUSALS:
            return RefusedForNowError(f"{name}: {message}")
        if name == "AccessControlException" and "authentication" in message:
            return self._build_kerberos_error(message)
        if number := _ERRNO_BY_EXCEPTION.get(name):
            return OSError(number, message, path)
        return OSError(errno.EREMOTEIO, f"{name}: {message}", path)

    def _translate_other(self, path: str, text: str) -> Exception:
        if text.startswith("InvalidArgument"):
            return InputError(f"{path}: {text}")
        if _KERBEROS_ERROR.search(text):
            return self._build_kerberos_error(_first_line(text))
        # What DataNodes answer; other DataNodes were tried already.
        return ConnectionLostError(_first_line(text) + self._hint_at_security(text))

    def _build_kerberos_error(self, text: str) -> AccessDeniedError:
        if not self.settings.requires_kerberos:
            return AccessDeniedError(
                f"{self.settings.root} demands Kerberos ({text}), but {_NOT_SECURE}"
            )
        if match := _GSSAPI_ERROR.match(text):
            text = match[1].replace('\\"', '"')
        advice = (f"; {do}" for pattern, do in _KERBEROS_ADVICE if re.search(pattern, text))
        return AccessDeniedError(
            f"{self.settings.root} cannot be used with Kerberos: {text}{next(advice, '')}"
        )

    def _hint_at_security(self, text: str) -> str:
        """Return what may be missing if a server closes connections of clients that it does not know."""
        is_secure = self.settings.requires_kerberos
        if not is_secure and "RPC listener disconnected" in text:
            return f"; if the cluster demands Kerberos: {_NOT_SECURE}"
        if is_secure and "reset" in text and _DATA_PROTECTION not in self.settings.settings:
            return f"; if the DataNodes demand it, set {_DATA_PROTECTION} as in their hdfs-site.xml"
        return ""

    def _hint_at_name(self, text: str) -> str:
        if "lookup" not in text:
            return ""
        host = self.settings.authority.partition(":")[0]
        return (
            f"; if {host} is a name service, set {CONFIG_VARIABLE} to the directory with its "
            "hdfs-site.xml"
        )


def _first_line(text: str) -> str:
    """Return the message of a Java exception without its stack trace."""
    return mask_secrets(re.split(r"\\n|\n", text, maxsplit=1)[0])
