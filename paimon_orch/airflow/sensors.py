"""Sensors: tasks that wait for a table, in the triggerer if they are deferrable."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.task_errors import (
    build_failure,
    describe_with_next_step,
    raise_airflow_errors,
)
from paimon_orch.airflow.triggers import (
    PaimonPartitionDoneTrigger,
    PaimonPartitionTrigger,
    PaimonSnapshotTrigger,
    PaimonTableHealthTrigger,
    PaimonWaitTrigger,
)
from paimon_orch.errors import PaimonError
from paimon_orch.orchestration.error_handling import may_succeed_again
from paimon_orch.safe_text import escape_unstorable


class PaimonTableSensor(BaseSensorOperator):
    """Base class of sensors that wait for a condition of a table, and return what was found.

    A table that does not exist yet is waited for, and so is a catalog that does not answer.

    :param table: ``database.table``
    :param deferrable: wait in the triggerer, without a worker slot
    """

    template_fields: Sequence[str] = ("table", "paimon_conn_id")

    def __init__(
        self,
        *,
        table: str,
        paimon_conn_id: str = DEFAULT_CONNECTION,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.paimon_conn_id = paimon_conn_id
        self.deferrable = deferrable

    def make_trigger(self, **common: Any) -> PaimonWaitTrigger:
        """Return the trigger of the condition; ``common`` are the arguments of each trigger."""
        raise NotImplementedError

    def get_result(self, payload: Mapping[str, Any]) -> Any:
        """Return the value in XCom for the payload of the trigger's event."""
        return dict(payload)

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Return whether the condition holds, and what was found."""
        payload = None
        try:
            with raise_airflow_errors():
                catalog = PaimonHook(self.paimon_conn_id).get_conn()
                payload = self._build_trigger().poll(catalog)
        except (PaimonError, OSError) as error:
            if not may_succeed_again(error):
                raise
            self.log.warning("%s: %s", self.table, describe_with_next_step(error))
        if payload is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self.get_result(escape_unstorable(payload)))

    def execute(self, context: Context) -> Any:
        """Wait, in the triggerer if the sensor is deferrable, and return what was found."""
        if not self.deferrable:
            return super().execute(context)
        result = self.poke(context)
        if result.is_done:
            return result.xcom_value
        self.defer(
            timeout=timedelta(seconds=self.timeout),
            trigger=self._build_trigger(),
            method_name=self.execute_complete.__name__,
        )
        raise AssertionError("defer raises an exception")

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ARG002 - Airflow's signature
        """Return what the trigger found."""
        if "error" in event:
            raise build_failure(event["error"])
        return self.get_result(event)

    def _build_trigger(self) -> PaimonWaitTrigger:
        return self.make_trigger(
            table=self.table,
            paimon_conn_id=self.paimon_conn_id,
            poll_interval=self.poke_interval,
        )


class PaimonSnapshotSensor(PaimonTableSensor):
    """Waits until a table has a snapshot after a given one, and returns its id.

    :param table: ``database.table``
    :param after_snapshot_id: the id that the snapshot must exceed; None waits for any snapshot
    :param deferrable: wait in the triggerer, without a worker slot
    """

    template_fields = ("table", "after_snapshot_id", "paimon_conn_id")

    def __init__(self, *, after_snapshot_id: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.after_snapshot_id = after_snapshot_id

    def make_trigger(self, **common: Any) -> PaimonWaitTrigger:
        """Return the trigger of the snapshot."""
        # a rendered template is a text
        text = self.after_snapshot_id
        after = None if text in {None, "", "None"} else int(text)
        return PaimonSnapshotTrigger(after_snapshot_id=after, **common)

    def get_result(self, payload: Mapping[str, Any]) -> Any:
        """Return the id of the snapshot."""
        return int(payload["snapshot_id"])


class PaimonPartitionSensor(PaimonTableSensor):
    """Waits until the newest snapshot of a table has rows in a partition.

    Returns ``snapshot_id`` and the paths of the ``partitions``.

    :param table: ``database.table``
    :param partition: a spec such as ``dt=2026-01-01``; one of several partition columns selects all
        partitions with its value
    :param deferrable: wait in the triggerer, without a worker slot
    """

    template_fields = ("table", "partition", "paimon_conn_id")

    def __init__(self, *, partition: str | Mapping[str, object], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partition = partition

    def make_trigger(self, **common: Any) -> PaimonWaitTrigger:
        """Return the trigger of the partition."""
        return PaimonPartitionTrigger(partition=self.partition, **common)


class PaimonPartitionDoneSensor(PaimonPartitionSensor):
    """Waits until a partition is marked as done, as the step ``mark-done`` and Java Paimon do.

    Returns the path of the ``partition``. The marks that can be read are those of the actions
    ``success-file`` and ``done-partition`` of the table's option ``partition.mark-done-action``.

    :param table: ``database.table``
    :param partition: a spec of all partition columns, such as ``dt=2026-01-01/hour=10``
    :param deferrable: wait in the triggerer, without a worker slot
    """

    def make_trigger(self, **common: Any) -> PaimonWaitTrigger:
        """Return the trigger of the mark."""
        return PaimonPartitionDoneTrigger(partition=self.partition, **common)


class PaimonTableHealthSensor(PaimonTableSensor):
    """Waits until a table keeps the limits of its health, and returns the value of each check.

    The limits are those of the checks of Dagster and of the command ``doctor``. The log names the
    checks that fail and the step that improves them. No data file is read.

    :param table: ``database.table``
    :param limits: limits by the name of the check, which override the default ones; None drops one
    :param deferrable: wait in the triggerer, without a worker slot
    """

    template_fields = ("table", "limits", "paimon_conn_id")

    def __init__(
        self, *, limits: Mapping[str, float | str | None] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.limits = limits

    def make_trigger(self, **common: Any) -> PaimonWaitTrigger:
        """Return the trigger of the health."""
        # a rendered template is a text
        limits = {
            name: None if limit in {None, "", "None"} else float(limit)
            for name, limit in (self.limits or {}).items()
        }
        return PaimonTableHealthTrigger(limits=limits, **common)
