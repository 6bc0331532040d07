"""The options of the data source; Spark ignores the case of their names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pendulum
from pendulum.parsing.exceptions import ParserError

from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.table.scan.base_scan import BaseScan
from paimon_orch.table.scan.incremental_scan import IncrementalScan
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table import Table

_STORAGE_PREFIX = "storage."
_CATALOG_PREFIX = "catalog."
_LOCATION_OPTIONS = ("catalog", "warehouse", "table", "path", "branch")
_TIME_TRAVEL_OPTIONS = ("snapshot", "tag", "timestamp", "watermark")
_INCREMENTAL_OPTIONS = ("incremental-between", "incremental-mode")
_SELECTION_OPTIONS = (*_LOCATION_OPTIONS, "columns", "filter")
_MERGE_LEVEL_0, _MERGE_ON_READ = "merge-level-0", "deletion-vectors.merge-on-read"
READ_OPTIONS = (
    *_SELECTION_OPTIONS,
    *_TIME_TRAVEL_OPTIONS,
    *_INCREMENTAL_OPTIONS,
    _MERGE_LEVEL_0,
    _MERGE_ON_READ,
    "pushdown",
)
STREAM_READ_OPTIONS = (
    *_SELECTION_OPTIONS,
    *("scan-mode", "from-snapshot", "from-timestamp"),
    *("max-snapshots-per-trigger", "fail-on-data-loss", "consumer-id"),
)
_ALLOW_OPTIONS = ("allow-stale-external", "allow-unknown-options")
WRITE_OPTIONS = (
    *_LOCATION_OPTIONS,
    *_ALLOW_OPTIONS,
    *("row-kind", "commit-user", "commit-identifier", "overwrite-partition"),
)
STREAM_WRITE_OPTIONS = (*_LOCATION_OPTIONS, *_ALLOW_OPTIONS, "row-kind", "checkpointlocation")


@dataclass(frozen=True, slots=True, repr=False)
class DataSourceOptions:
    """The options of one read or write, with validated names."""

    values: Mapping[str, str]
    """The options by lower-case name."""
    storage: Mapping[str, str]
    """The options of the object store, without their prefix; never put secrets in errors."""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """The options of the catalog, without their prefix; never put secrets in errors."""

    @classmethod
    def of(cls, options: Mapping[str, str], allowed: tuple[str, ...]) -> "DataSourceOptions":
        """Validate options; raises :class:`InputError` for unknown ones, which Spark ignores."""
        lowered = {name.lower(): value for name, value in options.items()}
        if "provider" in lowered:
            raise InputError(
                "paimon: CREATE TABLE ... USING paimon is not supported, because Spark reads such "
                "a table without its options; create a temporary view"
            )
        storage = {n: v for n, v in lowered.items() if n.startswith(_STORAGE_PREFIX)}
        catalog = {n: v for n, v in lowered.items() if n.startswith(_CATALOG_PREFIX)}
        values = {n: v for n, v in lowered.items() if n not in storage and n not in catalog}
        unknown = sorted(set(values) - set(allowed))
        if unknown:
            raise InputError(
                f"paimon: unknown option {', '.join(unknown)}; the options are "
                f"{', '.join(allowed)}, {_CATALOG_PREFIX}<name> for options of the catalog, and "
                f"{_STORAGE_PREFIX}<name> for options of the object store"
            )
        return cls(
            values,
            {name.removeprefix(_STORAGE_PREFIX): value for name, value in storage.items()},
            {name.removeprefix(_CATALOG_PREFIX): value for name, value in catalog.items()},
        )

    def open(self) -> Table | SystemTable:
        """Open the table, branch or system table that the options name."""
        location, identifier = self._locate()
        if branch := self.values.get("branch"):
            name, separator, system = identifier.partition("$")
            identifier = f"{name}$branch_{branch}{separator}{system}"
        stale, unknown = (self.flag(name, default=False) for name in _ALLOW_OPTIONS)
        allowances = Allowances(stale_external=stale, unknown_options=unknown)
        catalog = open_catalog(
            location,
            name=self.values.get("catalog"),
            catalog_options=self.catalog,
            storage_options=self.storage,
            allowances=allowances,
        )
        return catalog.open(identifier)

    def _locate(self) -> tuple[str | None, str]:
        """Return the warehouse, if the options name one, and the identifier of the table."""
        warehouse, table = self.values.get("warehouse"), self.values.get("table")
        has_catalog = warehouse or self.values.get("catalog") or self.catalog
        path = self.values.get("path", "")
        if table and not path and has_catalog:
            return warehouse, table
        directory, _, name = path.rstrip("/").rpartition("/")
        root, _, database = directory.rpartition("/")
        if has_catalog or table or not (name and database.endswith(".db")):
            raise InputError(
                "paimon: set the options table (db.t) and either catalog (a configured name) or "
                "warehouse; or set a path that ends with /db.db/t"
            )
        default_root = "/" if directory.startswith("/") else "."
        if root and "/" not in root:
            root = f"./{root}"  # a directory, even if a catalog has this name
        return root or default_root, f"{database.removesuffix('.db')}.{name}"

    def columns(self) -> list[str] | None:
        """Return the columns of the option ``columns``, or None for all columns."""
        text = self.values.get("columns")
        if text is None:
            return None
        names = [name.strip() for name in text.split(",")]
        if len(set(names)) < len(names):
            raise InputError(f"paimon: option columns repeats a column: {text!r}")
        return names

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is true."""
        text = self.values.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise InputError(f"paimon: option {name} must be true or false, not {text!r}")
        return text == "true"

    def number(self, name: str) -> int | None:
        """Return an integer option."""
        text = self.values.get(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise InputError(f"paimon: option {name} must be an integer, not {text!r}") from None

    def positive_number(self, name: str) -> int | None:
        """Return an option that is an integer of at least 1."""
        number = self.number(name)
        if number is not None and number < 1:
            raise InputError(f"paimon: option {name} must be at least 1, not {number}")
        return number

    def rows(self, columns: list[str] | None) -> BaseScan:
        """Return a scan of one snapshot, or of the changes between two snapshots."""
        table, condition = self.open(), self.values.get("filter")
        if "incremental-between" in self.values:
            return self._build_incremental_scan(table, columns)
        if "incremental-mode" in self.values:
            raise InputError("paimon: option incremental-mode requires incremental-between")
        return table.scan(
            columns,
            condition,
            snapshot_id=self.number("snapshot"),
            tag=self.values.get("tag"),
            timestamp=self.epoch_millis("timestamp"),
            watermark=self.number("watermark"),
            merge_level_0=self._merge_level_0(table),
        )

    def _merge_level_0(self, table: Table | SystemTable) -> bool | None:
        """Return whether level 0 is read, or None for the default of the table.

        As in Java Paimon, ``deletion-vectors.merge-on-read`` has no effect on tables without
        deletion vectors.
        """
        if _MERGE_LEVEL_0 in self.values and _MERGE_ON_READ in self.values:
            raise InputError(
                f"paimon: options {_MERGE_LEVEL_0} and {_MERGE_ON_READ} cannot be combined"
            )
        if _MERGE_LEVEL_0 in self.values:
            return self.flag(_MERGE_LEVEL_0, default=False)
        if _MERGE_ON_READ not in self.values:
            return None
        merges = self.flag(_MERGE_ON_READ, default=False)
        plain = table.table if isinstance(table, SystemTable) else table
        return merges if plain.options.has_deletion_vectors else None

    def _build_incremental_scan(
        self, table: Table | SystemTable, columns: list[str] | None
    ) -> IncrementalScan:
        time_travel = sorted({*_TIME_TRAVEL_OPTIONS} & set(self.values))
        if time_travel or isinstance(table, SystemTable):
            excluded = ", ".join(time_travel) or "a system table"
            raise InputError(f"paimon: incremental-between and {excluded} cannot be combined")
        text = self.values["incremental-between"]
        start, separator, end = (part.strip() for part in text.partition(".."))
        if not (start and separator and end):
            raise InputError(
                f"paimon: incremental-between must be a..b, two snapshots or two tags, not {text!r}"
            )
        are_ids = start.isdecimal() and end.isdecimal()
        return table.incremental(
            int(start) if are_ids else start,
            int(end) if are_ids else end,
            self.values.get("incremental-mode", "auto"),
            columns=columns,
            filter=self.values.get("filter"),
            merge_level_0=self._merge_level_0(table),
        )

    def epoch_millis(self, name: str) -> int | None:
        """Return a time option as epoch milliseconds; a time without a time zone is UTC."""
        text = self.values.get(name)
        if text is None or text.isdecimal():
            return self.number(name)
        try:
            parsed = pendulum.parse(text, tz="UTC")
        except (ParserError, ValueError):
            parsed = None
        if not isinstance(parsed, pendulum.DateTime):
            raise InputError(
                f"paimon: option {name} must be ISO 8601 or epoch milliseconds, not {text!r}"
            )
        return int(parsed.timestamp() * 1000)
