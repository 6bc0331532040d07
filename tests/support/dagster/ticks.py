"""Evaluates sensors and schedules as the daemon does."""

import atexit
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from typing import Any

import dagster as dg

from paimon_orch.dagster import PaimonCatalogResource


def evaluate_sensor(
    sensor: dg.SensorDefinition,
    paimon: PaimonCatalogResource,
    instance: dg.DagsterInstance,
    cursor: str | None = None,
) -> dg.SensorResult | dg.SkipReason:
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, resources={"paimon": paimon}
    ) as context:
        result = sensor(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def evaluate_schedule(
    schedule: dg.ScheduleDefinition, paimon: PaimonCatalogResource
) -> list[dg.RunRequest] | dg.SkipReason:
    with dg.build_schedule_context(
        _open_empty_instance(), datetime(2026, 1, 4, 3, tzinfo=UTC), resources={"paimon": paimon}
    ) as context:
        result = schedule(context)
    assert isinstance(result, list | dg.SkipReason)
    return result


@cache
def _open_empty_instance() -> dg.DagsterInstance:
    """Return an instance without runs for all schedules of this process.

    The context of a schedule cannot use an ephemeral instance, and to create one with files takes
    two seconds. The schedules at most add dynamic partitions.
    """
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(dg.DagsterInstance.local_temp())


def partitions_of(request: dg.RunRequest) -> str | None:
    """The partition key of a request, its range as ``first...last``, or None."""
    key_range = request.partition_key_range
    return f"{key_range.start}...{key_range.end}" if key_range else request.partition_key


def scheduled_op_config(schedule: dg.ScheduleDefinition, action: str) -> dict[str, Any]:
    """The config of the op of an action in a run that the schedule requests."""
    [request] = schedule.evaluate_tick(dg.build_schedule_context()).run_requests or []
    config: dict[str, Any] = request.run_config["ops"][action]["config"]
    return config


class SensorTicks:
    """A sensor with its cursor and run keys; dynamic partitions are added and deleted."""

    def __init__(
        self,
        sensor: dg.SensorDefinition,
        paimon: PaimonCatalogResource,
        instance: dg.DagsterInstance,
    ) -> None:
        self.sensor, self.paimon, self.instance = sensor, paimon, instance
        self.cursor: str | None = None
        self.run_keys: set[str] = set()

    def evaluate(self) -> dg.SensorResult | dg.SkipReason:
        result = evaluate_sensor(self.sensor, self.paimon, self.instance, self.cursor)
        if isinstance(result, dg.SensorResult):
            self.cursor = result.cursor
            self._apply_partitions_requests(result)
        return result

    def result(self) -> dg.SensorResult:
        """The result of a tick that is not skipped."""
        result = self.evaluate()
        assert isinstance(result, dg.SensorResult)
        return result

    def _apply_partitions_requests(self, result: dg.SensorResult) -> None:
        for request in result.dynamic_partitions_requests or []:
            name, keys = request.partitions_def_name, list(request.partition_keys)
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(name, keys)
            else:
                for key in keys:
                    self.instance.delete_dynamic_partition(name, key)

    def new_run_requests(self) -> list[dg.RunRequest]:
        """The run requests of a tick, without those whose run key was used before."""
        result = self.evaluate()
        if isinstance(result, dg.SkipReason):
            return []
        requests = [r for r in result.run_requests or [] if r.run_key not in self.run_keys]
        self.run_keys |= {request.run_key for request in requests if request.run_key}
        return requests

    def requested_partitions(self) -> list[str | None]:
        """The partition keys of the new run requests of a tick; ranges as ``first...last``."""
        return [partitions_of(request) for request in self.new_run_requests()]

    def skip_message(self) -> str:
        result = self.evaluate()
        reason = result.skip_reason if isinstance(result, dg.SensorResult) else result
        assert isinstance(reason, dg.SkipReason)
        assert reason.skip_message
        return reason.skip_message
