"""Evaluates a sensor tick by tick, as the daemon does."""

import dagster as dg

from paimon_orch.dagster import PaimonCatalogResource


class SensorTicks:
    """A sensor with its cursor and its run keys; dynamic partitions are added and deleted as it asks."""

    def __init__(
        self,
        sensor: dg.SensorDefinition,
        paimon: PaimonCatalogResource,
        instance: dg.DagsterInstance,
    ) -> None:
        self.sensor, self.paimon, self.instance = sensor, paimon, instance
        self.cursor: str | None = None
        self.run_keys: set[str] = set()

    def result(self) -> dg.SensorResult | dg.SkipReason:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"paimon": self.paimon}
        ) as context:
            found = self.sensor(context)
        assert isinstance(found, dg.SensorResult | dg.SkipReason)
        if isinstance(found, dg.SensorResult):
            self.cursor = found.cursor
            self._grow(found)
        return found

    def _grow(self, result: dg.SensorResult) -> None:
        for request in result.dynamic_partitions_requests or []:
            name, keys = request.partitions_def_name, list(request.partition_keys)
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(name, keys)
            else:
                for key in keys:
                    self.instance.delete_dynamic_partition(name, key)

    def requests(self) -> list[dg.RunRequest]:
        """What a tick asks to run, without those whose run key was used before."""
        found = self.result()
        if isinstance(found, dg.SkipReason):
            return []
        new = [r for r in found.run_requests or [] if r.run_key not in self.run_keys]
        self.run_keys |= {request.run_key for request in new if request.run_key}
        return new

    def requested_partitions(self) -> list[str | None]:
        """The partitions that a tick asks to compact."""
        return [request.partition_key for request in self.requests()]

    def skipped(self) -> str:
        found = self.result()
        reason = found.skip_reason if isinstance(found, dg.SensorResult) else found
        assert isinstance(reason, dg.SkipReason)
        assert reason.skip_message
        return reason.skip_message
