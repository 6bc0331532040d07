"""The component of all tables of a database that match a pattern."""

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster._core.storage.defs_state.base import DefsStateStorage
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field

from paimon_orch.dagster.asset_runs.asset_run import MaintenanceAssetRun
from paimon_orch.dagster.components.asset_overrides import AssetOverrides
from paimon_orch.dagster.components.attribute_rules import DATABASE_RULE
from paimon_orch.dagster.components.component_attributes import TableAttributes
from paimon_orch.dagster.components.lake_report_attributes import LakeReportAttributes
from paimon_orch.dagster.components.maintenance_definitions import (
    build_jobs,
    build_schedules,
    get_sensor_options,
)
from paimon_orch.dagster.components.partition_attributes import PartitionsAttributes
from paimon_orch.dagster.components.scaffolding import PaimonDatabaseScaffolder
from paimon_orch.dagster.components.table_component import PaimonTableComponent
from paimon_orch.dagster.jobs import JobScope
from paimon_orch.dagster.names import TableAssetKind, check_table_name, join_definition_name
from paimon_orch.dagster.run_requests import build_partitions_requests
from paimon_orch.dagster.sensor import has_small_manifests
from paimon_orch.dagster.tables_sensor import build_tables_sensor
from paimon_orch.errors import CorruptFileError, InputError, NotFoundError, UnsupportedError
from paimon_orch.safe_text import get_logger
from paimon_orch.table.metadata.manifest_io import pause_garbage_collection
from paimon_orch.table.table import Table

logger = get_logger(__name__)


@dg.scaffold_with(PaimonDatabaseScaffolder)
class PaimonDatabaseComponent(TableAttributes, dg.StateBackedComponent):
    """The tables of a Paimon database that match a pattern.

    Each table has the assets and checks of a table component. One sensor evaluates the commits of
    all tables, and each job has the tables as its partitions. Tables are discovered when Dagster
    refreshes the state of definitions, not when it loads them. Partitioned tables have dynamic
    partitions unless ``partitions`` is set.
    """

    database: Annotated[str, DATABASE_RULE] = Field(description="The name of the database.")
    name: Annotated[str | None, DATABASE_RULE] = Field(
        default=None,
        description="Name of the sensor, the jobs and the schedules, after the action. Default: "
        "the database. Components of the same database need different names.",
    )
    select: list[str] = Field(
        default=["*"], description="Shell patterns of the names of tables to select."
    )
    exclude: list[str] = Field(
        default=[], description="Shell patterns of the names of tables to exclude."
    )
    lake_report: LakeReportAttributes | None = Field(
        default=None,
        description="Asset with the doctor's report of the tables, and its schedule; {} for the "
        "defaults.",
    )
    defs_state: ResolvedDefsStateConfig = Field(
        default_factory=DefsStateConfigArgs.local_filesystem,
        description="Where the names of the discovered tables are stored.",
    )

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(
            description="All Paimon tables of a database that match a pattern.", tags=["paimon"]
        )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Return where the names of the discovered tables are stored."""
        patterns = [*(f"+{name}" for name in self.select), *(f"-{name}" for name in self.exclude)]
        key = f"{type(self).__name__}[{self.catalog_key}/{self.database}{''.join(patterns)}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=key)

    def write_state_to_path(self, state_path: Path) -> None:
        """Discover the tables in the catalog, and write their partition columns by table name."""
        paimon = self.resources().get(f"{self.resource_prefix}paimon")
        if paimon is None:
            raise InputError(
                "'catalog', 'warehouse' or 'metastore' is required to discover the tables of "
                f"{self.database}"
            )
        catalog = paimon.process_config_and_initialize().catalog()
        partition_columns = dict[str, list[str]]()
        for name in filter(self._matches, catalog.tables(self.database)):
            table = f"{self.database}.{name}"
            try:
                check_table_name(table)
            except InputError as error:
                logger.warning("%s; the table is skipped", error)
                continue
            try:
                opened = catalog.table(table)
                partition_columns[name] = list(opened.stores.get_schema().partition_keys)
                if partition_columns[name]:
                    self._add_partitions(opened)
            except NotFoundError:  # another process drops or creates the table
                continue
            except (CorruptFileError, InputError, UnsupportedError) as error:
                logger.warning("%s; the table %s is skipped", error, table)
        state_path.write_text(json.dumps(partition_columns), encoding="utf-8")

    def _add_partitions(self, table: Table) -> None:
        """Add the dynamic partitions of a table, if there is an instance; sensors do this later.

        Tables with large manifests are left to the sensor.
        """
        storage = DefsStateStorage.get()
        definition = self.table_component(table.identifier, partitioned=True).partitions_def(
            table.identifier
        )
        if storage is None or not storage.has_instance or definition is None:
            return
        from paimon_orch.steps.inspection.inspect import inspect_newest  # definitions load without

        instance: dg.DagsterInstance = storage._instance  # noqa: SLF001 - Dagster passes no other
        state = table.load()
        if state.snapshot is None or not has_small_manifests(state, state.snapshot):
            return
        paths = inspect_newest(state).partitions
        for request in build_partitions_requests(
            state.schema, definition, instance, present=paths, touched=()
        ):
            instance.add_dynamic_partitions(request.partitions_def_name, [*request.partition_keys])

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002 - Dagster's signature
        state_path: Path | None,
    ) -> dg.Definitions:
        """Return the definitions of the tables that were discovered by the last refresh."""
        if state_path is None:
            return dg.Definitions()
        return self.definitions(json.loads(state_path.read_text(encoding="utf-8")))

    def definitions(self, tables: Mapping[str, list[str]]) -> dg.Definitions:
        """Return the definitions of tables; ``tables`` are the partition columns by table name.

        Tables whose component has the attributes of this one share a sensor, jobs and schedules.
        The others, of a subclass that overrides :meth:`table_component`, have their own.
        """
        components = [
            self.table_component(f"{self.database}.{name}", partitioned=bool(columns))
            for name, columns in tables.items()
        ]
        shared = [each for each in components if self._has_same_attributes(each)]
        own = [each for each in components if not self._has_same_attributes(each)]
        with pause_garbage_collection():
            return dg.Definitions.merge(
                self._build_shared_definitions(shared),
                *self._build_lake_report(),
                *(table.definitions(self._build_overrides(table)) for table in own),
            )

    def _has_same_attributes(self, table: PaimonTableComponent) -> bool:
        names = TableAttributes.model_fields.keys() - {"partitions"}
        return all(getattr(table, name) == getattr(self, name) for name in names)

    def _build_shared_definitions(self, tables: Sequence[PaimonTableComponent]) -> dg.Definitions:
        """Return the assets of tables, and one sensor, one job of each action and one schedule."""
        if not tables:
            return dg.Definitions(resources=self.resources())
        if self.compaction_op.name is not None:
            raise InputError("op.name names one op, and this component has one for each table")
        name = self.name or self.database
        names = [table.table for table in tables]
        jobs = build_jobs(self, JobScope.of_tables(name, names, self.key_prefix))
        watched = [each for table in tables if (each := table.build_watched_table())]
        sensor_name = [*self.key_prefix, name]
        sensors = (
            [build_tables_sensor(sensor_name, watched, **get_sensor_options(self))]
            if watched
            else []
        )
        compactions = [each for table in tables for each in table.build_compaction_schedules()]
        return dg.Definitions(
            assets=[
                asset
                for table in tables
                for asset in table.build_assets(
                    self._build_overrides(table),
                    join_definition_name("latest_snapshot", *sensor_name),
                )
            ],
            asset_checks=[check for table in tables for check in table.build_checks()],
            jobs=jobs,
            schedules=[*build_schedules(self, jobs), *compactions],
            sensors=sensors,
            resources=self.resources(),
        )

    def _build_lake_report(self) -> Iterator[dg.Definitions]:
        if self.lake_report is not None:
            yield self.lake_report.build_defs(
                [self.name or self.database],
                select=[f"{self.database}.{pattern}" for pattern in self.select],
                exclude=[f"{self.database}.{pattern}" for pattern in self.exclude],
                key_prefix=self.key_prefix,
                resource_prefix=self.resource_prefix,
                running=self.running,
            )

    def _build_overrides(self, table: PaimonTableComponent) -> AssetOverrides:
        return AssetOverrides(
            lambda kind: self.get_asset_spec(kind, table),
            lambda context, run: self.execute(context, run, table),
        )

    def get_asset_spec(self, kind: TableAssetKind, table: PaimonTableComponent) -> dg.AssetSpec:
        """Return the spec of an asset of a table, as :meth:`PaimonTableComponent.get_asset_spec`.

        Subclasses may override this.
        """
        return table.get_asset_spec(kind)

    def execute(
        self,
        context: dg.AssetExecutionContext,
        run: MaintenanceAssetRun[Any],
        table: PaimonTableComponent,
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # there is no value
        """Execute a run of the compaction or file index asset of a table.

        Subclasses may override this.
        """
        yield from table.execute(context, run)

    def table_component(self, table: str, *, partitioned: bool) -> PaimonTableComponent:
        """Return the component of one table; subclasses may override this."""
        attributes = {name: getattr(self, name) for name in TableAttributes.model_fields}
        partitions = self.partitions or PartitionsAttributes(dynamic=True)
        attributes["partitions"] = partitions if partitioned else None
        return PaimonTableComponent(table=table, **attributes)

    def _matches(self, name: str) -> bool:
        is_selected = any(fnmatchcase(name, pattern) for pattern in self.select)
        return is_selected and not any(fnmatchcase(name, pattern) for pattern in self.exclude)
