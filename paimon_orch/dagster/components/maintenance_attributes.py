"""Attributes of maintenance policies in the YAML of components.

Those of a step come from its declaration and from the details of its op.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from paimon_orch.dagster.components.attribute_rules import (
    AGE_RULE,
    CRON_RULE,
    DURATION_RULE,
    ArgumentRule,
    Attributes,
    TextRule,
)
from paimon_orch.dagster.declared_ops import build_declared_op, find_type
from paimon_orch.dagster.resources import MAINTENANCE_EXECUTOR_HELP
from paimon_orch.errors import InputError

_DRY_RUN_HELP = (
    "Whether scheduled runs are dry runs, which delete nothing. Runs from the launchpad are dry "
    "runs unless their config has dry_run: false."
)
_HOURLY_HELP = (
    "Cron schedule of the job. Default: hourly, at a minute computed from the table's name."
)

_RULES: Mapping[Any, TextRule] = {rule.parse: rule for rule in (AGE_RULE, DURATION_RULE)}
"""The rules of texts by the functions that parse arguments."""


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


class WorkUnitsAttributes(ScheduleAttributes):
    """The policy of a maintenance job with work units."""

    executor: Literal["auto", "local", "spark"] = Field(
        default="auto", description=MAINTENANCE_EXECUTOR_HELP
    )

    def job_config(self) -> dict[str, Any]:
        """Return the defaults of the job's config, without the fields that are not set."""
        config = super().job_config()
        return {k: v for k, v in config.items() if (k, v) != ("executor", "auto")}


def _declare_attributes(step: str) -> Any:
    """Return a class with the fields of a step's config, for the class of its attributes."""
    op = build_declared_op(step)
    fields: dict[str, Any] = {}
    for name, declared in op.declaration.arguments.items():
        argument = declared.argument
        rule = _RULES.get(argument.parse) or ArgumentRule(declared)
        annotation: Any = Annotated[find_type(declared), rule]
        default = op.config.model_fields[name].default
        fields[name] = (annotation, Field(default=default, description=argument.help))
    for name, (_, argument) in op.details.aliases.items():
        annotation = Annotated[str | None, _RULES[argument.parse]]
        fields[name] = (annotation, Field(default=None, description=argument.help))
    base = WorkUnitsAttributes if op.declaration.has_units else ScheduleAttributes
    return create_model(f"{op.action}_attributes", __base__=base, __module__=__name__, **fields)


class SnapshotExpirationAttributes(_declare_attributes("expire-snapshots")):  # type: ignore[misc]  # a dynamic base class
    """Retention of snapshots; the defaults are the table's options."""

    cron: Annotated[str | None, CRON_RULE] = Field(default=None, description=_HOURLY_HELP)

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` if the minimum exceeds the maximum."""
        super().check(path)
        minimum, maximum = self.retain_min, self.retain_max
        if minimum is not None and maximum is not None and minimum > maximum:
            raise InputError(
                f"{path}retain_min {minimum} is greater than {path}retain_max {maximum}; "
                "the minimum must not exceed the maximum"
            )


class OrphanFilesAttributes(_declare_attributes("remove-orphan-files")):  # type: ignore[misc]  # as above
    """Deletion of unreferenced files, or their move to quarantine."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="Cron schedule of the job. Default: on Sundays."
    )
    dry_run: bool = Field(default=True, description=_DRY_RUN_HELP)


class PartitionExpirationAttributes(_declare_attributes("expire-partitions")):  # type: ignore[misc]  # as above
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

    cron: Annotated[str | None, CRON_RULE] = Field(default=None, description=_HOURLY_HELP)
    dry_run: bool = Field(
        default=False,
        description="Whether scheduled runs are dry runs, which only report stale metadata.",
    )
