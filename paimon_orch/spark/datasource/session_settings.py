"""What the data source knows of the settings of the session.

Spark plans reads and writes of Python sources in processes that cannot read these settings. Tasks
can, so they verify what the plan assumed, before the first row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pendulum
from pendulum.parsing.exceptions import ParserError
from pyspark import TaskContext
from pyspark.sql import SparkSession

from paimon_orch.errors import InputError

CATALOG_SETTING, WAREHOUSE_SETTING = "spark.paimon_orch.catalog", "spark.paimon_orch.warehouse"
TIME_ZONE_SETTING = "spark.sql.session.timeZone"
LOCAL_ZONE = "local"
"""The time zone of the machine, for :func:`parse_time`."""
_CASE_SETTING = "spark.sql.caseSensitive"


def get_task_property(name: str) -> str | None:
    """Return a property of the running Spark task, or None outside of a task."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def read_default_location(session: SparkSession) -> dict[str, str]:
    """Return the default ``catalog`` or ``warehouse`` of a session, or nothing.

    Raises :class:`InputError` if the settings of both are set.
    """
    catalog = session.conf.get(CATALOG_SETTING, None)
    warehouse = session.conf.get(WAREHOUSE_SETTING, None)
    if catalog and warehouse:
        raise InputError(f"set only one of {CATALOG_SETTING} and {WAREHOUSE_SETTING}")
    if catalog:
        return {"catalog": catalog}
    return {"warehouse": warehouse} if warehouse else {}


def is_case_sensitive(session: SparkSession) -> bool:
    """Return whether column names of a session are case-sensitive."""
    return str(session.conf.get(_CASE_SETTING, "false")).lower() == "true"


def parse_time(text: str, zone: str) -> int | None:
    """Return an ISO 8601 time as epoch milliseconds, or None; a time may have its own zone."""
    try:
        parsed = pendulum.parse(text.strip(), tz=zone, exact=True)
    except (ParserError, ValueError):
        return None
    if not isinstance(parsed, pendulum.Date):
        return None
    if not isinstance(parsed, pendulum.DateTime):
        parsed = pendulum.datetime(parsed.year, parsed.month, parsed.day, tz=zone)
    return parsed.int_timestamp * 1000 + parsed.microsecond // 1000


@dataclass(frozen=True, slots=True)
class PlannedSettings:
    """Settings of the session that a plan assumed."""

    renamed: tuple[tuple[str, str], ...] = ()
    """Columns of Spark that differ from columns of the table in case, with the table's name."""
    local_time: str | None = None
    """A time of the option ``timestampAsOf``, without a zone, which is in the session's zone."""

    def verify_in_task(self) -> None:
        """Raise :class:`InputError` in a task if the session has other settings."""
        if self.renamed and (get_task_property(_CASE_SETTING) or "").lower() == "true":
            (name, actual), *_ = self.renamed
            raise InputError(
                f"there is no column {name!r}, only {actual!r}: column names are case-sensitive "
                f"with {_CASE_SETTING} = true"
            )
        zone = get_task_property(TIME_ZONE_SETTING)
        if self.local_time is None or zone is None:
            return
        planned = parse_time(self.local_time, LOCAL_ZONE)
        if planned != parse_time(self.local_time, zone):
            raise InputError(
                f"paimon: timestampAsOf {self.local_time!r} has no time zone, and that of the "
                f"session, {zone}, differs from that of the machine, with which the snapshot was "
                "selected. Set a time with its zone, for example 2026-01-31T00:00:00Z"
            )


NO_PLANNED_SETTINGS = PlannedSettings()


def match_columns(names: Sequence[str], table_names: Sequence[str]) -> list[str]:
    """Return the table's name of each column, which may differ in case; others are unchanged.

    Raises :class:`InputError` if two columns have the same name in the table, or if a name could be
    two columns of the table.
    """
    by_lower: dict[str, list[str]] = {}
    for name in table_names:
        by_lower.setdefault(name.lower(), []).append(name)
    exact = set(table_names)
    matched = [name if name in exact else _match(name, by_lower) for name in names]
    seen: dict[str, str] = {}
    for name, target in zip(names, matched, strict=True):
        if target in seen and seen[target] != name:
            raise InputError(
                f"columns {seen[target]!r} and {name!r} are both column {target!r} of the table; "
                "rename or drop one of them"
            )
        seen[target] = name
    return matched


def _match(name: str, by_lower: Mapping[str, list[str]]) -> str:
    candidates = by_lower.get(name.lower(), [])
    if len(candidates) > 1:
        raise InputError(
            f"column {name!r} could be {' or '.join(map(repr, candidates))}; use the exact name"
        )
    return candidates[0] if candidates else name


def list_renamed(names: Sequence[str], matched: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs that differ."""
    return tuple(pair for pair in zip(names, matched, strict=True) if pair[0] != pair[1])
