"""A table from a few lines of YAML: assets, sensor or schedule, upkeep, checks."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel, Field

from paimon_orch.dagster.assets import (
    MAX_PARTITIONS_PER_RUN,
    build_compaction_asset,
    build_file_index_asset,
)
from paimon_orch.dagster.checks import Limit, build_paimon_table_checks
from paimon_orch.dagster.jobs import (
    ACTION_TAG,
    build_expire_partitions_job,
    build_expire_snapshots_job,
    build_remove_orphan_files_job,
)
from paimon_orch.dagster.names import group_name, pool_name, table_key
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.schedules import build_compaction_schedule, build_maintenance_schedules
from paimon_orch.dagster.sensors import build_latest_snapshot_sensor
from paimon_orch.dagster.upkeep import (
    EXPIRE_PARTITIONS,
    EXPIRE_SNAPSHOTS,
    REMOVE_ORPHAN_FILES,
)
from paimon_orch.errors import InputError

_Scalar = str | bool | int | float
"""Rendering a template makes a number of a text that looks like one."""

_Verbatim = dg.Resolver.passthrough()


class PartitionsAttributes(dg.Model, dg.Resolvable):
    """The values of the one partition column: ``values``, or from ``start`` on by ``every``; or ``dynamic``.

    ``format`` is how a time is written as a value, in the directives of strftime, such as %Y%m%d. Dynamic partitions are
    those that the table has, of any number of columns: the sensor adds and deletes them.
    """

    values: Annotated[list[str] | None, _Verbatim] = None
    start: Annotated[str | None, _Verbatim] = None
    every: Literal["hour", "day", "month"] = "day"
    format: str | None = None
    dynamic: bool = False

    def definition(self, table: str) -> dg.PartitionsDefinition[str]:
        """Return Dagster's definition; raises :class:`InputError` unless one of the three kinds is given."""
        if (self.values is not None) + (self.start is not None) + self.dynamic != 1:
            raise InputError("partitions need one of 'values', 'start' and 'dynamic'")
        if self.dynamic:
            return dg.DynamicPartitionsDefinition(name=pool_name(table))
        if self.values is not None:
            return dg.StaticPartitionsDefinition(self.values)
        assert self.start is not None
        if self.every == "hour":
            return dg.HourlyPartitionsDefinition(self.start, fmt=self.format)
        if self.every == "month":
            return dg.MonthlyPartitionsDefinition(self.start, fmt=self.format)
        return dg.DailyPartitionsDefinition(self.start, fmt=self.format)


class SnapshotExpirationAttributes(dg.Model, dg.Resolvable):
    """What is kept (by default what the table's options say), and when the rest goes (by default hourly)."""

    retain_min: int | None = None
    retain_max: int | None = None
    retain_for: str | None = None
    cron: str | None = None


class OrphanFilesAttributes(dg.Model, dg.Resolvable):
    """How old orphans must be to go, and when (by default weekly); ``quarantine`` moves them aside instead."""

    older_than: str = "3 d"
    quarantine: bool = False
    dry_run: bool = True
    cron: str | None = None


class PartitionExpirationAttributes(dg.Model, dg.Resolvable):
    """The age at which partitions are dropped, and when that is looked at (by default nightly)."""

    expiration_time: str
    strategy: Literal["values-time", "update-time"] | None = None
    cron: str | None = None


class SparkAttributes(dg.Model, dg.Resolvable):
    """Where Spark runs: a master, or a Connect server as ``remote``."""

    master: str = "local[*]"
    remote: str | None = None
    config: dict[str, _Scalar] = Field(default={})


class TableAttributes(dg.Model, dg.Resolvable):
    """What a table and a database have in common; the names are those of the YAML.

    With ``warehouse`` the resources ``paimon`` and ``spark`` are made here, the same for all components of that
    warehouse; without it the project brings them. ``external`` tables get an asset here, which nothing in Dagster
    materializes; others have one already. Sensor and schedules start ``running`` or stopped.
    """

    warehouse: str | None = None
    storage_options: dict[str, _Scalar] = Field(default={})
    spark: SparkAttributes = SparkAttributes()
    external: bool = True
    key_prefix: list[str] = Field(default=[])
    owners: list[str] = Field(default=[])
    partitions: PartitionsAttributes | None = None
    trigger: Literal["sensor", "schedule", "none"] = "sensor"
    running: bool = False
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN
    file_index: bool = False
    snapshot_expiration: SnapshotExpirationAttributes | None = None
    orphan_files: OrphanFilesAttributes | None = None
    partition_expiration: PartitionExpirationAttributes | None = None
    checks: dict[str, Limit] | None = Field(
        default={}, description="Limits by the name of the check; null for no checks."
    )

    def resources(self) -> dict[str, Any]:
        """Return the resources of the warehouse, if one is named."""
        if self.warehouse is None:
            return {}
        return {
            "paimon": _catalog(self.warehouse, _texts(self.storage_options)),
            "spark": _session(self.spark.master, self.spark.remote, _texts(self.spark.config)),
        }


class TableScaffoldParams(BaseModel):
    """What ``dg scaffold defs`` asks for."""

    table: str = Field(default="database.table", description="The table as database.table.")


class PaimonTableScaffolder(dg.Scaffolder[TableScaffoldParams]):
    """Writes a component that loads as it is."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableScaffoldParams]:
        """Return the parameters of the command."""
        return TableScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[TableScaffoldParams]) -> None:
        """Write the YAML."""
        attributes = {
            "table": request.params.table,
            "warehouse": "{{ env.PAIMON_WAREHOUSE }}",
            "trigger": "sensor",
            "snapshot_expiration": {"retain_for": "24 h"},
            "orphan_files": {"older_than": "3 d", "dry_run": True},
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(PaimonTableScaffolder)
class PaimonTableComponent(TableAttributes, dg.Component):
    """A Paimon table and what looks after it: compaction, sensor or schedule, expiration, orphan cleanup, checks.

    All attributes but ``table`` are those of :class:`TableAttributes`. Nothing is read from the warehouse while
    definitions load.
    """

    table: str

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what ``dg list components`` shows."""
        return dg.ComponentTypeSpec(
            description="A Paimon table: compaction, sensor, expiration, orphan cleanup, checks.",
            tags=["paimon"],
        )

    def get_asset_spec(self) -> dg.AssetSpec:
        """Return the asset of an external table; made to be overridden."""
        return dg.AssetSpec(
            table_key(self.table, self.key_prefix),
            description=f"The Paimon table `{self.table}`, which another engine writes.",
            group_name=group_name(self.table),
            kinds={"paimon"},
            owners=self.owners,
            metadata={"dagster/table_name": self.table, "dagster/storage_kind": "paimon"},
            partitions_def=self._partitions_def,
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002 - Dagster's signature
        """Return the definitions of the table."""
        return self.definitions()

    def definitions(self) -> dg.Definitions:
        """Return the definitions of the table."""
        checks = []
        if self.checks is not None:
            found = build_paimon_table_checks(
                self.table, limits=self.checks, key_prefix=self.key_prefix
            )
            checks.append(found)
        jobs = self._jobs()
        return dg.Definitions(
            assets=self._assets(),
            asset_checks=checks,
            jobs=jobs,
            schedules=self._schedules(jobs),
            sensors=self._sensors(),
            resources=self.resources(),
        )

    @property
    def _partitions_def(self) -> dg.PartitionsDefinition[str] | None:
        return None if self.partitions is None else self.partitions.definition(self.table)

    def _assets(self) -> list[dg.AssetSpec | dg.AssetsDefinition]:
        assets: list[dg.AssetSpec | dg.AssetsDefinition] = []
        if self.external:
            assets.append(self.get_asset_spec())
        builders = [build_compaction_asset, *([build_file_index_asset] if self.file_index else [])]
        assets += [
            build(
                self.table,
                partitions_def=self._partitions_def,
                key_prefix=self.key_prefix,
                owners=self.owners,
                max_partitions_per_run=self.max_partitions_per_run,
            )
            for build in builders
        ]
        return assets

    def _sensors(self) -> list[dg.SensorDefinition]:
        if self.trigger != "sensor":
            return []
        states = dg.DefaultSensorStatus
        sensor = build_latest_snapshot_sensor(
            self.table,
            partitions_def=self._partitions_def,
            key_prefix=self.key_prefix,
            default_status=states.RUNNING if self.running else states.STOPPED,
        )
        return [sensor]

    def _jobs(self) -> list[dg.JobDefinition]:
        builders = [build_expire_snapshots_job, build_remove_orphan_files_job]
        if self.partition_expiration is not None:
            builders.append(build_expire_partitions_job)
        return [build(self.table, key_prefix=self.key_prefix) for build in builders]

    def _schedules(self, jobs: Sequence[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
        policies = {
            EXPIRE_SNAPSHOTS.action: self.snapshot_expiration,
            REMOVE_ORPHAN_FILES.action: self.orphan_files,
            EXPIRE_PARTITIONS.action: self.partition_expiration,
        }
        given = {
            action: policy.model_dump(exclude_none=True)
            for action, policy in policies.items()
            if policy is not None
        }
        cron = {action: policy.pop("cron") for action, policy in given.items() if "cron" in policy}
        states = dg.DefaultScheduleStatus
        status = states.RUNNING if self.running else states.STOPPED
        schedules = build_maintenance_schedules(
            [job for job in jobs if job.tags[ACTION_TAG] in given],
            cron=cron,
            config=given,
            default_status=status,
        )
        if self.trigger == "schedule":
            compaction = build_compaction_schedule(
                self.table,
                partitions_def=self._partitions_def,
                key_prefix=self.key_prefix,
                default_status=status,
            )
            schedules.append(compaction)
        return schedules


_Items = tuple[tuple[str, str], ...]


def _texts(options: Mapping[str, _Scalar]) -> _Items:
    return tuple(
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in sorted(options.items())
    )


@cache
def _catalog(warehouse: str, options: _Items) -> PaimonCatalogResource:
    """Return one resource for all components that say the same: Dagster merges none but the same object."""
    return PaimonCatalogResource(warehouse=warehouse, storage_options=dict(options))


@cache
def _session(master: str, remote: str | None, config: _Items) -> SparkSessionResource:
    return SparkSessionResource(master=master, remote=remote, spark_config=dict(config))
