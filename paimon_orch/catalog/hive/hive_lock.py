"""The lock of a table in a Hive metastore, as Java Paimon takes it.

See docs/format/catalogs.md#locks-of-a-metastore.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.errors import (
    CatalogUnavailableError,
    CommitOutcomeUnknownError,
    LockTimeoutError,
    NotFoundError,
    PaimonError,
)
from paimon_orch.metastore.hive_client import HiveClient, import_thrift_types
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)

_FIRST_SLEEP = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveLock:
    """The exclusive lock of one table or branch.

    The metastore removes the lock of a process that died when its transaction timeout is over.
    """

    client: HiveClient
    identifier: TableIdentifier
    """Each branch has a lock of its own."""
    acquire_timeout: float
    max_sleep: float

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the lock, and release it at the end; a failed release is a warning."""
        lock_id = self._acquire()
        try:
            yield
        finally:
            self._release(lock_id)

    def _acquire(self) -> int:
        started = time.monotonic()
        answer = self._request()
        lock_id = int(answer.lockid)
        try:
            state = self._wait(answer, started)
        except BaseException:
            self._release(lock_id)
            raise
        types = import_thrift_types()
        if state == types.LockState.ACQUIRED:
            return lock_id
        self._release(lock_id)
        name = types.LockState._VALUES_TO_NAMES.get(state, state)  # noqa: SLF001 - generated code
        raise LockTimeoutError(
            f"the lock of {self._name} was not acquired within {time.monotonic() - started:.0f} s "
            f"(lock {lock_id} in {self.client.address}: {name}); nothing was changed. "
            f"{self._describe_holders()}Try again, or raise the option 'lock-acquire-timeout' of "
            "the catalog. A metastore without housekeeping keeps the locks of dead processes; its "
            "method unlock releases them by their number."
        )

    def _describe_holders(self) -> str:
        """Return a sentence that names the processes with an acquired lock, if there are any."""
        types = import_thrift_types()
        request = types.ShowLocksRequest(dbname=self._database, tablename=self._object_name)
        try:
            locks = self.client.read("show_locks", request).locks or ()
        except PaimonError as error:
            return f"Its holder is not known ({error}). "
        holders = [
            f"lock {lock.lockid} of {lock.user} on {lock.hostname} ({lock.agentInfo}), held for "
            f"{time.time() - lock.acquiredat / 1000:.0f} s"
            for lock in locks
            if lock.state == types.LockState.ACQUIRED
        ]
        return f"It is held by {', '.join(holders)}. " if holders else ""

    def _request(self) -> Any:
        types = import_thrift_types()
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=self._database,
            tablename=self._object_name,
        )
        request = types.LockRequest(
            component=[component],
            user=self.client.address.user,
            hostname=socket.gethostname(),
            agentInfo=f"paimon-orch, process {os.getpid()}",
        )
        try:
            return self.client.write("lock", request)
        except CommitOutcomeUnknownError as error:
            raise CatalogUnavailableError(
                f"the lock of {self._name} was not acquired ({error}); nothing was changed. If the "
                "metastore has created it, it removes it after its transaction timeout."
            ) from error

    def _wait(self, answer: Any, started: float) -> int:
        """Look at the lock until it is not waiting or the time is over; return its state."""
        types = import_thrift_types()
        sleep = _FIRST_SLEEP
        while answer.state == types.LockState.WAITING:
            left = started + self.acquire_timeout - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(sleep, self.max_sleep, left))
            sleep *= 2
            try:
                answer = self.client.read(
                    "check_lock", types.CheckLockRequest(lockid=answer.lockid)
                )
            except NotFoundError:  # the metastore has removed the lock meanwhile
                return int(types.LockState.NOT_ACQUIRED)
        return int(answer.state)

    def _release(self, lock_id: int) -> None:
        """Release the lock; it is not an error if that fails, as the change has been made."""
        types = import_thrift_types()
        try:
            self.client.read("unlock", types.UnlockRequest(lockid=lock_id))
        except PaimonError as error:
            logger.warning(
                "lock %d of %s is not released: %s. The metastore removes it after its "
                "transaction timeout.",
                lock_id,
                self._name,
                error,
            )

    @property
    def _name(self) -> str:
        return f"{self._database}.{self._object_name}"

    @property
    def _database(self) -> str:
        # Metastores of Hive 2 compare the names of locks, but not of tables, case-sensitively.
        return self.identifier.database.lower()

    @property
    def _object_name(self) -> str:
        table = self.identifier.table.lower()
        return replace(self.identifier, table=table).object_name
