"""What the doctor reports: rules, severities and findings, and the words for their costs."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters, the most important first."""

    ERROR = "error"
    """Readers or writers fail, or see wrong rows."""
    WARNING = "warning"
    """Readers are slow or see old rows, or files stay that nobody reads."""
    ADVICE = "advice"
    """Something is unusual, and may be intended."""


class DoctorRule(StrEnum):
    """What the doctor looks for; docs/doctor.md describes each rule."""

    UNAVAILABLE_TABLE = "unavailable-table"
    UNREADABLE_TABLE = "unreadable-table"
    UNSUPPORTED_TABLE = "unsupported-table"
    UNREADABLE_SNAPSHOT = "unreadable-snapshot"
    INCONSISTENT_METADATA = "inconsistent-metadata"
    MISSING_MANIFESTS = "missing-manifests"
    MISSING_FILES = "missing-files"
    UNREADABLE_FILES = "unreadable-files"
    UNREADABLE_REFERENCES = "unreadable-references"
    DAMAGED_FILES = "damaged-files"
    WRONG_STATISTICS = "wrong-statistics"
    OVERLAPPING_FILES = "overlapping-files"
    DUPLICATE_KEYS = "duplicate-keys"
    OVERWRITTEN_SNAPSHOT = "overwritten-snapshot"
    LOST_COMMIT = "lost-commit"
    SNAPSHOT_GAP = "snapshot-gap"
    WRONG_HINT = "wrong-hint"
    CLOCK_SKEW = "clock-skew"
    MISSING_DELETION_VECTORS = "missing-deletion-vectors"
    MISSING_HASH_INDEX = "missing-hash-index"
    STALE_DELETION_VECTORS = "stale-deletion-vectors"
    ROWS_NOT_VISIBLE = "rows-not-visible"
    LEVEL0_BACKLOG = "level0-backlog"
    NO_COMPACTION = "no-compaction"
    SORTED_RUNS = "sorted-runs"
    SMALL_FILES = "small-files"
    DELETED_ROWS = "deleted-rows"
    MISSING_FILE_INDEXES = "missing-file-indexes"
    MANY_MANIFESTS = "many-manifests"
    EXPIRED_SNAPSHOTS = "expired-snapshots"
    CONSUMER_RETAINS_SNAPSHOTS = "consumer-retains-snapshots"
    STALE_ICEBERG_METADATA = "stale-iceberg-metadata"
    STALE_CATALOG_PARTITIONS = "stale-catalog-partitions"
    OPTION = "option"
    NOT_ALLOWED = "not-allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One finding in one table."""

    table: str
    rule: DoctorRule
    severity: Severity
    text: str
    command: str | None = None
    """The command that fixes this, without the catalog and the table; None if no command does."""
    advice: str | None = None
    """Why no command fixes this, and what does; None if there is a command."""
    cost: Mapping[str, int] = field(default_factory=dict)
    """What the finding costs readers or storage, for example ``files`` and ``bytes``."""

    def format_command(self, location: str) -> str | None:
        """Return the whole command line for a catalog; None if no command fixes the finding."""
        if self.command is None:
            return None
        name, separator, options = self.command.partition(" --")
        arguments = shlex.join([location, self.table])
        return f"paimon-orch {name} {arguments}{separator}{options}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedTable:
    """The size of a table that was examined."""

    name: str
    store: str = ""
    """Where the table is, and how commits are exclusive there; empty if it could not be opened."""
    files: int = 0
    bytes: int = 0
    requests: int = 0
    """About how many requests a scan makes to a store; 0 if the verdict could not be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """The findings in the tables of a catalog, grouped by table."""

    tables: tuple[ExaminedTable, ...]
    findings: tuple[DoctorFinding, ...]

    @property
    def stores(self) -> list[str]:
        """Return the stores of the tables, and how commits are exclusive there."""
        return sorted({table.store for table in self.tables if table.store})

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def sound_tables(self) -> int:
        """Return the number of tables without findings."""
        return len(self.tables) - len({finding.table for finding in self.findings})
