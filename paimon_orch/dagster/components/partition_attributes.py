"""Attributes of the partitions of a table in the YAML of components."""

import os
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import (
    VARIABLE_PATTERN,
    Attributes,
    JsonSchema,
    require_any_of,
    require_pattern,
)
from paimon_orch.errors import InputError


def _resolve_text(context: dg.ResolutionContext, value: Any) -> Any:
    """Resolve templates to text; Dagster would change text like ``20260131`` to a number."""
    if isinstance(value, list):
        return [_resolve_text(context, item) for item in value]
    if not isinstance(value, str) or "{{" not in value:
        return value
    variable = VARIABLE_PATTERN.fullmatch(value.strip())
    return os.environ[variable[1]] if variable else str(context.resolve_value(value))


_Text = dg.Resolver(_resolve_text, inject_before_resolve=False)
_DATE_PATTERN = (
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-9]))"
)
_HOUR_PATTERN = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_START_FORMATS = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d"}
"""Dagster's default formats of ``start``."""


def _build_start_schema(every: Collection[str], pattern: str, example: str) -> JsonSchema:
    """Return a schema for ``start``, for values of ``every`` with the same default format."""
    where = {
        "properties": {"every": {"enum": [*every]}, "format": {"type": "null"}},
        **({} if "day" in every else {"required": ["every"]}),
    }
    accepts = f"a time such as {example}, or a time in the given 'format'"
    return require_pattern("start", f"^{pattern}$", accepts, where=where)


class ValuesAttributes(Attributes):
    """The values of a partition column: one of ``values``, ``start`` and ``dynamic``."""

    object_schemas: ClassVar[Sequence[JsonSchema]] = (
        require_any_of("values", "start", "dynamic"),
        _build_start_schema(["day", "month"], _DATE_PATTERN, "2026-01-31"),
        _build_start_schema(["hour"], f"{_DATE_PATTERN}-{_HOUR_PATTERN}", "2026-01-31-00:00"),
    )

    values: Annotated[list[str] | None, _Text] = Field(
        default=None, description="A fixed list of values."
    )
    start: Annotated[str | None, _Text] = Field(
        default=None, description="Start of the first time partition."
    )
    every: Literal["hour", "day", "month"] = Field(
        default="day", description="Length of a time partition."
    )
    format: str | None = Field(
        default=None,
        description="Format of time partitions, with the directives of strftime, such as %Y%m%d. "
        "For several columns, such as dt=%Y-%m-%d/hh=%H.",
    )
    end_offset: int | None = Field(
        default=None,
        ge=0,
        description="Number of time partitions after the last complete one. Default: 1, the "
        "current one; with external: false 0, as in Dagster's definitions.",
    )
    dynamic: bool = Field(
        default=False, description="Whether the sensor adds and deletes the values."
    )

    def check(self, path: str = "") -> None:
        """Raise :class:`InputError` unless exactly one kind of values is set, and is valid."""
        super().check(path)
        self._check_kind(path)

    def _check_kind(self, path: str) -> None:
        if (self.values is not None) + (self.start is not None) + self.dynamic != 1:
            raise InputError(f"{path[:-1]}: set exactly one of 'values', 'start' and 'dynamic'")
        if self.start is None:
            return
        start_format = self.format or _START_FORMATS[self.every]
        try:
            datetime.strptime(self.start, start_format)  # noqa: DTZ007 - as Dagster reads it
        except ValueError:
            example = datetime(2026, 1, 31).strftime(start_format)
            raise InputError(
                f"{path}start {self.start!r} does not match the format {start_format!r} of "
                f"partitions by {self.every}; a valid example is {example!r}"
            ) from None

    def build_partitions_def(
        self, name: str, *, include_current: bool
    ) -> dg.PartitionsDefinition[str]:
        """Return the Dagster definition.

        :param include_current: the default of :attr:`end_offset`: whether the current time has a
            partition
        """
        if self.dynamic:
            return dg.DynamicPartitionsDefinition(name=name)
        if self.values is not None:
            return dg.StaticPartitionsDefinition(self.values)
        assert self.start is not None
        end_offset = int(include_current) if self.end_offset is None else self.end_offset
        start, fmt = self.start, self.format
        if self.every == "hour":
            return dg.HourlyPartitionsDefinition(start, fmt=fmt, end_offset=end_offset)
        if self.every == "month":
            return dg.MonthlyPartitionsDefinition(start, fmt=fmt, end_offset=end_offset)
        return dg.DailyPartitionsDefinition(start, fmt=fmt, end_offset=end_offset)


class PartitionsAttributes(ValuesAttributes):
    """The partitions of a table: of a single column, or of two ``columns``.

    Without ``columns``, a table with several partition columns has values such as
    dt=2026-01-01/region=eu, usually with ``dynamic``.
    """

    object_schemas: ClassVar[Sequence[JsonSchema]] = (
        require_any_of("values", "start", "dynamic", "columns"),
        *ValuesAttributes.object_schemas[1:],
    )

    columns: dict[str, ValuesAttributes] | None = Field(
        default=None,
        description="Two columns, each with its values; all combinations are partitions.",
    )

    def _check_kind(self, path: str) -> None:
        if self.columns is None:
            super()._check_kind(path)
        elif self.values is not None or self.start is not None or self.dynamic:
            raise InputError(
                f"{path[:-1]}: with 'columns', set 'values', 'start' or 'dynamic' in each column"
            )
        elif len(self.columns) != 2:
            raise InputError(
                f"{path[:-1]}: 'columns' must have two columns, got {len(self.columns)}"
            )

    def build_partitions_def(
        self, name: str, *, include_current: bool
    ) -> dg.PartitionsDefinition[str]:
        """Return the Dagster definition."""
        if self.columns is None:
            return super().build_partitions_def(name, include_current=include_current)
        return dg.MultiPartitionsDefinition(
            {
                column: attributes.build_partitions_def(
                    f"{name}/{column}", include_current=include_current
                )
                for column, attributes in self.columns.items()
            }
        )
