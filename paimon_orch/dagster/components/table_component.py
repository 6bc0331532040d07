"""The component of a table: assets, a sensor or schedule, maintenance jobs and checks."""

from collections.abc import Iterator
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.asset_runs.asset_run import MaintenanceAssetRun
from paimon_orch.dagster.components.asset_overrides import AssetOverrides
from paimon_orch.dagster.components.attribute_rules import TABLE_RULE
from paimon_orch.dagster.components.component_attributes import TableAttributes
from paimon_orch.dagster.components.maintenance_definitions import (
    build_jobs,
    build_schedules,
    get_sensor_options,
)
from paimon_orch.dagster.components.scaffolding import PaimonTableScaffolder
from paimon_orch.dagster.components.translation import translate_spec
from paimon_orch.dagster.health_checks import build_paimon_table_checks
from paimon_orch.dagster.jobs import JobScope
from paimon_orch.dagster.maintenance_assets import (
    build_compaction_asset,
    build_compaction_spec,
    build_file_index_asset,
    build_file_index_spec,
)
from paimon_orch.dagster.names import TableAssetKind, definition_name, group_name, table_asset_key
from paimon_orch.dagster.partitions_definitions import find_dynamic_definitions
from paimon_orch.dagster.quality_checks import build_paimon_quality_checks
from paimon_orch.dagster.schedules import build_compaction_schedule
from paimon_orch.dagster.sensor import WatchedTable, build_watch_sensor


@dg.scaffold_with(PaimonTableScaffolder)
class PaimonTableComponent(TableAttributes, dg.Component):
    """A Paimon table with its compaction, a sensor or schedule, maintenance jobs and checks.

    The warehouse is not read when definitions are loaded.
    """

    table: Annotated[str, TABLE_RULE] = Field(description="The table, as database.table.")
    never: dict[str, str] = Field(
        default={},
        description="Filters that no row may match, such as 'amount < 0', by the names of checks "
        "that the metadata of the files proves without a scan.",
    )

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
        jobs = build_jobs(self, JobScope.of_table(self.table, self.key_prefix))
        watched = self.build_watched_table()
        sensors = (
            [] if watched is None else [build_watch_sensor(watched, **get_sensor_options(self))]
        )
        return dg.Definitions(
            assets=self.build_assets(overrides),
            asset_checks=self.build_checks(),
            jobs=jobs,
            schedules=[*build_schedules(self, jobs), *self.build_compaction_schedules()],
            sensors=sensors,
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

    def build_assets(
        self, overrides: AssetOverrides | None = None, sensor_name: str | None = None
    ) -> list[dg.AssetSpec | dg.AssetsDefinition]:
        """Return the assets of the table; ``sensor_name`` is that of the sensor of many tables."""
        self.freshness_policy()  # the policy is validated even if the asset is not defined here
        overrides = overrides or AssetOverrides(self.get_asset_spec, self.execute)
        kinds = [TableAssetKind.TABLE] if self.external else []
        kinds.append(TableAssetKind.COMPACTION)
        if self.file_index:
            kinds.append(TableAssetKind.FILE_INDEX)
        sensor = sensor_name or definition_name("latest_snapshot", self.table, self.key_prefix)
        return [self._build_asset(kind, overrides, sensor) for kind in kinds]

    def _name_sensor(self, spec: dg.AssetSpec, sensor: str) -> dg.AssetSpec:
        """Return the spec of an asset that says which sensor adds its partitions."""
        definition = spec.partitions_def
        is_dynamic = definition is not None and any(find_dynamic_definitions(definition))
        if not is_dynamic or self.build_watched_table() is None:
            return spec
        hint = f"The sensor `{sensor}` adds its partitions while it is started."
        return spec.replace_attributes(description=f"{spec.description or ''}\n\n{hint}".strip())

    def _build_asset(
        self, kind: TableAssetKind, overrides: AssetOverrides, sensor: str
    ) -> dg.AssetSpec | dg.AssetsDefinition:
        spec = overrides.build_spec(kind, self.table, self._build_default_spec(kind))
        spec = self._name_sensor(spec, sensor)
        if kind is TableAssetKind.TABLE:
            return spec
        is_compaction = kind is TableAssetKind.COMPACTION
        build = build_compaction_asset if is_compaction else build_file_index_asset
        op = self.compaction_op
        return build(
            self.table,
            key_prefix=self.key_prefix,
            max_partitions_per_run=self.max_partitions_per_run,
            allowances=self.allowances,
            checks=self.checks,
            execute=overrides.execute,
            resource_prefix=self.resource_prefix,
            op=op if is_compaction else op.model_copy(update={"name": None}),
            run_on=self.run_on,
            spec=spec,
        )

    def build_checks(self) -> list[dg.AssetChecksDefinition]:
        """Return the checks of the table's health, and those of its rows."""
        settings: dict[str, Any] = {
            "key_prefix": self.key_prefix,
            "op": self.other_ops,
            "resource_prefix": self.resource_prefix,
        }
        checks = []
        if self.checks is not None:
            checks.append(build_paimon_table_checks(self.table, limits=self.checks, **settings))
        if self.never:
            checks.append(build_paimon_quality_checks(self.table, self.never, **settings))
        return checks

    def _list_request_settings(self) -> dict[str, Any]:
        """Return the settings of a sensor or schedule that requests compactions."""
        return {
            "partitions_def": self._partitions_def,
            "policy": self.compaction.policy(),
            "allowances": self.allowances,
            "key_prefix": self.key_prefix,
            "max_partitions_per_run": self.max_partitions_per_run,
            "op": self.compaction_op,
            "run_tags": self.run_tags,
            "resource_prefix": self.resource_prefix,
        }

    def build_watched_table(self) -> WatchedTable | None:
        """Return the table for a sensor, or None if no sensor evaluates its commits."""
        reports_only = self.trigger == "automation" and self.external
        if self.trigger != "sensor" and not reports_only:
            return None
        # Freshness policies and automation conditions ignore observations of external assets, and
        # Dagster compares their data versions only with the runs of assets without partitions.
        is_unsynced = self.external and self.partitions is None
        is_materialized = reports_only or self.freshness is not None or is_unsynced
        return WatchedTable(
            table=self.table,
            checks=self.checks,
            report_as="materialization" if is_materialized else "observation",
            fresh_within=None if self.freshness is None else self.freshness.window,
            request_runs=not reports_only,
            **self._list_request_settings(),
        )

    def build_compaction_schedules(self) -> list[dg.ScheduleDefinition]:
        """Return the schedule of the compaction, if it is the trigger."""
        if self.trigger != "schedule":
            return []
        status = dg.DefaultScheduleStatus
        schedule = build_compaction_schedule(
            self.table,
            default_status=status.RUNNING if self.running else status.STOPPED,
            **self._list_request_settings(),
        )
        return [schedule]
