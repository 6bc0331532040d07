"""The component of a table: assets, a sensor or schedule, maintenance jobs and checks."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, Field

from paimon_orch.dagster.components.asset_overrides import AssetOverrides
from paimon_orch.dagster.components.attribute_rules import TABLE_RULE
from paimon_orch.dagster.components.component_attributes import TableAttributes
from paimon_orch.dagster.components.maintenance_attributes import ScheduleAttributes
from paimon_orch.dagster.components.translation import translate_spec
from paimon_orch.dagster.health_checks import build_paimon_table_checks
from paimon_orch.dagster.jobs import (
    ACTION_TAG,
    build_expire_partitions_job,
    build_expire_snapshots_job,
    build_remove_orphan_files_job,
    build_sync_iceberg_job,
)
from paimon_orch.dagster.maintenance_assets import (
    MaintenanceAssetRun,
    build_compaction_asset,
    build_compaction_spec,
    build_file_index_asset,
    build_file_index_spec,
)
from paimon_orch.dagster.maintenance_ops import (
    EXPIRE_PARTITIONS,
    EXPIRE_SNAPSHOTS,
    REMOVE_ORPHAN_FILES,
    SYNC_ICEBERG,
)
from paimon_orch.dagster.names import TableAssetKind, group_name, table_asset_key
from paimon_orch.dagster.run_config import build_allowance_config
from paimon_orch.dagster.schedules import build_compaction_schedule, build_maintenance_schedules
from paimon_orch.dagster.sensor import build_latest_snapshot_sensor


class TableScaffoldParams(BaseModel):
    """The parameters of ``dg scaffold defs``."""

    table: str = Field(default="database.table", description="The table as database.table.")


class PaimonTableScaffolder(dg.Scaffolder[TableScaffoldParams]):
    """Writes the YAML of a component that can be loaded without changes."""

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
    """A Paimon table with its compaction, a sensor or schedule, maintenance jobs and checks.

    The warehouse is not read when definitions are loaded.
    """

    table: Annotated[str, TABLE_RULE] = Field(description="The table, as database.table.")

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(
            description="A Paimon table: compaction, sensor, maintenance jobs and checks.",
            tags=["paimon"],
        )

    def get_asset_spec(self, kind: TableAssetKind) -> dg.AssetSpec:
        """Return the spec of an asset of the table, with the changes of ``translation``.

        Subclasses may override this; the key, the partitions and the default dependencies are
        fixed. The spec of the kind TABLE is defined only for an external table.
        """
        return translate_spec(self._build_default_spec(kind), self.table, self.translation)

    def execute(
        self,
        context: dg.AssetExecutionContext,  # noqa: ARG002 - for subclasses
        run: MaintenanceAssetRun[Any],
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # there is no value
        """Execute a run of the compaction or the file index asset; subclasses may override this."""
        yield run.execute()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002 - Dagster's signature
        """Return the definitions of the table."""
        return self.definitions()

    def definitions(self, overrides: AssetOverrides | None = None) -> dg.Definitions:
        """Return the definitions of the table.

        ``overrides`` are used instead of the methods of this component.
        """
        self.freshness_policy()  # the policy is validated even if the asset is not defined here
        jobs = self._build_jobs()
        return dg.Definitions(
            assets=self._build_assets(
                overrides or AssetOverrides(self.get_asset_spec, self.execute)
            ),
            asset_checks=self._build_checks(),
            jobs=jobs,
            schedules=self._build_schedules(jobs),
            sensors=self._build_sensors(),
            resources=self.resources(),
        )

    @property
    def _partitions_def(self) -> dg.PartitionsDefinition[str] | None:
        return self.partitions_def(self.table)

    def _build_default_spec(self, kind: TableAssetKind) -> dg.AssetSpec:
        if kind is TableAssetKind.TABLE:
            return self._build_table_spec()
        is_compaction = kind is TableAssetKind.COMPACTION
        spec = (build_compaction_spec if is_compaction else build_file_index_spec)(
            self.table,
            partitions_def=self._partitions_def,
            key_prefix=self.key_prefix,
            owners=self.owners,
        )
        if not is_compaction:
            return spec
        return spec.replace_attributes(automation_condition=self.compaction_condition())

    def _build_table_spec(self) -> dg.AssetSpec:
        return dg.AssetSpec(
            table_asset_key(self.table, self.key_prefix),
            description=f"The Paimon table `{self.table}`, written by another engine.",
            group_name=group_name(self.table),
            kinds={"paimon"},
            owners=self.owners,
            metadata={"dagster/table_name": self.table, "dagster/storage_kind": "paimon"},
            partitions_def=self._partitions_def,
            freshness_policy=self.freshness_policy(),
        )

    def _build_assets(self, overrides: AssetOverrides) -> list[dg.AssetSpec | dg.AssetsDefinition]:
        kinds = [TableAssetKind.TABLE] if self.external else []
        kinds.append(TableAssetKind.COMPACTION)
        if self.file_index:
            kinds.append(TableAssetKind.FILE_INDEX)
        return [self._build_asset(kind, overrides) for kind in kinds]

    def _build_asset(
        self, kind: TableAssetKind, overrides: AssetOverrides
    ) -> dg.AssetSpec | dg.AssetsDefinition:
        spec = overrides.build_spec(kind, self.table, self._build_default_spec(kind))
        if kind is TableAssetKind.TABLE:
            return spec
        is_compaction = kind is TableAssetKind.COMPACTION
        build = build_compaction_asset if is_compaction else build_file_index_asset
        asset = build(
            self.table,
            partitions_def=self._partitions_def,
            key_prefix=self.key_prefix,
            owners=self.owners,
            max_partitions_per_run=self.max_partitions_per_run,
            allowances=self.allowances,
            checks=self.checks,
            execute=overrides.execute,
        )
        return asset.map_asset_specs(lambda _: spec)

    def _build_checks(self) -> list[dg.AssetChecksDefinition]:
        if self.checks is None:
            return []
        return [
            build_paimon_table_checks(self.table, limits=self.checks, key_prefix=self.key_prefix)
        ]

    def _build_sensors(self) -> list[dg.SensorDefinition]:
        reports_only = self.trigger == "automation" and self.external
        if self.trigger != "sensor" and not reports_only:
            return []
        status = dg.DefaultSensorStatus
        # Freshness policies and automation conditions ignore observations of external assets.
        is_materialized = reports_only or self.freshness is not None
        sensor = build_latest_snapshot_sensor(
            self.table,
            partitions_def=self._partitions_def,
            policy=self.compaction.policy(),
            allowances=self.allowances,
            key_prefix=self.key_prefix,
            max_partitions_per_run=self.max_partitions_per_run,
            minimum_interval_seconds=self.sensor_interval_seconds,
            checks=self.checks,
            report_as="materialization" if is_materialized else "observation",
            request_runs=not reports_only,
            default_status=status.RUNNING if self.running else status.STOPPED,
        )
        return [sensor]

    def _build_jobs(self) -> list[dg.JobDefinition]:
        builders = {
            EXPIRE_SNAPSHOTS.action: build_expire_snapshots_job,
            REMOVE_ORPHAN_FILES.action: build_remove_orphan_files_job,
            SYNC_ICEBERG.action: build_sync_iceberg_job,
        }
        if self.partition_expiration is not None:
            builders[EXPIRE_PARTITIONS.action] = build_expire_partitions_job
        policies = {
            action: policy.job_config()
            for action, policy in self._find_maintenance_policies().items()
        }
        allowances = build_allowance_config(self.allowances)
        return [
            build(
                self.table, config=policies.get(action, {}) | allowances, key_prefix=self.key_prefix
            )
            for action, build in builders.items()
        ]

    def _find_maintenance_policies(self) -> dict[str, ScheduleAttributes]:
        """Return the configured policies by action; only jobs with a policy have a schedule."""
        policies = {
            EXPIRE_SNAPSHOTS.action: self.snapshot_expiration,
            REMOVE_ORPHAN_FILES.action: self.orphan_files,
            EXPIRE_PARTITIONS.action: self.partition_expiration,
            SYNC_ICEBERG.action: self.iceberg,
        }
        return {action: policy for action, policy in policies.items() if policy is not None}

    def _build_schedules(self, jobs: Sequence[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
        policies = self._find_maintenance_policies()
        status = dg.DefaultScheduleStatus
        default_status = status.RUNNING if self.running else status.STOPPED
        schedules = build_maintenance_schedules(
            [job for job in jobs if job.tags[ACTION_TAG] in policies],
            cron={
                name: policy.cron for name, policy in policies.items() if policy.cron is not None
            },
            config={name: {"dry_run": policy.dry_run} for name, policy in policies.items()},
            default_status=default_status,
        )
        if self.trigger == "schedule":
            compaction_schedule = build_compaction_schedule(
                self.table,
                partitions_def=self._partitions_def,
                policy=self.compaction.policy(),
                allowances=self.allowances,
                key_prefix=self.key_prefix,
                max_partitions_per_run=self.max_partitions_per_run,
                default_status=default_status,
            )
            schedules.append(compaction_schedule)
        return schedules
