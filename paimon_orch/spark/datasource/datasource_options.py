"""The options of the data source; Spark ignores the case of their names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from paimon_orch.catalog.open_catalog import open_catalog
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.spark.datasource.option_names import (
    ALLOW_OPTIONS,
    MERGE_LEVEL_0,
    MERGE_ON_READ,
    SCAN_TIMESTAMP_MILLIS,
    TIMESTAMP_AS_OF,
    OptionNames,
)
from paimon_orch.spark.datasource.session_settings import LOCAL_ZONE, parse_time
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table import Table

SESSION_PREFIX = "session."
"""The prefix of the location that the session sets; users do not set these options."""
WAREHOUSE_VARIABLE = "PAIMON_WAREHOUSE"
_NO_TABLE = (
    "paimon: set the options table (db.t) and either catalog (a configured name) or warehouse; or "
    "set a path that ends with /db.db/t"
)
_NO_OPTIONS = (
    "Spark passes no options of tables in its own catalog: if saveAsTable, writeTo or CREATE TABLE "
    "created this one, use save, load or a temporary view instead, and drop the table in Spark"
)
_STORAGE_PREFIX = "storage."
_CATALOG_PREFIX = "catalog."
_PREFIXES = (_STORAGE_PREFIX, _CATALOG_PREFIX, SESSION_PREFIX)


@dataclass(frozen=True, slots=True, repr=False)
class DataSourceOptions:
    """The options of one read or write, with validated names."""

    values: Mapping[str, str]
    """The options by lower-case name."""
    storage: Mapping[str, str]
    """The options of the object store, without their prefix; never put secrets in errors."""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """The options of the catalog, without their prefix; never put secrets in errors."""

    session: Mapping[str, str] = field(default_factory=dict)
    """The default location of the session: ``catalog`` or ``warehouse``."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """The names of the options as the user wrote them."""

    @classmethod
    def of(cls, options: Mapping[str, str], allowed: OptionNames) -> "DataSourceOptions":
        """Validate options; raises :class:`InputError` for unknown ones, which Spark ignores."""
        lowered = {name.lower(): value for name, value in options.items()}
        if "provider" in lowered:
            raise InputError(
                "paimon: CREATE TABLE ... USING paimon is not supported, because Spark reads such "
                "a table without its options; create a temporary view"
            )
        storage, catalog, session = (
            {n.removeprefix(prefix): v for n, v in lowered.items() if n.startswith(prefix)}
            for prefix in _PREFIXES
        )
        own = {n: v for n, v in lowered.items() if not n.startswith(_PREFIXES)}
        resolved = allowed.resolve(own)
        values = {name: value for name, (_, value) in resolved.items()}
        spellings = {name: spelling for name, (spelling, _) in resolved.items()}
        return cls(values, storage, catalog, session, spellings)

    def spell(self, name: str) -> str:
        """Return the name of an option as the user wrote it."""
        return self.spellings.get(name, name)

    def open(self) -> Table | SystemTable:
        """Open the table, branch or system table that the options name."""
        location, name, identifier = self._locate()
        if branch := self.values.get("branch"):
            table, separator, system = identifier.partition("$")
            identifier = f"{table}$branch_{branch}{separator}{system}"
        stale, unknown = (self.flag(option, default=False) for option in ALLOW_OPTIONS)
        allowances = Allowances(stale_external=stale, unknown_options=unknown)
        catalog = open_catalog(
            location,
            name=name,
            catalog_options=self.catalog,
            storage_options=self.storage,
            allowances=allowances,
        )
        return catalog.open(identifier)

    def _locate(self) -> tuple[str | None, str | None, str]:
        """Return the warehouse, the name of the catalog, and the identifier of the table."""
        table, path = self.values.get("table"), self.values.get("path", "").rstrip("/")
        warehouse, catalog = self.values.get("warehouse"), self.values.get("catalog")
        has_catalog = warehouse or catalog or self.catalog
        if path and "/" not in path and not table:
            table, path = path, ""
        if table and not path:
            if not has_catalog:
                warehouse, catalog = self._get_default_location(table)
            return warehouse, catalog, table
        directory, _, name = path.rpartition("/")
        root, _, database = directory.rpartition("/")
        if has_catalog or table or not (name and database.endswith(".db")):
            raise InputError(_NO_TABLE if self.values else f"{_NO_TABLE}. {_NO_OPTIONS}")
        default_root = "/" if directory.startswith("/") else "."
        if root and "/" not in root:
            root = f"./{root}"  # a directory, even if a catalog has this name
        return root or default_root, None, f"{database.removesuffix('.db')}.{name}"

    def _get_default_location(self, table: str) -> tuple[str | None, str | None]:
        """Return the warehouse and the catalog of the session, or that of the environment."""
        if self.session:
            return self.session.get("warehouse"), self.session.get("catalog")
        warehouse = os.environ.get(WAREHOUSE_VARIABLE)
        if not warehouse:
            raise InputError(
                f"paimon: the catalog of table {table!r} is unknown: set the option catalog (a "
                f"configured name) or warehouse, or the variable {WAREHOUSE_VARIABLE} of the "
                "driver's environment"
            )
        return warehouse, None

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
            raise InputError(
                f"paimon: option {self.spell(name)} must be true or false, not {text!r}"
            )
        return text == "true"

    def number(self, name: str) -> int | None:
        """Return an integer option."""
        text = self.values.get(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise InputError(
                f"paimon: option {self.spell(name)} must be an integer, not {text!r}"
            ) from None

    def positive_number(self, name: str) -> int | None:
        """Return an option that is an integer of at least 1."""
        number = self.number(name)
        if number is not None and number < 1:
            raise InputError(f"paimon: option {self.spell(name)} must be at least 1, not {number}")
        return number

    def merge_level_0(self, table: Table | SystemTable) -> bool | None:
        """Return whether level 0 is read, or None for the default of the table.

        As in Java Paimon, ``deletion-vectors.merge-on-read`` has no effect on tables without
        deletion vectors.
        """
        if MERGE_LEVEL_0 in self.values and MERGE_ON_READ in self.values:
            raise InputError(
                f"paimon: options {MERGE_LEVEL_0} and {MERGE_ON_READ} cannot be combined"
            )
        if MERGE_LEVEL_0 in self.values:
            return self.flag(MERGE_LEVEL_0, default=False)
        if MERGE_ON_READ not in self.values:
            return None
        merges = self.flag(MERGE_ON_READ, default=False)
        plain = table.table if isinstance(table, SystemTable) else table
        return merges if plain.stores.get_schema().typed_options.has_deletion_vectors else None

    def epoch_millis(self, name: str) -> int | None:
        """Return a time option as epoch milliseconds, by the rules of its spelling.

        A time without a zone is UTC; with Java Paimon's ``scan.timestamp``, and with Spark's
        ``timestampAsOf``, it is in the time zone of the machine.
        """
        text, spelling = self.values.get(name), self.spell(name)
        if text is None:
            return None
        if spelling == SCAN_TIMESTAMP_MILLIS or (spelling == name and text.isdecimal()):
            return self.number(name)
        millis = parse_time(text, "UTC" if spelling == name else LOCAL_ZONE)
        if millis is None:
            kinds = "ISO 8601 or epoch milliseconds" if spelling == name else "ISO 8601"
            raise InputError(f"paimon: option {spelling} must be {kinds}, not {text!r}")
        return millis

    @property
    def session_local_time(self) -> str | None:
        """Return the time of ``timestampAsOf`` if it has no zone, so that the session's counts."""
        text = self.values.get("timestamp")
        if text is None or self.spell("timestamp") != TIMESTAMP_AS_OF:
            return None
        return None if parse_time(text, "UTC") == parse_time(text, "Etc/GMT-1") else text
