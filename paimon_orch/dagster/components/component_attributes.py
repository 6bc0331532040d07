"""What the YAML of the components may say; the names are those of the attributes."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

import dagster as dg
from pydantic import Field, model_validator

from paimon_orch.dagster.assets import MAX_PARTITIONS_PER_RUN
from paimon_orch.dagster.checks import CHECK_NAMES, Limit
from paimon_orch.dagster.components.attribute_rules import (
    AGE_RULE,
    CRON_RULE,
    DURATION_RULE,
    SIZE_RULE,
    TIMEZONE_RULE,
    Attributes,
    JsonSchema,
    KeyRule,
    require_any_of,
    require_pattern,
)
from paimon_orch.dagster.names import pool_name
from paimon_orch.dagster.resources import PaimonCatalogResource, SparkSessionResource
from paimon_orch.dagster.run_config import STALE_EXTERNAL_HELP, UNKNOWN_OPTIONS_HELP
from paimon_orch.errors import InputError
from paimon_orch.format.options.step_support import Allowances
from paimon_orch.format.times import parse_duration
from paimon_orch.steps.compaction.policy import CompactionPolicy

_YamlScalar = str | bool | int | float
"""Rendering a template makes a number of a text that looks like one."""

_Verbatim = dg.Resolver.passthrough()
_DEFAULT_POLICY = CompactionPolicy()


_DATE_PATTERN = (
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-9]))"
)
_HOUR_PATTERN = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_START_FORMATS = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d"}
"""How Dagster reads ``start`` unless ``format`` says."""


def _build_start_schema(every: Collection[str], pattern: str, example: str) -> JsonSchema:
    """Return the schema of time partitions, for lengths that share Dagster's default format."""
    where = {
        "properties": {"every": {"enum": [*every]}, "format": {"type": "null"}},
        **({} if "day" in every else {"required": ["every"]}),
    }
    accepts = f"a time such as {example}, or one in the 'format' that is given"
    return require_pattern("start", f"^{pattern}$", accepts, where=where)


class ValuesAttributes(Attributes):
    """The values of a partition column: ``values``, or from ``start`` on by ``every``; or ``dynamic``."""

    object_schemas: ClassVar[Sequence[JsonSchema]] = (
        require_any_of("values", "start", "dynamic"),
        _build_start_schema(["day", "month"], _DATE_PATTERN, "2026-01-31"),
        _build_start_schema(["hour"], f"{_DATE_PATTERN}-{_HOUR_PATTERN}", "2026-01-31-00:00"),
    )

    values: Annotated[list[str] | None, _Verbatim] = Field(
        default=None, description="The values, one by one."
    )
    start: Annotated[str | None, _Verbatim] = Field(default=None, description="The first time.")
    every: Literal["hour", "day", "month"] = Field(
        default="day", description="How long one of the times is."
    )
    format: str | None = Field(
        default=None,
        description="How a time is written as a value, in the directives of strftime, such as %Y%m%d; of several columns "
        "as dt=%Y-%m-%d/hh=%H.",
    )
    end_offset: int | None = Field(
        default=None,
        ge=0,
        description="How many of the times that are not over have a partition; by default 1, the running one, and 0 with "
        "external: false, as in Dagster's own definitions.",
    )
    dynamic: bool = Field(default=False, description="The sensor adds and deletes them.")

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` unless one of the three kinds is given, and ``start`` is a time in its format."""
        super().check(path)
        self._check_kind(path)

    def _check_kind(self, path: str) -> None:
        if (self.values is not None) + (self.start is not None) + self.dynamic != 1:
            raise InputError(f"{path[:-1]} need one of 'values', 'start' and 'dynamic'")
        if self.start is None:
            return
        form = self.format or _START_FORMATS[self.every]
        try:
            datetime.strptime(self.start, form)  # noqa: DTZ007 - as Dagster reads it
        except ValueError:
            written = datetime(2026, 1, 31).strftime(form)
            raise InputError(
                f"{path}start {self.start!r} is not a time in the format {form!r} of partitions by the {self.every}; "
                f"write for example {written!r}"
            ) from None

    def definition(self, name: str, *, running: bool) -> dg.PartitionsDefinition[str]:
        """Return Dagster's definition.

        :param running: whether a time has a partition before it is over, unless :attr:`end_offset` says
        """
        if self.dynamic:
            return dg.DynamicPartitionsDefinition(name=name)
        if self.values is not None:
            return dg.StaticPartitionsDefinition(self.values)
        assert self.start is not None
        end_offset = int(running) if self.end_offset is None else self.end_offset
        start, fmt = self.start, self.format
        if self.every == "hour":
            return dg.HourlyPartitionsDefinition(start, fmt=fmt, end_offset=end_offset)
        if self.every == "month":
            return dg.MonthlyPartitionsDefinition(start, fmt=fmt, end_offset=end_offset)
        return dg.DailyPartitionsDefinition(start, fmt=fmt, end_offset=end_offset)


class PartitionsAttributes(ValuesAttributes):
    """The partitions of a table: as of a single column, or those of two columns by their names.

    Without ``columns`` a table of several columns has values such as dt=2026-01-01/region=eu, most often ``dynamic``.
    """

    object_schemas: ClassVar[Sequence[JsonSchema]] = (
        require_any_of("values", "start", "dynamic", "columns"),
        *ValuesAttributes.object_schemas[1:],
    )

    columns: dict[str, ValuesAttributes] | None = Field(
        default=None,
        description="Two columns, each with its values: all combinations are partitions.",
    )

    def _check_kind(self, path: str) -> None:
        if self.columns is None:
            super()._check_kind(path)
        elif self.values is not None or self.start is not None or self.dynamic:
            raise InputError(
                f"{path[:-1]} of 'columns' say their 'values', 'start' or 'dynamic' by column"
            )
        elif len(self.columns) != 2:
            raise InputError(f"{path[:-1]} need two 'columns', not {len(self.columns)}")

    def definition(self, name: str, *, running: bool) -> dg.PartitionsDefinition[str]:
        """Return Dagster's definition."""
        if self.columns is None:
            return super().definition(name, running=running)
        return dg.MultiPartitionsDefinition(
            {
                column: given.definition(f"{name}/{column}", running=running)
                for column, given in self.columns.items()
            }
        )


class CompactionAttributes(Attributes):
    """When partitions are compacted: any one of the thresholds is enough, see docs/dagster.md."""

    level0_files: int = Field(
        default=_DEFAULT_POLICY.level0_files, description="From so many files in level 0 on."
    )
    sorted_runs: int = Field(
        default=_DEFAULT_POLICY.sorted_runs, description="From so many runs on that readers merge."
    )
    small_files: int = Field(
        default=_DEFAULT_POLICY.small_files,
        description="From so many small files of an append table on.",
    )
    deleted_ratio: float = Field(
        default=_DEFAULT_POLICY.deleted_ratio,
        ge=0,
        le=1,
        description="Above this share of hidden or retracted rows the partition is rewritten.",
    )
    max_rewrite: Annotated[str | None, SIZE_RULE] = Field(
        default=_DEFAULT_POLICY.max_rewrite, description="Never more than this at once, e.g. 10 gb."
    )
    max_wait: Annotated[str, DURATION_RULE] = Field(
        default=_DEFAULT_POLICY.max_wait,
        description="No work waits for a threshold longer, e.g. 1 h.",
    )

    def policy(self) -> CompactionPolicy:
        """Return the policy; raises :class:`InputError` for a size or a time that is none."""
        return CompactionPolicy(**self.model_dump())


class FreshnessAttributes(Attributes):
    """How new the data must be: by its age (``fail_after``), or by the time of day (``deadline_cron``)."""

    object_schemas: ClassVar[Sequence[JsonSchema]] = (
        require_any_of("fail_after", "deadline_cron"),
    )

    fail_after: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="The age at which the check fails, e.g. 24 h."
    )
    warn_after: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="The age at which the check warns, e.g. 12 h."
    )
    deadline_cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="When the data is due."
    )
    within: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="How long before the deadline it may come, e.g. 2 h."
    )
    timezone: Annotated[str, TIMEZONE_RULE] = Field(
        default="UTC", description="The time zone of deadline_cron."
    )

    def policy(self) -> dg.FreshnessPolicy:
        """Return Dagster's policy; raises :class:`InputError` unless one of the two is given."""
        if (self.fail_after is None) == (self.deadline_cron is None):
            raise InputError("freshness needs one of 'fail_after' and 'deadline_cron'")
        if self.fail_after is not None:
            return dg.FreshnessPolicy.time_window(
                fail_window=parse_duration("fail_after", self.fail_after),
                warn_window=parse_duration("warn_after", self.warn_after)
                if self.warn_after
                else None,
            )
        if self.within is None:
            raise InputError("freshness by 'deadline_cron' needs 'within'")
        return dg.FreshnessPolicy.cron(
            deadline_cron=str(self.deadline_cron),
            lower_bound_delta=parse_duration("within", self.within),
            timezone=self.timezone,
        )


class MaintenanceAttributes(Attributes):
    """The policy of a maintenance job, and the cron of its schedule.

    All attributes but ``dry_run`` and ``cron`` are those of the job's config, by the same names: they are its defaults.
    """

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="When the schedule runs."
    )
    dry_run: bool = Field(
        default=False,
        description="Whether the schedule only shows what it would delete. Runs from the launchpad are dry runs unless "
        "their config says dry_run: false.",
    )
    use_spark: bool = Field(
        default=False, description="List and delete on Spark: for tables of very many files."
    )

    def job_config(self) -> dict[str, Any]:
        """Return the defaults of the job's config; fields that are not given keep those of the job."""
        left = {"cron", "dry_run"} if self.use_spark else {"cron", "dry_run", "use_spark"}
        return self.model_dump(exclude=left, exclude_none=True)


class SnapshotExpirationAttributes(MaintenanceAttributes):
    """Which snapshots are kept; fields that are not given follow the table's options."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None,
        description="When the schedule runs. Default: hourly, at a minute chosen from the table's name.",
    )
    retain_min: int | None = Field(
        default=None, ge=1, description="So many snapshots are kept at least."
    )
    retain_max: int | None = Field(
        default=None, ge=1, description="So many snapshots are kept at most."
    )
    retain_for: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="Snapshots younger than this are kept, e.g. 24 h."
    )
    max_deletes: int | None = Field(
        default=None, ge=0, description="The most snapshots that a run deletes."
    )

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` if more snapshots must be kept than may be."""
        super().check(path)
        least, most = self.retain_min, self.retain_max
        if least is not None and most is not None and least > most:
            raise InputError(
                f"{path}retain_min {least} is greater than {path}retain_max {most}; the minimum must not exceed the maximum"
            )


class OrphanFilesAttributes(MaintenanceAttributes):
    """The age from which unreferenced files are removed; ``quarantine`` moves them to quarantine instead."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="When the schedule runs. Default: on Sundays."
    )
    dry_run: bool = Field(
        default=True,
        description="Whether the schedule only shows them. Runs from the launchpad are dry runs unless their config says "
        "dry_run: false.",
    )
    older_than: Annotated[str, AGE_RULE] = Field(
        default="3 d",
        description="Longer than the longest write takes from its first file to its commit.",
    )
    quarantine: bool = Field(
        default=False,
        description="Move them aside instead; paimon-orch quarantine brings them back or empties it.",
    )


class PartitionExpirationAttributes(MaintenanceAttributes):
    """The age at which partitions are dropped."""

    cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="When the schedule runs. Default: nightly."
    )
    expiration_time: Annotated[str, DURATION_RULE] = Field(
        description="Partitions older than this are dropped, e.g. 90 d."
    )
    strategy: Literal["values-time", "update-time"] | None = Field(
        default=None,
        description="Age by the value or by the last change; by default as the table says.",
    )
    max_expires: int | None = Field(
        default=None, ge=0, description="The most partitions that a run drops."
    )


class SparkAttributes(Attributes):
    """Where Spark runs: a master, or a Connect server as ``remote``."""

    master: str = Field(default="local[*]", description="The master of a session that is started.")
    remote: str | None = Field(
        default=None, description="A Connect server instead, as sc://host:15002."
    )
    config: dict[str, _YamlScalar] = Field(
        default={}, description="Settings of a session that is started."
    )
    ship_package: bool = Field(
        default=False, description="Send paimon_orch to workers that do not have it."
    )

    def build_resource(self) -> SparkSessionResource:
        """Return the resource, the same one for all components that say the same."""
        return _get_shared_session(
            self.master, self.remote, _to_option_items(self.config), self.ship_package
        )


class TableAttributes(Attributes):
    """What a table and a database have in common; the names are those of the YAML.

    With ``warehouse`` the resources ``paimon`` and ``spark`` are made here, the same for all components of that
    warehouse; without it the project brings them. ``external`` tables get an asset here, which nothing in Dagster
    materializes; others have one already. Sensor and schedules start ``running`` or stopped.
    """

    warehouse: str | None = Field(
        default=None,
        description="Where the tables are; without it the project defines the resources paimon and spark.",
    )
    storage_options: dict[str, _YamlScalar] = Field(
        default={},
        description="Of an object store. The UI shows them: secrets belong in the variable PAIMON_STORAGE_OPTIONS.",
    )
    spark: SparkAttributes = Field(
        default=SparkAttributes(),
        description="Where Spark runs, for all components of the warehouse.",
    )
    external: bool = Field(
        default=True, description="Another engine writes the table, so its asset is made here."
    )
    key_prefix: list[str] = Field(default=[], description="In front of the keys of the assets.")
    owners: list[str] = Field(default=[], description="Of the assets.")
    partitions: PartitionsAttributes | None = Field(
        default=None, description="Those of the table; without them assets work on the whole table."
    )
    trigger: Literal["sensor", "schedule", "none"] = Field(
        default="sensor",
        description="What asks for compactions: commits, a schedule once a day, or people.",
    )
    sensor_interval_seconds: int = Field(
        default=30, ge=1, description="How often the sensor looks for new snapshots."
    )
    running: bool = Field(
        default=False, description="Whether the sensor and the schedules start running."
    )
    compaction: CompactionAttributes = Field(
        default=CompactionAttributes(), description="The policy: when a partition is compacted."
    )
    max_partitions_per_run: int = Field(
        default=MAX_PARTITIONS_PER_RUN,
        ge=1,
        description="Of a backfill; each run commits at most so many at once.",
    )
    file_index: bool = Field(
        default=False,
        description="Make the asset that gives old files the indexes of the table's options.",
    )
    freshness: FreshnessAttributes | None = Field(
        default=None, description="Of the asset of an external table, by what the sensor reports."
    )
    snapshot_expiration: SnapshotExpirationAttributes | None = Field(
        default=None, description="Given, snapshots expire by a schedule."
    )
    orphan_files: OrphanFilesAttributes | None = Field(
        default=None, description="Given, a schedule looks for files that nothing refers to."
    )
    partition_expiration: PartitionExpirationAttributes | None = Field(
        default=None, description="Given, old partitions are dropped by a schedule."
    )
    allow_stale_external: bool = Field(default=False, description=STALE_EXTERNAL_HELP)
    allow_unknown_options: bool = Field(default=False, description=UNKNOWN_OPTIONS_HELP)
    checks: Annotated[dict[str, Limit] | None, KeyRule("check", CHECK_NAMES)] = Field(
        default={}, description="Limits by the name of the check; null for no checks."
    )

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        self.check()
        return self

    def resources(self) -> dict[str, Any]:
        """Return the resources of the warehouse, if one is named."""
        if self.warehouse is None:
            return {}
        return {
            "paimon": _get_shared_catalog(self.warehouse, _to_option_items(self.storage_options)),
            "spark": self.spark.build_resource(),
        }

    def freshness_policy(self) -> dg.FreshnessPolicy | None:
        """Return the policy of the asset; raises :class:`InputError` where nothing would feed it."""
        if self.freshness is None:
            return None
        if not self.external:
            raise InputError(
                "freshness of a table that Dagster loads belongs to its own asset: "
                "build_table_asset(..., freshness_policy=...)"
            )
        if self.trigger != "sensor":
            raise InputError(
                "freshness of an external table is judged by what the sensor sees: it needs 'trigger: sensor'"
            )
        return self.freshness.policy()

    @property
    def allowances(self) -> Allowances:
        """Return which refusals by the table's options the steps override."""
        return Allowances(
            stale_external=self.allow_stale_external, unknown_options=self.allow_unknown_options
        )

    def partitions_def(self, table: str) -> dg.PartitionsDefinition[str] | None:
        """Return the partitions of a table's assets."""
        if self.partitions is None:
            return None
        return self.partitions.definition(pool_name(table), running=self.external)


_OptionItems = tuple[tuple[str, str], ...]


def _to_option_items(options: Mapping[str, _YamlScalar]) -> _OptionItems:
    return tuple(
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in sorted(options.items())
    )


@cache
def _get_shared_catalog(warehouse: str, options: _OptionItems) -> PaimonCatalogResource:
    """Return one resource for all components that say the same: Dagster merges none but the same object."""
    return PaimonCatalogResource(warehouse=warehouse, storage_options=dict(options))


@cache
def _get_shared_session(
    master: str,
    remote: str | None,
    config: _OptionItems,
    ship_package: bool,  # noqa: FBT001 - part of the key of the cache
) -> SparkSessionResource:
    return SparkSessionResource(
        master=master, remote=remote, spark_config=dict(config), ship_package=ship_package
    )
