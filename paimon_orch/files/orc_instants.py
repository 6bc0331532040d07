"""Refuses instants of ORC files that would be wrong without the time zone of their writer.

With ``orc.timestamp-ltz.legacy.type``, the default, Java reads a TIMESTAMP_LTZ as the local time of
its own zone, which need not be the zone that the file names.

See docs/format/data-files.md#orc-and-avro.
"""

from collections.abc import Collection, Mapping, Sequence

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.orc import OrcFileReader
from paimon_orch.files.stats.file_stats import StatsOf
from paimon_orch.format.options.core_options import ORC_LEGACY_INSTANTS

_FORMAT_OPTIONS = ("file.format", "file.format.per.level", "changelog-file.format")
_MILLIS_PER_SECOND = 1000  # Java writes some times one second too late


def find_orc_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that let a table write ORC files."""
    return {key: options[key] for key in _FORMAT_OPTIONS if "orc" in options.get(key, "").lower()}


def refuse_rewrite(path: str, zones: Collection[str], options: Mapping[str, str]) -> None:
    """Refuse to copy instants of zones to an ORC file.

    Files of this library have instants in UTC, which Java in such a zone would read shifted. Raises
    :class:`UnsupportedError` if ``zones`` has the name of a zone. Without a name, the values are
    in UTC, see :func:`refuse_unnamed_zone`.
    """
    if names := sorted(filter(None, zones)):
        orc = ", ".join(f"{key!r} = {value!r}" for key, value in options.items())
        raise UnsupportedError(
            f"{path}: Java wrote its TIMESTAMP_LTZ columns in the time zone {', '.join(names)} "
            f"('{ORC_LEGACY_INSTANTS.key}' = true), and would read other values from a new ORC file, "
            f"which would be in UTC. Replace orc by parquet in {orc} and run the step again, or use "
            "Java Paimon in this time zone for the step. The file was not replaced."
        )


def refuse_unnamed_zone(
    path: str, reader: OrcFileReader, columns: Sequence[str], stats_of: StatsOf
) -> None:
    """Refuse instants of a file that names no zone, if its statistics show that it is not UTC.

    The manifest has the bounds as Java showed them, the file has them as they are stored. Raises
    :class:`UnsupportedError`.
    """
    if "" not in reader.find_instant_zones(columns):
        return
    for name, data_type, stored in reader.find_instant_bounds():
        stats, precision = stats_of(name), data_type.params[0]
        unit = 1 if precision <= 3 else 10**3 if precision <= 6 else 10**6
        for shown, millis in zip((stats.min, stats.max), stored, strict=True):
            if not isinstance(shown, int):
                continue
            shift = shown // unit - millis
            if abs(shift) > _MILLIS_PER_SECOND:
                raise UnsupportedError(
                    f"{path}: Java wrote column {name!r} in a time zone {shift // 60_000:+} minutes "
                    f"from UTC ('{ORC_LEGACY_INSTANTS.key}' = true), which the file does not name. "
                    "Read the table with Java Paimon in the time zone of its writer, or write its "
                    "rows again there with 'file.format' = 'parquet'"
                )
