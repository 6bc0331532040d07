"""Builds the scan of a batch read from its options: a snapshot, or the changes between two."""

from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.spark.datasource.datasource_options import DataSourceOptions
from paimon_orch.spark.datasource.option_names import (
    FIRST_ROWS_OPTIONS,
    INCREMENTAL_OPTIONS,
    VERSION_OPTIONS,
)
from paimon_orch.spark.datasource.session_settings import LOCAL_ZONE, parse_time
from paimon_orch.table.scan.base_scan import BaseScan
from paimon_orch.table.scan.incremental_scan import IncrementalScan, find_range_between_times
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table import Table

_INCREMENTAL_MODE, _SCAN_MODE = "incremental-mode", "scan-mode"
_WATERMARK_PREFIX = "watermark-"
_BY_SNAPSHOT = ("snapshot", "tag", "watermark", "version")
_MODES = {
    "latest-full": (),
    "full": (),
    "latest": (),
    "from-timestamp": ("timestamp",),
    "from-snapshot": _BY_SNAPSHOT,
    "from-snapshot-full": _BY_SNAPSHOT,
    "incremental": INCREMENTAL_OPTIONS,
}
"""The options of which a scan mode requires one, and with which it can be combined."""


def build_rows(options: DataSourceOptions, columns: list[str] | None) -> BaseScan:
    """Return a scan of one snapshot, or of the changes between two snapshots."""
    if len(names := _list_versions(options)) > 1:
        spellings = " and ".join(options.spell(name) for name in names)
        raise InputError(f"paimon: {spellings} cannot be combined; set only one of them")
    table = options.open()
    if is_incremental(options):
        return _build_incremental_scan(options, table, columns)
    if _INCREMENTAL_MODE in options.values:
        raise InputError(
            f"paimon: option {options.spell(_INCREMENTAL_MODE)} requires incremental-between"
        )
    snapshot_id, tag, watermark = _resolve_version(options, table)
    return table.scan(
        columns,
        options.values.get("filter"),
        snapshot_id=snapshot_id,
        tag=tag,
        timestamp=options.epoch_millis("timestamp"),
        watermark=watermark,
        merge_level_0=options.merge_level_0(table),
        order_by=options.values.get("order-by"),
        limit=options.number("limit"),
    )


def is_incremental(options: DataSourceOptions) -> bool:
    """Return whether the options select changes."""
    return any(name in options.values for name in INCREMENTAL_OPTIONS)


def _list_versions(options: DataSourceOptions) -> list[str]:
    return [name for name in (*VERSION_OPTIONS, *INCREMENTAL_OPTIONS) if name in options.values]


def check_scan_mode(options: DataSourceOptions) -> None:
    """Raise an error if the scan mode of a batch read does not match the version."""
    set_names = _list_versions(options)
    mode = options.values.get(_SCAN_MODE, "default")
    if mode == "default":
        return
    spelling = options.spell(_SCAN_MODE)
    if mode not in _MODES:
        raise InputError(
            f"paimon: option {spelling} of a batch read must be one of default, "
            f"{', '.join(_MODES)}, not {mode!r}"
        )
    if not set(set_names) <= set(_MODES[mode]) or (_MODES[mode] and not set_names):
        needed = f"one of the options {', '.join(_MODES[mode])}" if _MODES[mode] else "no version"
        actual = ", ".join(options.spell(name) for name in set_names) or "none"
        raise InputError(f"paimon: {spelling} = {mode} requires {needed}, but {actual} is set")


def _resolve_version(
    options: DataSourceOptions, table: Table | SystemTable
) -> tuple[int | None, str | None, int | None]:
    """Return the snapshot, the tag and the watermark, of which at most one is set.

    A version is the name of a tag, ``watermark-<n>``, or the id of a snapshot; see
    docs/format/time-travel.md#keys.
    """
    version = options.values.get("version")
    if version is None:
        return options.number("snapshot"), options.values.get("tag"), options.number("watermark")
    plain = table.table if isinstance(table, SystemTable) else table
    if version in plain.stores.snapshots.tags():
        return None, version, None
    watermark = version.removeprefix(_WATERMARK_PREFIX)
    if watermark != version and watermark.removeprefix("-").isdecimal():
        return None, None, int(watermark)
    if version.isdecimal():
        return int(version), None, None
    raise NotFoundError(
        f"paimon: option {options.spell('version')} = {version!r} is neither a tag of "
        f"{plain.identifier}, nor the id of a snapshot, nor {_WATERMARK_PREFIX}<n>"
    )


def _build_incremental_scan(
    options: DataSourceOptions, table: Table | SystemTable, columns: list[str] | None
) -> IncrementalScan:
    if isinstance(table, SystemTable):
        raise InputError("paimon: incremental reads and a system table cannot be combined")
    for name in FIRST_ROWS_OPTIONS:
        if name in options.values:
            raise InputError(
                f"paimon: incremental reads and {options.spell(name)} cannot be combined"
            )
    mode = options.values.get(_INCREMENTAL_MODE, "auto")
    start: int | str
    end: int | str
    if "incremental-between-timestamp" in options.values:
        start, end, mode = find_range_between_times(
            table.stores.snapshots, *_parse_times(options), mode, table.stores.get_schema()
        )
    else:
        start, end = _parse_bounds(options, table)
    return table.incremental(
        start,
        end,
        mode,
        columns=columns,
        filter=options.values.get("filter"),
        merge_level_0=options.merge_level_0(table),
    )


def _parse_bounds(options: DataSourceOptions, table: Table) -> tuple[int | str, int | str]:
    """Return two snapshot ids or two tags.

    ``a..b`` are ids if both are numbers. ``a,b``, as in Java Paimon, are tags if both exist.
    """
    text = options.values["incremental-between"]
    separator = ".." if ".." in text else ","
    bounds = [part.strip() for part in text.split(separator)]
    if len(bounds) != 2 or not all(bounds):
        raise InputError(
            "paimon: incremental-between must be a..b or a,b, two snapshots or two tags, not "
            f"{text!r}"
        )
    start, end = bounds
    are_tags = separator == "," and set(bounds) <= set(table.stores.snapshots.tags())
    if start.isdecimal() and end.isdecimal() and not are_tags:
        return int(start), int(end)
    return start, end


def _parse_times(options: DataSourceOptions) -> tuple[int, int]:
    """Return two times, which are epoch milliseconds, or local times as in Java Paimon."""
    text = options.values["incremental-between-timestamp"]
    times = [
        int(part) if part.strip().isdecimal() else parse_time(part, LOCAL_ZONE)
        for part in text.split(",")
    ]
    start, end = times if len(times) == 2 else (None, None)
    if start is None or end is None:
        raise InputError(
            "paimon: option incremental-between-timestamp must be two times, ISO 8601 or epoch "
            f"milliseconds, with a comma between them, not {text!r}"
        )
    return start, end
