"""Finds what is wrong or slow in the tables of a catalog, with the command that fixes it.

Reads only metadata, and changes nothing. :mod:`paimon_orch.steps.inspection.check_table` verifies
the files of one table; this module finds the tables that need attention.
"""

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import PaimonError, UnsupportedError
from paimon_orch.format.options.blocking_options import describe_options
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_snapshot,
)
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.health_metrics import HEALTH_METRICS
from paimon_orch.steps.inspection.inspect import TableReport, inspect
from paimon_orch.table.iceberg.status import read_iceberg_status
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST
from paimon_orch.table.table import Table

_CLOCK_TOLERANCE_SECONDS = 300


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

    UNREADABLE_TABLE = "unreadable-table"
    UNSUPPORTED_TABLE = "unsupported-table"
    INCONSISTENT_METADATA = "inconsistent-metadata"
    DAMAGED_FILES = "damaged-files"
    SNAPSHOT_GAP = "snapshot-gap"
    WRONG_HINT = "wrong-hint"
    FUTURE_SNAPSHOT = "future-snapshot"
    ROWS_NOT_VISIBLE = "rows-not-visible"
    LEVEL0_BACKLOG = "level0-backlog"
    SORTED_RUNS = "sorted-runs"
    SMALL_FILES = "small-files"
    DELETED_ROWS = "deleted-rows"
    MISSING_FILE_INDEXES = "missing-file-indexes"
    MANY_MANIFESTS = "many-manifests"
    EXPIRED_SNAPSHOTS = "expired-snapshots"
    CONSUMER_RETAINS_SNAPSHOTS = "consumer-retains-snapshots"
    STALE_ICEBERG_METADATA = "stale-iceberg-metadata"
    OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One finding in one table."""

    table: str
    rule: DoctorRule
    severity: Severity
    text: str
    command: str | None = None
    """The command that fixes this, without the catalog and the table; None if no command does."""

    def format_command(self, location: str) -> str | None:
        """Return the whole command line for a catalog; None if no command fixes the finding."""
        if self.command is None:
            return None
        name, separator, options = self.command.partition(" --")
        arguments = shlex.join([location, self.table])
        return f"paimon-orch {name} {arguments}{separator}{options}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """The findings in the tables of a catalog, grouped by table."""

    tables: tuple[str, ...]
    findings: tuple[DoctorFinding, ...]

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)


def examine_catalog(
    catalog: Catalog,
    names: list[str],
    *,
    check_files: bool = False,
    now: float | None = None,
    advance: Callable[[], object] = lambda: None,
) -> DoctorReport:
    """Examine tables of a catalog.

    A table that cannot be read is a finding; the other tables are examined.

    :param names: the tables, as ``database.table``
    :param check_files: also verify that all referenced files exist
    :param now: the time in epoch seconds; None means the current time
    :param advance: called after each table
    """
    findings = list[DoctorFinding]()
    for name in names:
        findings += examine_table(catalog, name, check_files=check_files, now=now)
        advance()
    return DoctorReport(tables=tuple(names), findings=tuple(findings))


def examine_table(
    catalog: Catalog, name: str, *, check_files: bool = False, now: float | None = None
) -> list[DoctorFinding]:
    """Return the findings in one table, the most important first."""
    findings = list[DoctorFinding]()
    try:
        table = catalog.table(name)
        examination = _Examination(table, time.time() if now is None else now)
        for finding in examination.run(check_files=check_files):
            findings.append(finding)
    except UnsupportedError as error:
        findings.append(_describe_error(name, DoctorRule.UNSUPPORTED_TABLE, error))
    except (PaimonError, OSError) as error:
        findings.append(_describe_error(name, DoctorRule.UNREADABLE_TABLE, error))
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _describe_error(name: str, rule: DoctorRule, error: Exception) -> DoctorFinding:
    is_unsupported = rule is DoctorRule.UNSUPPORTED_TABLE
    return DoctorFinding(
        table=name,
        rule=rule,
        severity=Severity.WARNING if is_unsupported else Severity.ERROR,
        text=str(error),
        command=None if is_unsupported else "check",
    )


_METRIC_RULES = {
    "level0_backlog": (DoctorRule.LEVEL0_BACKLOG, "{:,.0f} files in level 0"),
    "sorted_runs": (DoctorRule.SORTED_RUNS, "readers merge up to {:,.0f} sorted runs in a bucket"),
    "small_files": (DoctorRule.SMALL_FILES, "{:.0%} of the files are small"),
    "deletion_vector_ratio": (
        DoctorRule.DELETED_ROWS,
        "{:.0%} of the stored rows are deleted, and readers skip them",
    ),
    "file_index_coverage": (
        DoctorRule.MISSING_FILE_INDEXES,
        "only {:.0%} of the files have the file indexes of the table's options",
    ),
    "manifest_count": (DoctorRule.MANY_MANIFESTS, "each plan reads {:,.0f} manifests"),
}
"""The rule and the text of each metric. Retention replaces the metrics of snapshots."""


class _Examination:
    """The examination of one table."""

    def __init__(self, table: Table, now: float) -> None:
        self._table = table
        self._now = now
        self._snapshots = table.stores.snapshots

    def run(self, *, check_files: bool) -> Iterator[DoctorFinding]:
        yield from self._check_options()
        report = inspect(self._table)
        if report.problem is not None:
            yield self._find(
                DoctorRule.INCONSISTENT_METADATA, Severity.ERROR, report.problem, "check"
            )
        if report.snapshot is not None:
            yield from self._check_snapshots(report.snapshot.id)
            yield from self._check_visibility(report)
            if report.health is not None:
                yield from self._check_health(report.health)
            yield from self._check_retention()
            yield from self._check_iceberg()
        if check_files:
            yield from self._check_files()

    def _find(
        self, rule: DoctorRule, severity: Severity, text: str, command: str | None = None
    ) -> DoctorFinding:
        return DoctorFinding(
            table=self._table.identifier, rule=rule, severity=severity, text=text, command=command
        )

    def _check_options(self) -> Iterator[DoctorFinding]:
        environment = self._table.stores.environment
        for text in describe_options(
            self._table.schema.options, has_service=environment.is_service
        ):
            yield self._find(DoctorRule.OPTION, Severity.WARNING, text)

    def _check_snapshots(self, latest: int) -> Iterator[DoctorFinding]:
        ids = self._snapshots.ids()
        earliest = self._snapshots.earliest_id()
        if earliest is not None:
            expected = latest - earliest + 1
            found = sum(earliest <= number <= latest for number in ids)
            if found < expected:
                yield self._find(
                    DoctorRule.SNAPSHOT_GAP,
                    Severity.ERROR,
                    f"{expected - found} snapshots between {earliest} and {latest} are missing: "
                    "time travel, streaming reads and expiration fail",
                    "repair-earliest-snapshot",
                )
        if self._snapshots.catalog is None:
            yield from self._check_hints(latest, ids)
        age = self._now - self._snapshots.get(latest).time_millis / 1000
        if age < -_CLOCK_TOLERANCE_SECONDS:
            yield self._find(
                DoctorRule.FUTURE_SNAPSHOT,
                Severity.WARNING,
                f"snapshot {latest} was committed {-age:,.0f} s in the future: the clock of a "
                "writer or of this machine is wrong, and expiration by age deletes too much or "
                "too little",
            )

    def _check_hints(self, latest: int, ids: list[int]) -> Iterator[DoctorFinding]:
        # A stale LATEST is normal: writers create the snapshot first. Other writers than Java do not
        # write EARLIEST before the first expiration.
        oldest = min(ids, default=latest)
        for name, snapshot in ((LATEST, latest), (EARLIEST, oldest)):
            hint = self._snapshots.hint(name)
            is_optional = name == EARLIEST and oldest == 1
            if hint is None and is_optional:
                continue
            if hint is None or hint not in ids:
                state = "is missing or not a number" if hint is None else f"names snapshot {hint}"
                yield self._find(
                    DoctorRule.WRONG_HINT,
                    Severity.WARNING,
                    f"the hint {name} {state}, and the snapshot is {snapshot}: readers list the "
                    "directory of all snapshots until the next commit or expiration writes it",
                )

    def _check_visibility(self, report: TableReport) -> Iterator[DoctorFinding]:
        if report.rows_not_visible:
            yield self._find(
                DoctorRule.ROWS_NOT_VISIBLE,
                Severity.WARNING,
                f"batch readers do not see {report.rows_not_visible:,} records before a compaction",
                "compact",
            )

    def _check_health(self, health: TableHealth) -> Iterator[DoctorFinding]:
        for name, (rule, text) in _METRIC_RULES.items():
            metric = HEALTH_METRICS[name]
            value, limit = metric.read(health), metric.default_limit
            if value is None or limit is None or metric.is_within_limit(value, limit):
                continue
            bound = f"{limit:.0%}" if "%" in text else f"{limit:g}"
            comparison = "minimum" if metric.is_minimum else "limit"
            yield self._find(
                rule,
                Severity.WARNING,
                f"{text.format(value)} ({comparison} {bound}; {health.files:,} files, "
                f"{health.bytes / 1e6:,.1f} MB)",
                metric.command,
            )

    def _check_retention(self) -> Iterator[DoctorFinding]:
        options = self._table.schema.typed_options
        retention = Retention.of_snapshots(
            options, int(self._now * 1000), RetentionRequest(max_deletes=self._snapshots.ids()[-1])
        )
        end = find_first_retained_snapshot(self._snapshots, retention)
        if end is None:
            return
        consumers = self._table.stores.consumers.read_next_snapshots()
        retained = {path: number for path, number in consumers.items() if number < end}
        first = min([end, *retained.values()])
        expired = sum(number < first for number in self._snapshots.ids())
        if expired:
            yield self._find(
                DoctorRule.EXPIRED_SNAPSHOTS,
                Severity.WARNING,
                f"{expired:,} snapshots have expired by the table's options, and their files are "
                "still stored",
                "expire-snapshots",
            )
        for path, number in sorted(retained.items()):
            yield self._find(
                DoctorRule.CONSUMER_RETAINS_SNAPSHOTS,
                Severity.WARNING,
                f"consumer {path.rpartition('consumer-')[2]} retains the snapshots from {number} "
                f"on; without consumers, those before {end} would expire",
                "consumer list",
            )

    def _check_iceberg(self) -> Iterator[DoctorFinding]:
        status = read_iceberg_status(self._table.stores.iceberg)
        if status is not None and status.problem is not None:
            yield self._find(
                DoctorRule.STALE_ICEBERG_METADATA,
                Severity.ADVICE if status.is_current else Severity.WARNING,
                status.problem,
                "sync-iceberg",
            )

    def _check_files(self) -> Iterator[DoctorFinding]:
        from paimon_orch.steps.inspection.check_table import check

        findings = check(self._table).findings
        if findings:
            yield self._find(
                DoctorRule.DAMAGED_FILES,
                Severity.ERROR,
                f"{len(findings)} findings of check; the first: {findings[0]}",
                "check",
            )
