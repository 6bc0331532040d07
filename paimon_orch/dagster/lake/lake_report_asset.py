"""The factory of the asset whose metadata is the doctor's report of a lake."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from pydantic import Field

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.op_specs import describe_op, take_settings
from paimon_orch.dagster.resources import get_catalog
from paimon_orch.steps.autopilot.maintenance_request import HISTORY_TABLE, MaintenanceRequest

LAKE_REPORT = "lake_report"
HEALTHY = "healthy"
"""The check of the asset: it fails if a table has an error, and warns if one has a warning."""


class LakeReportConfig(dg.Config):
    """Run config of the report, with the options of ``paimon-orch doctor``."""

    check_files: bool = Field(
        default=False, description="Also verify that all files exist, as doctor --check does."
    )
    deep: bool = Field(
        default=False, description="Also read all data files, as doctor --deep does."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeReportSettings:
    """The asset of a lake's report."""

    key: Sequence[str] = field(default=(LAKE_REPORT,), kw_only=False)
    select: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    key_prefix: Sequence[str] = ()
    history_table: str = HISTORY_TABLE
    ui_url: str = ""
    op: OpSpec = field(default_factory=OpSpec)
    resource_prefix: str = ""


@take_settings(LakeReportSettings)
def build_lake_report_asset(settings: LakeReportSettings) -> dg.AssetsDefinition:
    """Return an asset whose metadata is the report of ``paimon-orch doctor`` on many tables.

    A materialization has a page with the tables by cost, the worst first; tables of all tables, all
    findings with their commands, and the last reports; and numbers, which Dagster plots. What
    changed since the last materialization is marked. The run changes no table, and succeeds if
    tables are damaged: the check ``healthy`` then fails. It requires the resource ``paimon``.

    :param select: shell patterns of ``database.table``
    :param exclude: shell patterns of tables to leave out
    :param key_prefix: the prefix of the assets of the tables, which the page links
    :param history_table: the table with the actions of the autopilot, whose costs are shown
    :param ui_url: what the links of the page begin with; by default the root of the web server
    :param op: the name, tags, description and pool of the op
    :param resource_prefix: what the name of the resource begins with
    """
    asset_key = dg.AssetKey([*settings.key])

    @dg.multi_asset(
        **describe_op(settings.op, asset_key.to_python_identifier()),
        **_build_specs(asset_key),
        required_resource_keys={f"{settings.resource_prefix}paimon"},
    )
    def lake_report(
        context: dg.AssetExecutionContext, config: LakeReportConfig
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]  # there is no value
        from paimon_orch.dagster.lake.lake_report_page import LakePage  # loads the steps

        page = LakePage(
            context.instance, asset_key, key_prefix=settings.key_prefix, ui_url=settings.ui_url
        )
        with raise_dagster_errors(asset_key.to_user_string(), context):
            catalog = get_catalog(context, settings.resource_prefix).catalog()
            report = page.examine(
                catalog,
                _list_tables(catalog, settings.select, settings.exclude),
                settings.history_table,
                check_files=config.check_files,
                deep=config.deep,
            )
        context.log.info("%s", report.summary)
        return dg.MaterializeResult(
            metadata=page.build_metadata(report), check_results=[page.build_check(report)]
        )

    return lake_report


def _build_specs(asset_key: dg.AssetKey) -> dict[str, Any]:
    """Return the specs of the asset and of its check."""
    spec = dg.AssetSpec(
        asset_key,
        description="What `paimon-orch doctor` finds in the tables of the lake.",
        kinds={"paimon"},
    )
    check = dg.AssetCheckSpec(
        HEALTHY, asset=asset_key, description="No table has an error or a warning of doctor."
    )
    return {"specs": [spec], "check_specs": [check]}


def _list_tables(catalog: Catalog, select: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Return the selected tables; raise :class:`NotFoundError` if the catalog does not exist."""
    request = MaintenanceRequest(include=tuple(select), exclude=tuple(exclude))
    names = [*filter(request.selects, catalog.find_tables())]
    if not names:
        catalog.require_exists()
    return names


def build_lake_report_schedule(
    asset: dg.AssetsDefinition,
    cron: str,
    *,
    execution_timezone: str,
    default_status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    """Return the schedule that refreshes the report."""
    return dg.ScheduleDefinition(
        name=f"{asset.key.to_python_identifier()}_schedule",
        target=dg.AssetSelection.assets(asset.key),
        cron_schedule=cron,
        execution_timezone=execution_timezone,
        default_status=default_status,
    )
