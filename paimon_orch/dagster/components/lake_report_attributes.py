"""The attributes of the report of a lake in the YAML of components."""

from collections.abc import Sequence
from typing import Annotated

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import (
    CRON_RULE,
    DATABASE_RULE,
    TIMEZONE_RULE,
    Attributes,
)
from paimon_orch.dagster.lake.lake_report_asset import (
    LAKE_REPORT,
    build_lake_report_asset,
    build_lake_report_schedule,
)
from paimon_orch.steps.autopilot.maintenance_request import HISTORY_TABLE


class LakeReportAttributes(Attributes):
    """The asset with the doctor's report of the tables, and its schedule."""

    name: Annotated[str, DATABASE_RULE] = Field(
        default=LAKE_REPORT, description="The last part of the key of the asset."
    )
    cron: Annotated[str, CRON_RULE] = Field(
        default="41 5 * * *", description="Cron schedule that refreshes the report."
    )
    timezone: Annotated[str, TIMEZONE_RULE] = Field(
        default="UTC", description="Time zone of the cron schedule."
    )
    ui_url: str = Field(
        default="",
        description="Address of the Dagster UI in the links of the page, such as "
        "https://dagster.example.com/prod. Default: the root of the web server.",
    )

    def build_defs(
        self,
        scope: Sequence[str],
        *,
        select: Sequence[str],
        exclude: Sequence[str],
        key_prefix: Sequence[str],
        history_table: str = HISTORY_TABLE,
        resource_prefix: str,
        running: bool,
    ) -> dg.Definitions:
        """Return the asset ``[*key_prefix, *scope, name]`` and its schedule."""
        asset = build_lake_report_asset(
            [*key_prefix, *scope, self.name],
            select=select,
            exclude=exclude,
            key_prefix=key_prefix,
            history_table=history_table,
            ui_url=self.ui_url,
            resource_prefix=resource_prefix,
        )
        status = dg.DefaultScheduleStatus
        schedule = build_lake_report_schedule(
            asset,
            self.cron,
            execution_timezone=self.timezone,
            default_status=status.RUNNING if running else status.STOPPED,
        )
        return dg.Definitions(assets=[asset], schedules=[schedule])
