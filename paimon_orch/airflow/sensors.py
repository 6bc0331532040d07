"""Sensors: tasks that wait for a table."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from paimon_orch.airflow.hooks import DEFAULT_CONNECTION, PaimonHook
from paimon_orch.airflow.task_errors import build_failure, raise_airflow_errors
from paimon_orch.airflow.triggers import PaimonSnapshotTrigger, find_snapshot_after


class PaimonSnapshotSensor(BaseSensorOperator):
    """Waits until a table has a snapshot after a given one, and returns its id.

    A table that does not exist yet is waited for, and so is a catalog that does not answer.

    :param table: ``database.table``
    :param after_snapshot_id: the id that the snapshot must exceed; None waits for any snapshot
    :param deferrable: wait in the triggerer, without a worker slot
    """

    template_fields: Sequence[str] = ("table", "after_snapshot_id", "paimon_conn_id")

    def __init__(
        self,
        *,
        table: str,
        after_snapshot_id: int | str | None = None,
        paimon_conn_id: str = DEFAULT_CONNECTION,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.after_snapshot_id = after_snapshot_id
        self.paimon_conn_id = paimon_conn_id
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Return whether the table has such a snapshot, and its id."""
        with raise_airflow_errors():
            catalog = PaimonHook(self.paimon_conn_id).get_conn()
            snapshot_id = find_snapshot_after(catalog, self.table, self._get_snapshot_id())
        return PokeReturnValue(is_done=snapshot_id is not None, xcom_value=snapshot_id)

    def execute(self, context: Context) -> int | None:
        """Wait, in the triggerer if the sensor is deferrable, and return the id of the snapshot."""
        if not self.deferrable:
            waited: int | None = super().execute(context)
            return waited
        result = self.poke(context)
        if result.is_done:
            found: int | None = result.xcom_value
            return found
        self.defer(
            timeout=timedelta(seconds=self.timeout),
            trigger=PaimonSnapshotTrigger(
                table=self.table,
                paimon_conn_id=self.paimon_conn_id,
                after_snapshot_id=self._get_snapshot_id(),
                poll_interval=self.poke_interval,
            ),
            method_name=self.execute_complete.__name__,
        )
        raise AssertionError("defer raises an exception")

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> int:  # noqa: ARG002 - Airflow's signature
        """Return the id of the snapshot that the trigger found."""
        if "error" in event:
            raise build_failure(event["error"])
        return int(event["snapshot_id"])

    def _get_snapshot_id(self) -> int | None:
        # a rendered template is a text
        text = self.after_snapshot_id
        return None if text in {None, "", "None"} else int(text)
