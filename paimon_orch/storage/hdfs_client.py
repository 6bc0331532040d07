"""Calls of hdfs-native: one client per process and cluster, time limits, errors.

The calls are coroutines on one thread, because only they end at a time limit: a call of the
library's other client waits forever for a NameNode that accepts connections and does not answer.
"""

import asyncio
import atexit
import errno
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, TypeVar, TypeVarTuple

from paimon_orch.errors import AccessDeniedError, InputError, UnsupportedError
from paimon_orch.safe_text import mask_secrets
from paimon_orch.storage.hdfs_settings import (
    CONFIG_VARIABLE,
    USER_VARIABLE,
    HdfsSettings,
    find_process_user,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CALL_SECONDS = 60.0
"""The time limit of a call, as for a connection of Hadoop's client."""
_EXIT_SECONDS = 1.0
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


class _EventLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the threads of hdfs-native that are about to wake it."""

    def __init__(self) -> None:
        super().__init__()
        self.waking: list[None] = []
        """One element for each thread; appending and removing are atomic."""

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.waking.append(None)
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        finally:
            self.waking.pop()


class _Loop(threading.Thread):
    """The thread of the calls of this process."""

    current: "_Loop | None" = None
    lock = threading.Lock()

    def __init__(self) -> None:
        super().__init__(name="paimon-orch-hdfs", daemon=True)
        self.loop = _EventLoop()
        self.process = os.getpid()
        self.clients: dict[Any, Any] = {}

    def run(self) -> None:
        self.loop.run_forever()

    @classmethod
    def get(cls) -> "_Loop":
        """Return the thread; the first call starts it. Raises :class:`UnsupportedError`."""
        current = cls.current
        if current is not None and current.process != os.getpid():  # no lock: it may be held
            raise UnsupportedError(
                f"this process was forked from process {current.process} after that had used HDFS, "
                "and the client of HDFS does not work in it. Start processes with the method "
                "'spawn' of multiprocessing, or fork before HDFS is used"
            )
        with cls.lock:
            if cls.current is None:
                cls.current = cls()
                cls.current.start()
                atexit.register(cls.current.wait_for_wakers)
            return cls.current

    def wait_for_wakers(self) -> None:
        """Wait until no thread of hdfs-native waits for the interpreter.

        If the interpreter ends before, Python ends the thread, which aborts the process after its
        work. The call that a thread answers can return before the thread does.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        while self.process == os.getpid() and self.loop.waking and time.monotonic() < deadline:
            time.sleep(0.001)

    @classmethod
    def renew_lock(cls) -> None:
        """Forget a lock that another thread held when this process was forked."""
        cls.lock = threading.Lock()


os.register_at_fork(after_in_child=_Loop.renew_lock)


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

    def call(self, path: str, make: Callable[[Any], Awaitable[T]]) -> T:
        """Return the result of ``make(client)``, where the client is that of hdfs-native.

        ``path`` is that of errors. Raises :class:`FileNotFoundError`, :class:`FileExistsError`,
        :class:`RefusedForNowError`, :class:`ConnectionLostError`, or another ``OSError`` or
        :class:`PaimonError`, after which no repetition helps.
        """
        thread = _Loop.get()

        async def run() -> T:
            return await asyncio.wait_for(make(self._connect(thread)), CALL_SECONDS)

        try:
            return asyncio.run_coroutine_threadsafe(run(), thread.loop).result()
        except TimeoutError as error:
            thread.clients.pop(self.key, None)  # its connection would not answer later calls either
            text = f"no answer within {CALL_SECONDS:g} seconds"
            raise ConnectionLostError(text) from error
        except OSError as error:
            raise self._translate_os_error(path, error) from error
        except RuntimeError as error:
            raise self._translate_runtime_error(path, error) from error

    def _connect(self, thread: _Loop) -> Any:
        """Return the client; runs on the thread of the loop, so that there is one."""
        client = thread.clients.get(self.key)
        if client is None:
            client = thread.clients[self.key] = self._open()
        return client

    def _open(self) -> Any:
        from hdfs_native import AsyncClient

        self._set_user()
        # Each NameNode is asked once; the waits between attempts are those of our retry policy.
        limits = {"dfs.client.failover.max.attempts": str(self.settings.count_name_nodes() - 1)}
        settings = self.settings.build_client_settings(self.path) | limits
        # Tasks have the settings of the process that opened the warehouse, and not other files.
        return AsyncClient(self.settings.client_url, settings, os.devnull, **self.settings.kerberos)

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


async def collect(entries: AsyncIterator[T]) -> list[T]:
    """Return all entries of a listing."""
    return [entry async for entry in entries]


def _first_line(text: str) -> str:
    """Return the message of a Java exception without its stack trace."""
    return mask_secrets(re.split(r"\\n|\n", text, maxsplit=1)[0])
