"""The names of the options of the data source, and the names of Java Paimon and Spark for them.

Spark passes the names of options in lower case.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import InputError

LOCATION_OPTIONS = ("catalog", "warehouse", "table", "path", "branch")
VERSION_OPTIONS = ("snapshot", "tag", "timestamp", "watermark", "version")
INCREMENTAL_OPTIONS = ("incremental-between", "incremental-between-timestamp")
ALLOW_OPTIONS = ("allow-stale-external", "allow-unknown-options")
MERGE_LEVEL_0, MERGE_ON_READ = "merge-level-0", "deletion-vectors.merge-on-read"
SCAN_TIMESTAMP_MILLIS, SCAN_TIMESTAMP, TIMESTAMP_AS_OF = (
    "scan.timestamp-millis",
    "scan.timestamp",
    "timestampAsOf",
)
FIRST_ROWS_OPTIONS = ("order-by", "limit")
_SELECTION_OPTIONS = (*LOCATION_OPTIONS, "columns", "filter")


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The options of one kind of read or write."""

    names: tuple[str, ...]
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of Java Paimon and Spark for some of the options."""

    def __or__(self, other: "OptionNames") -> "OptionNames":
        """Return the options of both; a spelling that both have is one of the first."""
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        return OptionNames(names, {**other.spellings, **self.spellings})

    def resolve(self, options: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return the spelling and the value of each option by name.

        Raises :class:`InputError` for unknown options, and for two spellings of one option.
        """
        known = self._map_spellings()
        unknown = sorted(set(options) - set(known))
        if unknown:
            others = ", ".join(s for spellings in self.spellings.values() for s in spellings)
            raise InputError(
                f"paimon: unknown option {', '.join(unknown)}; the options are "
                f"{', '.join(self.names)}, catalog.<name> for options of the catalog, and "
                "storage.<name> for options of the object store"
                + (f"; or, as in Paimon and Spark, {others}" if others else "")
            )
        resolved: dict[str, tuple[str, str]] = {}
        for key in sorted(options):
            name, spelling = known[key]
            if name in resolved:
                raise InputError(
                    f"paimon: {resolved[name][0]} and {spelling} are names of the same option; "
                    "set only one of them"
                )
            resolved[name] = spelling, options[key]
        return resolved

    def _map_spellings(self) -> dict[str, tuple[str, str]]:
        """Return the name and the spelling by lower-case spelling."""
        known = {
            spelling.lower(): (name, spelling)
            for name, spellings in self.spellings.items()
            for spelling in spellings
        }
        return known | {name: (name, name) for name in self.names}


READ_OPTIONS = OptionNames(
    (
        *_SELECTION_OPTIONS,
        *VERSION_OPTIONS,
        "scan-mode",
        *INCREMENTAL_OPTIONS,
        "incremental-mode",
        MERGE_LEVEL_0,
        MERGE_ON_READ,
        *FIRST_ROWS_OPTIONS,
        "pushdown",
    ),
    {
        "snapshot": ("scan.snapshot-id",),
        "tag": ("scan.tag-name",),
        "timestamp": (SCAN_TIMESTAMP_MILLIS, SCAN_TIMESTAMP, TIMESTAMP_AS_OF),
        "watermark": ("scan.watermark",),
        "version": ("scan.version", "versionAsOf"),
        "scan-mode": ("scan.mode",),
        "incremental-mode": ("incremental-between-scan-mode",),
    },
)
STREAM_READ_OPTIONS = OptionNames(
    (
        *_SELECTION_OPTIONS,
        *("scan-mode", "from-snapshot", "from-timestamp"),
        *("max-snapshots-per-trigger", "fail-on-data-loss", "consumer-id"),
    ),
    {
        "scan-mode": ("scan.mode",),
        "from-snapshot": ("scan.snapshot-id",),
        "from-timestamp": (SCAN_TIMESTAMP_MILLIS, SCAN_TIMESTAMP),
    },
)
WRITE_OPTIONS = OptionNames(
    (
        *LOCATION_OPTIONS,
        *ALLOW_OPTIONS,
        *("row-kind", "commit-user", "commit-identifier", "overwrite-partition"),
    )
)
STREAM_WRITE_OPTIONS = OptionNames(
    (*LOCATION_OPTIONS, *ALLOW_OPTIONS, "row-kind", "checkpointlocation")
)
