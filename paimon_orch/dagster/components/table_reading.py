"""Reads from a table what the YAML of its component says: partitions, their start, retention."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from paimon_orch.errors import InputError
from paimon_orch.format.options.core_options import (
    PARTITION_EXPIRATION_TIME,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.orchestration.partition_keys import DIMENSION_SEPARATOR, PartitionKeys
from paimon_orch.table.table_state import TableState

Period = Literal["hour", "day", "month"]
_FORMATS: Sequence[tuple[str, Period]] = (
    ("%Y-%m-%d", "day"),
    ("%Y%m%d", "day"),
    ("%Y/%m/%d", "day"),
    ("%Y-%m-%d-%H:%M", "hour"),
    ("%Y-%m-%dT%H:%M", "hour"),
    ("%Y-%m-%d %H", "hour"),
    ("%Y-%m-%d-%H", "hour"),
    ("%Y%m%d%H", "hour"),
    ("%Y-%m", "month"),
    ("%Y%m", "month"),
)
_DEFAULT_FORMATS = {"hour": "%Y-%m-%d-%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m-%d"}
_LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "month": timedelta(days=31)}
_HOUR = re.compile("hh?|hour|hr", re.IGNORECASE)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
_DIMENSIONS = 2
"""Dagster's partitions have at most two dimensions."""
_DYNAMIC = {"dynamic": True}


def read_partition_attributes(
    state: TableState, now: datetime | None = None
) -> dict[str, Any] | None:
    """Return the attribute ``partitions`` of a table; None if the table is not partitioned.

    Columns whose values are hours, days or months until now have a start, the oldest value; others
    are dynamic.
    """
    from paimon_orch.steps.inspection.inspect import inspect_newest

    columns = state.schema.partition_keys
    if not columns:
        return None
    current = (now or datetime.now(UTC)).replace(tzinfo=None)
    values = _list_values(state.schema, inspect_newest(state).partitions)
    if values is None:
        return _DYNAMIC
    found = [_find_period(each, current) for each in values]
    if len(columns) == 1:
        return found[0] or _DYNAMIC
    if _HOUR.fullmatch(columns[1]) and found[0] is not None:
        hours = _find_hours(columns, [*zip(*values, strict=True)], current)
        if hours is not None:
            return hours
    if not any(found):
        return _DYNAMIC
    return {
        "columns": {column: each or _DYNAMIC for column, each in zip(columns, found, strict=True)}
    }


def _list_values(schema: TableSchema, paths: Iterable[str]) -> list[list[str]] | None:
    """Return the values of each partition column as in partition keys, without those of null.

    Returns None if the keys of the table cannot have one value for each column.
    """
    columns = schema.partition_keys
    if len(columns) > _DIMENSIONS:
        return None
    null = schema.typed_options.default_partition_name
    keys = PartitionKeys.of(schema, columns)
    rows = list[list[str]]()
    try:
        for path in paths:
            row = keys.key_of(path).split(DIMENSION_SEPARATOR)
            if null not in row:
                rows.append(row)
    except InputError:  # a value has a character that separates values in keys
        return None
    return [[row[index] for row in rows] for index in range(len(columns))]


def _find_period(
    values: Sequence[str],
    now: datetime,
    formats: Sequence[tuple[str, Period]] = _FORMATS,
) -> dict[str, Any] | None:
    """Return the attributes of time partitions, or None if the values are not all such times."""
    for text_format, period in formats:
        times = {text: _parse(text, text_format) for text in values}
        known = {text: time for text, time in times.items() if time is not None}
        if not known or len(known) < len(times) or max(known.values()) > now + _LENGTHS[period]:
            continue
        is_monthly = period == "day" and len(known) > 1 and {t.day for t in known.values()} == {1}
        every = "month" if is_monthly else period
        attributes: dict[str, Any] = {"start": min(known, key=known.__getitem__)}
        if every != "day":
            attributes["every"] = every
        if text_format != _DEFAULT_FORMATS[every]:
            attributes["format"] = text_format
        return attributes
    return None


def _parse(text: str, text_format: str) -> datetime | None:
    """Return the time of a text that has exactly this format, or None."""
    try:
        time = datetime.strptime(text, text_format)  # noqa: DTZ007 - as Dagster reads it
    except ValueError:
        return None
    return time if time.strftime(text_format) == text else None


def _find_hours(
    columns: Sequence[str], rows: Sequence[tuple[str, ...]], now: datetime
) -> dict[str, Any] | None:
    """Return the attributes of hours in two columns, a day and an hour."""
    if not all(column.isidentifier() for column in columns):
        return None  # escaped names are not those of a format
    day, hour = columns
    paths = [f"{day}={date}/{hour}={number.zfill(2)}" for date, number in rows]
    formats: list[tuple[str, Period]] = [
        (f"{day}={text_format}/{hour}=%H", "hour")
        for text_format, period in _FORMATS
        if period == "day" and "/" not in text_format
    ]
    return _find_period(paths, now, formats)


def read_retention_attributes(schema: TableSchema) -> dict[str, Any]:
    """Return the attributes of the expiration of snapshots and partitions, from the options."""
    options = schema.typed_options
    snapshots: dict[str, Any] = {"retain_for": "24 h"}
    if options.has(SNAPSHOT_TIME_RETAINED):
        snapshots["retain_for"] = _format_duration(options.get(SNAPSHOT_TIME_RETAINED))
    for name, option in (
        ("retain_min", SNAPSHOT_NUM_RETAINED_MIN),
        ("retain_max", SNAPSHOT_NUM_RETAINED_MAX),
    ):
        if options.has(option):
            snapshots[name] = options.get(option)
    expiration = options.get(PARTITION_EXPIRATION_TIME)
    if expiration is None:
        return {"snapshot_expiration": snapshots}
    return {
        "snapshot_expiration": snapshots,
        "partition_expiration": {"expiration_time": _format_duration(expiration)},
    }


def _format_duration(duration: timedelta) -> str:
    """Return a duration as YAML accepts it, in the largest unit without a fraction."""
    millis = duration // timedelta(milliseconds=1)
    unit, length = next((unit, length) for unit, length in _UNITS if millis % length == 0)
    return f"{millis // length} {unit}"
