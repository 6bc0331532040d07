"""The options of the data source: texts, whatever their case, as Spark hands them over."""

from collections.abc import Mapping
from dataclasses import dataclass

import pendulum
from pendulum.parsing.exceptions import ParserError

from paimon_orch.errors import InputError
from paimon_orch.format.options.step_support import Allowances
from paimon_orch.storage.object_store_options import parse_storage_option
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.scan.incremental_scan import IncrementalScan
from paimon_orch.table.scan.lazy_rows import BaseScan
from paimon_orch.table.system_table import SystemTable
from paimon_orch.table.table import Table

_STORAGE_PREFIX = "storage."
_LOCATION_OPTIONS = ("warehouse", "table", "path", "branch")
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
    """Checked options; texts of errors never repeat those of the store, which may be secret."""

    values: Mapping[str, str]
    storage: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], known: tuple[str, ...]) -> "DataSourceOptions":
        """Refuse what is not known: an option that is misspelt would be read past in silence."""
        lowered = {name.lower(): value for name, value in options.items()}
        if "provider" in lowered:
            raise InputError(
                "paimon: CREATE TABLE ... USING paimon is not supported, as Spark reads such a table without its "
                "options; create a temporary view"
            )
        storage = {n: v for n, v in lowered.items() if n.startswith(_STORAGE_PREFIX)}
        values = {n: v for n, v in lowered.items() if n not in storage}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise InputError(
                f"paimon: there is no option {', '.join(unknown)} here; there are {', '.join(known)}, and "
                f"{_STORAGE_PREFIX}<name> for those of the object store"
            )
        return cls(values, {n.removeprefix(_STORAGE_PREFIX): v for n, v in storage.items()})

    def open(self) -> Table | SystemTable:
        """Return the table, branch or system table that is meant."""
        warehouse, identifier = self._place()
        given = dict(
            parse_storage_option(f"{name}={value}") for name, value in self.storage.items()
        )
        if branch := self.values.get("branch"):
            name, separator, system = identifier.partition("$")
            identifier = f"{name}$branch_{branch}{separator}{system}"
        stale, unknown = (self.flag(name, default=False) for name in _ALLOW_OPTIONS)
        allowances = Allowances(stale_external=stale, unknown_options=unknown)
        return Catalog(warehouse, allowances=allowances, **given).open(identifier)

    def _place(self) -> tuple[str, str]:
        warehouse, table = self.values.get("warehouse"), self.values.get("table")
        path = self.values.get("path", "")
        if warehouse and table and not path:
            return warehouse, table
        directory, _, name = path.rstrip("/").rpartition("/")
        root, _, database = directory.rpartition("/")
        if warehouse or table or not (name and database.endswith(".db")):
            raise InputError(
                "paimon: name the table by the options warehouse and table (db.t), or by a path that ends in /db.db/t"
            )
        here = "/" if directory.startswith("/") else "."
        return root or here, f"{database.removesuffix('.db')}.{name}"

    def columns(self) -> list[str] | None:
        """Return the columns that the option names."""
        text = self.values.get("columns")
        if text is None:
            return None
        names = [name.strip() for name in text.split(",")]
        if len(set(names)) < len(names):
            raise InputError(f"paimon: option columns names a column twice: {text!r}")
        return names

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is true."""
        text = self.values.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise InputError(f"paimon: option {name} is true or false, not {text!r}")
        return text == "true"

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number."""
        text = self.values.get(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise InputError(f"paimon: option {name} is a whole number, not {text!r}") from None

    def positive_number(self, name: str) -> int | None:
        """Return an option that is a number above zero."""
        number = self.number(name)
        if number is not None and number < 1:
            raise InputError(f"paimon: option {name} is a number above zero, not {number}")
        return number

    def rows(self, columns: list[str] | None) -> BaseScan:
        """Return the rows that are asked for, not read yet: of one snapshot, or what changed between two."""
        table, condition = self.open(), self.values.get("filter")
        if "incremental-between" in self.values:
            return self._changes(table, columns)
        if "incremental-mode" in self.values:
            raise InputError("paimon: option incremental-mode belongs to incremental-between")
        return table.scan(
            columns,
            condition,
            snapshot_id=self.number("snapshot"),
            tag=self.values.get("tag"),
            timestamp=self.moment("timestamp"),
            watermark=self.number("watermark"),
            merge_level_0=self._merge_level_0(table),
        )

    def _merge_level_0(self, table: Table | SystemTable) -> bool | None:
        """Return whether level 0 is read; None for what the table's options say.

        As in Java Paimon ``deletion-vectors.merge-on-read`` has no effect on a ``first-row`` table without vectors.
        """
        if _MERGE_LEVEL_0 in self.values and _MERGE_ON_READ in self.values:
            raise InputError(
                f"paimon: options {_MERGE_LEVEL_0} and {_MERGE_ON_READ} exclude each other"
            )
        if _MERGE_LEVEL_0 in self.values:
            return self.flag(_MERGE_LEVEL_0, default=False)
        if _MERGE_ON_READ not in self.values:
            return None
        merges = self.flag(_MERGE_ON_READ, default=False)
        plain = table.table if isinstance(table, SystemTable) else table
        return merges if plain.options.has_deletion_vectors else None

    def _changes(self, table: Table | SystemTable, columns: list[str] | None) -> IncrementalScan:
        others = sorted({*_TIME_TRAVEL_OPTIONS} & set(self.values))
        if others or isinstance(table, SystemTable):
            found = ", ".join(others) or "a system table"
            raise InputError(f"paimon: incremental-between and {found} exclude each other")
        text = self.values["incremental-between"]
        start, separator, end = (part.strip() for part in text.partition(".."))
        if not (start and separator and end):
            raise InputError(
                f"paimon: incremental-between is a..b, two snapshots or two tags, not {text!r}"
            )
        numbers = start.isdecimal() and end.isdecimal()
        return table.incremental(
            int(start) if numbers else start,
            int(end) if numbers else end,
            self.values.get("incremental-mode", "auto"),
            columns=columns,
            filter=self.values.get("filter"),
            merge_level_0=self._merge_level_0(table),
        )

    def moment(self, name: str) -> int | None:
        """Return an option that is a time as epoch milliseconds; without a zone it is UTC."""
        text = self.values.get(name)
        if text is None or text.isdecimal():
            return self.number(name)
        try:
            moment = pendulum.parse(text, tz="UTC")
        except (ParserError, ValueError):
            moment = None
        if not isinstance(moment, pendulum.DateTime):
            raise InputError(
                f"paimon: option {name} is ISO 8601 or epoch milliseconds, not {text!r}"
            )
        return int(moment.timestamp() * 1000)
