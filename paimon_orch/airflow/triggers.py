"""Triggers: they poll a table in a thread of the triggerer, without a worker of Airflow."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Literal
from weakref import WeakValueDictionary

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from paimon_orch.airflow.catalog_connection import open_connection
from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.task_errors import describe_with_next_step
from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import InputError, NotFoundError, PaimonError
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.error_handling import may_succeed_again
from paimon_orch.orchestration.table_conditions import (
    find_done_partition,
    find_partitions,
    read_health,
    resolve_limits,
)
from paimon_orch.orchestration.table_watch import MAX_PARTITIONS, TableNews, TableWatch
from paimon_orch.safe_text import escape_unstorable
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.table.table import Table

FireOn = Literal["due", "changed"]
"""Which news start a DAG: partitions that are due for compaction, or each change of data."""
_CURSOR_KEY = "paimon_orch_cursor"
_catalogs: WeakValueDictionary[object, Catalog] = WeakValueDictionary()
"""The catalogs that triggers of this process have open, by the fields of their connection."""
_opening: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()


class PaimonTableSnapshotTrigger(BaseEventTrigger):
    """Watches the commits of all engines to a table, for an :class:`~airflow.sdk.AssetWatcher`.

    The payload of an event has the newest snapshot and the partitions that are due for compaction,
    each with its strategy and reason; :mod:`~paimon_orch.airflow.due_partitions` maps an operator
    over them. Snapshots of compactions fire no event, and a missing table is waited for.

    The cursor is kept in Airflow's asset state store (Airflow 3.3 and newer). Without the store, a
    triggerer that starts evaluates the whole table again. Partitions that were reported are
    evaluated again after the ``max_wait`` of the policy, so a lost event delays a compaction.

    :param table: ``database.table``
    :param fire_on: ``due`` fires if partitions are due for compaction, ``changed`` for all commits
        that change data
    :param policy: fields of :class:`~paimon_orch.steps.CompactionPolicy` that differ from its
        defaults
    :param poll_interval: seconds between two polls; each of them takes one or two requests if the
        table has no new snapshot
    :param max_partitions: the number of partitions in one event, which should not exceed Airflow's
        option ``max_map_length``; the others follow with the next poll
    """

    def __init__(
        self,
        *,
        table: str,
        paimon_conn_id: str = DEFAULT_CONNECTION,
        fire_on: FireOn = "due",
        policy: Mapping[str, Any] | None = None,
        poll_interval: float = 30,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        super().__init__()
        if fire_on not in {"due", "changed"}:
            raise InputError(f"fire_on {fire_on!r} must be 'due' or 'changed'")
        self.table, self.paimon_conn_id, self.fire_on = table, paimon_conn_id, fire_on
        self.policy, self.poll_interval = dict(policy or {}), poll_interval
        self.max_partitions = max_partitions
        self._watch = TableWatch(
            table=table, policy=CompactionPolicy(**self.policy), max_partitions=max_partitions
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments."""
        names = (
            "table",
            "paimon_conn_id",
            "fire_on",
            "policy",
            "poll_interval",
            "max_partitions",
        )
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for news, until the trigger is cancelled.

        An error is logged and the table is polled again, because a trigger that ends is not started
        again before its DAG is parsed.
        """
        cursor, catalog = await self._load_cursor(), None
        while True:
            try:
                catalog = catalog or await open_catalog_in_thread(self.paimon_conn_id)
                news = await asyncio.to_thread(self._watch.poll, catalog, cursor)
            except (PaimonError, OSError) as error:
                self.log.error("%s: %s", self.table, describe_with_next_step(error))  # noqa: TRY400 - the message names the cause
                news = None
            if news is not None:
                if news.refusal:
                    self.log.warning("%s", news.refusal)
                if self._is_reported(news):
                    yield TriggerEvent(escape_unstorable(news.to_dict()))
                cursor = news.cursor
                # after the event, so that a triggerer that is killed here reports the news again
                await self._store_cursor(cursor)
            await asyncio.sleep(self.poll_interval)

    def _is_reported(self, news: TableNews) -> bool:
        return bool(news.due) or (self.fire_on == "changed" and bool(news.data_snapshots))

    async def _load_cursor(self) -> Cursor | None:
        store = self._find_store()
        return None if store is None else Cursor.from_json(await store.aget(_CURSOR_KEY))

    async def _store_cursor(self, cursor: Cursor) -> None:
        store = self._find_store()
        if store is not None:
            await store.aset(_CURSOR_KEY, cursor.to_json())

    def _find_store(self) -> Any:
        """Return Airflow's asset state store, or None before Airflow 3.3."""
        return getattr(self, "asset_state_store", None)


class PaimonWaitTrigger(BaseTrigger):
    """Base class of triggers that fire once, when a condition of a table holds.

    A table that does not exist yet is waited for, and so is a catalog that does not answer. The
    payload of the event is what :meth:`find` returned, or ``error`` with the message of an error
    that ends the wait.

    :param table: ``database.table``
    :param poll_interval: seconds between two polls
    """

    argument_names: ClassVar[tuple[str, ...]] = ()
    """The arguments of the condition, which are attributes of the trigger."""

    def __init__(
        self,
        *,
        table: str,
        paimon_conn_id: str = DEFAULT_CONNECTION,
        poll_interval: float = 30,
    ) -> None:
        super().__init__()
        self.table, self.paimon_conn_id = table, paimon_conn_id
        self.poll_interval = poll_interval

    def find(self, table: Table) -> dict[str, Any] | None:
        """Return JSON values about the table if the condition holds, or None if it does not."""
        raise NotImplementedError

    def poll(self, catalog: Catalog) -> dict[str, Any] | None:
        """Return what :meth:`find` returns, or None if the table does not exist yet."""
        try:
            table = catalog.table(self.table)
        except NotFoundError:
            return None
        return self.find(table)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments."""
        names = ("table", "paimon_conn_id", "poll_interval", *self.argument_names)
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: what was found, or the error that ends the wait."""
        try:
            payload = await self._wait()
        except (PaimonError, OSError) as error:
            payload = {"error": describe_with_next_step(error)}
        yield TriggerEvent(escape_unstorable(payload))

    async def _wait(self) -> dict[str, Any]:
        catalog = None
        while True:
            try:
                catalog = catalog or await open_catalog_in_thread(self.paimon_conn_id)
                payload = await asyncio.to_thread(self.poll, catalog)
            except (PaimonError, OSError) as error:
                if not may_succeed_again(error):
                    raise
                self.log.warning("%s: %s", self.table, describe_with_next_step(error))
                payload = None
            if payload is not None:
                return payload
            await asyncio.sleep(self.poll_interval)


class PaimonSnapshotTrigger(PaimonWaitTrigger):
    """Fires when a table has a snapshot after a given one; the payload has ``snapshot_id``.

    :param after_snapshot_id: the id that the snapshot must exceed; None waits for any snapshot
    """

    argument_names = ("after_snapshot_id",)

    def __init__(self, *, after_snapshot_id: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.after_snapshot_id = after_snapshot_id

    def poll(self, catalog: Catalog) -> dict[str, Any] | None:
        """Return the id of the newest snapshot if it exceeds the given one."""
        try:
            snapshot = catalog.latest_snapshot(self.table)
        except NotFoundError:
            return None
        if snapshot is None or snapshot.id <= (self.after_snapshot_id or 0):
            return None
        return {"snapshot_id": snapshot.id}


class PaimonPartitionTrigger(PaimonWaitTrigger):
    """Fires when the newest snapshot has rows in a partition.

    The payload has ``snapshot_id`` and the paths of the ``partitions``.

    :param partition: a spec such as ``dt=2026-01-01``; one of several partition columns selects all
        partitions with its value
    """

    argument_names = ("partition",)

    def __init__(self, *, partition: str | Mapping[str, object], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partition = partition

    def find(self, table: Table) -> dict[str, Any] | None:
        """Return the partitions that match, if there are any."""
        found = find_partitions(table, self.partition)
        return None if found is None else found.to_dict()


class PaimonPartitionDoneTrigger(PaimonPartitionTrigger):
    """Fires when a partition is marked as done; the payload has the path of the ``partition``.

    See :func:`~paimon_orch.orchestration.table_conditions.find_done_partition`.

    :param partition: a spec of all partition columns, such as ``dt=2026-01-01/hour=10``
    """

    def find(self, table: Table) -> dict[str, Any] | None:
        """Return the path of the partition if it is marked as done."""
        path = find_done_partition(table, self.partition)
        return None if path is None else {"partition": path}


class PaimonTableHealthTrigger(PaimonWaitTrigger):
    """Fires when a table keeps the limits of its health; the payload has the value of each check.

    :param limits: limits by the name of the check, which override the default ones; None drops one
    """

    argument_names = ("limits",)

    def __init__(self, *, limits: Mapping[str, float | None] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.limits = dict(limits or {})
        self._resolved = resolve_limits(self.table, self.limits)

    def find(self, table: Table) -> dict[str, Any] | None:
        """Return the values of the checks if all of them pass, and log those that do not."""
        health = read_health(table, self._resolved)
        for outcome in health.failed:
            value = outcome.figures.get("value")
            self.log.info(
                "%s: %s is %s, its limit %g. %s",
                self.table,
                outcome.name,
                value,
                self._resolved[outcome.name],
                outcome.description,
            )
        return None if health.failed else health.to_dict()


async def open_catalog_in_thread(paimon_conn_id: str) -> Catalog:
    """Return the catalog of a connection, without blocking the event loop.

    The triggers of a process share it, so that the tables of a catalog are polled over the same
    connections to its server or database.
    """
    connection = await PaimonHook.aget_connection(paimon_conn_id)
    key = connection.host, connection.password, connection.extra
    async with _opening.setdefault(key, asyncio.Lock()):
        catalog = _catalogs.get(key)
        if catalog is None:
            catalog = _catalogs[key] = await asyncio.to_thread(open_connection, connection)
        return catalog
