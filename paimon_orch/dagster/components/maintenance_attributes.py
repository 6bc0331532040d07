"""Attributes of maintenance policies in the YAML of components."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import (
    AGE_RULE,
    CRON_RULE,
    DURATION_RULE,
    Attributes,
)
from paimon_orch.dagster.resources import MAINTENANCE_EXECUTOR_HELP
from paimon_orch.errors import InputError

_DRY_RUN_HELP = (
    "Whether scheduled runs are dry runs, which delete nothing. Runs from the launchpad are dry "
    "runs unless their config has dry_run: false."
)


class ScheduleAttributes(Attributes):
    """The policy of a maintenance job, and the cron schedule of its schedule.

    All attributes except ``cron`` and ``dry_run`` are the defaults of the fields with the same
    names in the job's config.
    """

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="Cron schedule of the job."
    )
    dry_run: bool = Field(default=False, description=_DRY_RUN_HELP)

    def job_config(self) -> dict[str, Any]:
        """Return the defaults of the job's config, without the fields that are not set."""
        return self.model_dump(exclude={"cron", "dry_run"}, exclude_none=True)


class DeletionAttributes(ScheduleAttributes):
    """The policy of a maintenance job that deletes files in work units."""

    executor: Literal["auto", "local", "spark"] = Field(
        default="auto", description=MAINTENANCE_EXECUTOR_HELP
    )

    def job_config(self) -> dict[str, Any]:
        """Return the defaults of the job's config, without the fields that are not set."""
        config = super().job_config()
        return {k: v for k, v in config.items() if (k, v) != ("executor", "auto")}


class SnapshotExpirationAttributes(DeletionAttributes):
    """Retention of snapshots; the defaults are the table's options."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None,
        description="Cron schedule of the job. Default: hourly, at a minute computed from the "
        "table's name.",
    )
    retain_min: int | None = Field(
        default=None, ge=1, description="Minimum number of snapshots to retain."
    )
    retain_max: int | None = Field(
        default=None, ge=1, description="Maximum number of snapshots to retain."
    )
    retain_for: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="Retain snapshots younger than this, for example 24 h."
    )
    max_deletes: int | None = Field(
        default=None, ge=0, description="Maximum number of snapshots to delete in one run."
    )

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` if the minimum exceeds the maximum."""
        super().check(path)
        minimum, maximum = self.retain_min, self.retain_max
        if minimum is not None and maximum is not None and minimum > maximum:
            raise InputError(
                f"{path}retain_min {minimum} is greater than {path}retain_max {maximum}; "
                "the minimum must not exceed the maximum"
            )


class OrphanFilesAttributes(DeletionAttributes):
    """Deletion of unreferenced files, or their move to quarantine."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="Cron schedule of the job. Default: on Sundays."
    )
    dry_run: bool = Field(default=True, description=_DRY_RUN_HELP)
    older_than: Annotated[str, AGE_RULE] = Field(
        default="3 d",
        description="Keep files younger than this. It must exceed the time between the first file "
        "and the commit of the slowest write.",
    )
    quarantine: bool = Field(
        default=False,
        description="Move the files to quarantine instead of deleting them; paimon-orch quarantine "
        "restores them or deletes them.",
    )


class PartitionExpirationAttributes(ScheduleAttributes):
    """The age after which partitions are dropped."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="Cron schedule of the job. Default: nightly."
    )
    expiration_time: Annotated[str, DURATION_RULE] = Field(
        description="Drop partitions older than this, for example 90 d."
    )
    strategy: Literal["values-time", "update-time"] | None = Field(
        default=None,
        description="How the age is computed: values-time (partition value) or update-time (last "
        "change). Default: the table's options.",
    )
    max_expires: int | None = Field(
        default=None, ge=0, description="Maximum number of partitions to drop in one run."
    )


class StepAttributes(ScheduleAttributes):
    """The arguments and the schedule of a declared step."""

    dry_run: bool = Field(default=False, description="Whether scheduled runs are dry runs.")
    arguments: dict[str, Any] = Field(
        default={}, description="Arguments of the step, as in the config of its job."
    )

    def job_config(self) -> dict[str, Any]:
        """Return the defaults of the job's config."""
        return dict(self.arguments)


class IcebergAttributes(ScheduleAttributes):
    """When stale Iceberg metadata is published, in addition to the publication by each commit."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None,
        description="Cron schedule of the job. Default: hourly, at a minute computed from the "
        "table's name.",
    )
    dry_run: bool = Field(
        default=False,
        description="Whether scheduled runs are dry runs, which only report stale metadata.",
    )
