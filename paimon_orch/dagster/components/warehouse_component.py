"""The component of all tables of a catalog: one job that maintains them within budgets."""

import re
from typing import Annotated, Any

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import (
    CRON_RULE,
    DURATION_RULE,
    SIZE_RULE,
    TABLE_RULE,
    TIMEZONE_RULE,
)
from paimon_orch.dagster.components.component_attributes import CatalogAttributes
from paimon_orch.dagster.components.lake_report_attributes import LakeReportAttributes
from paimon_orch.dagster.components.warehouse_attributes import (
    BudgetAttributes,
    PriceAttributes,
    declare_field,
)
from paimon_orch.dagster.components.warehouse_job import (
    build_warehouse_job,
    build_warehouse_schedule,
)
from paimon_orch.dagster.names import group_name, table_asset_key
from paimon_orch.dagster.op_specs import DEFAULT_OP
from paimon_orch.dagster.run_config import (
    STALE_EXTERNAL_HELP,
    UNKNOWN_OPTIONS_HELP,
    build_allowance_config,
)
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.steps.autopilot.maintenance_request import HISTORY_TABLE, MaintenanceRequest
from paimon_orch.steps.compaction.policy import CompactionPolicy

_POLICY = CompactionPolicy()


class PaimonWarehouseScaffolder(dg.Scaffolder[Any]):
    """Writes the YAML of a component that can be loaded without changes."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the YAML."""
        attributes = {
            "warehouse": "{{ env.PAIMON_WAREHOUSE }}",
            "select": ["*"],
            "budgets": {"max_bytes_per_hour": "50 gb"},
        }
        dg.scaffold_component(request, attributes)


@dg.scaffold_with(PaimonWarehouseScaffolder)
class PaimonWarehouseComponent(CatalogAttributes, dg.Component):
    """All tables of a catalog, maintained by one job within budgets.

    Each run lists the tables, so new ones are maintained without a reload of definitions.
    """

    name: str = Field(
        default="paimon_maintenance", description="Name of the job; unique in the project."
    )
    select: list[str] = Field(
        default=["*"], description="Shell patterns of database.table to select."
    )
    exclude: list[str] = Field(
        default=[], description="Shell patterns of database.table to exclude."
    )
    budgets: BudgetAttributes = Field(
        default=BudgetAttributes(), description="Limits of the bytes, the tables and the hours."
    )
    idle_for: Annotated[str, DURATION_RULE] = declare_field(MaintenanceRequest, "idle_for")
    visible_within: Annotated[str, DURATION_RULE] = declare_field(
        MaintenanceRequest, "visible_within"
    )
    expiring_within: Annotated[str, DURATION_RULE] = declare_field(
        MaintenanceRequest, "expiring_within"
    )
    deleted_ratio: float = Field(
        default=_POLICY.deleted_ratio,
        ge=0,
        le=1,
        description="Share of deleted rows above which a partition gets a full compaction.",
    )
    max_rewrite: Annotated[str | None, SIZE_RULE] = Field(
        default=None, description="Size above which a partition is not compacted."
    )
    reads: dict[str, float] = Field(
        default={},
        description="How often tables are read in comparison with others, by pattern; 1 for "
        "others.",
    )
    prices: PriceAttributes = Field(
        default=PriceAttributes(), description="Prices from which the cost of actions is computed."
    )
    history_table: Annotated[str, TABLE_RULE] = Field(
        default=HISTORY_TABLE,
        description="Table of executed and skipped actions; the first run creates it.",
    )
    key_prefix: list[str] = Field(
        default=[], description="Prefix of the keys of the observed assets."
    )
    cron: Annotated[str, CRON_RULE] = Field(
        default="17 * * * *", description="Cron schedule of the job."
    )
    timezone: Annotated[str, TIMEZONE_RULE] = Field(
        default="UTC", description="Time zone of the cron schedule."
    )
    lake_report: LakeReportAttributes | None = Field(
        default=None,
        description="Asset with the doctor's report of the tables, and its schedule; {} for the "
        "defaults.",
    )
    op: OpSpec | None = Field(
        default=None, description="Name, tags, description and pool of the op of the job."
    )
    run_tags: dict[str, str] = Field(default={}, description="Tags of all runs of the job.")
    running: bool = Field(default=False, description="Whether the schedule is started by default.")
    allow_stale_external: bool = Field(default=False, description=STALE_EXTERNAL_HELP)
    allow_unknown_options: bool = Field(default=False, description=UNKNOWN_OPTIONS_HELP)

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that ``dg list components`` shows."""
        return dg.ComponentTypeSpec(
            description="All Paimon tables of a catalog, maintained within budgets.",
            tags=["paimon"],
        )

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` for an invalid attribute."""
        super().check(path)
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.name):
            raise InputError(
                f"{path}name {self.name!r} is not the name of a job: Dagster allows only letters, "
                "digits and _"
            )
        self.build_request()

    def build_request(self) -> MaintenanceRequest:
        """Return the request of each run; subclasses may override this."""
        return MaintenanceRequest(
            include=tuple(self.select),
            exclude=tuple(self.exclude),
            budgets=self.budgets.build_budgets(),
            policy=CompactionPolicy(deleted_ratio=self.deleted_ratio, max_rewrite=self.max_rewrite),
            idle_for=self.idle_for,
            visible_within=self.visible_within,
            expiring_within=self.expiring_within,
            reads=self.reads,
            history_table=self.history_table,
        )

    def get_asset_spec(self) -> dg.AssetSpec:
        """Return the asset of the history table; subclasses may override this."""
        return dg.AssetSpec(
            table_asset_key(self.history_table, self.key_prefix),
            description="The maintenance actions, also skipped ones, with their reasons, bytes and costs.",
            group_name=group_name(self.history_table),
            kinds={"paimon"},
            metadata={
                "dagster/table_name": self.history_table,
                "dagster/storage_kind": "paimon",
            },
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002 - Dagster's signature
        """Return the job, its schedule and the asset of the history table."""
        return self.definitions()

    def definitions(self) -> dg.Definitions:
        """Return the job, its schedule, the asset of the history table, and the report."""
        maintenance = self._build_maintenance()
        if self.lake_report is None:
            return maintenance
        report = self.lake_report.build_defs(
            (),
            select=self.select,
            exclude=self.exclude,
            key_prefix=self.key_prefix,
            history_table=self.history_table,
            resource_prefix=self.resource_prefix,
            running=self.running,
        )
        return dg.Definitions.merge(maintenance, report)

    def _build_maintenance(self) -> dg.Definitions:
        allowances = Allowances(
            stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
        )
        job = build_warehouse_job(
            self.name,
            self.build_request(),
            self.prices.build_prices(),
            key_prefix=self.key_prefix,
            config={"dry_run": True, **build_allowance_config(allowances)},
            op=self.op or DEFAULT_OP,
            run_tags=self.run_tags,
            resource_prefix=self.resource_prefix,
        )
        status = dg.DefaultScheduleStatus
        schedule = build_warehouse_schedule(
            job,
            self.cron,
            execution_timezone=self.timezone,
            default_status=status.RUNNING if self.running else status.STOPPED,
        )
        return dg.Definitions(
            assets=[self.get_asset_spec()],
            jobs=[job],
            schedules=[schedule],
            resources=self.resources(),
        )
