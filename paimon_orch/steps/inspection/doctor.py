"""Finds what is wrong or slow in the tables of a catalog, with the command that fixes it.

Reads only metadata unless it is asked for more, and changes nothing.
:mod:`paimon_orch.steps.inspection.check_table` verifies the files of one table; this module finds
the tables that need attention.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import (
    CorruptFileError,
    MissingFileError,
    NotFoundError,
    PaimonError,
    TransientError,
    UnsupportedError,
    describe_error,
    raise_if_temporary,
)
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.blocking_options import describe_options
from paimon_orch.format.options.core_options import SNAPSHOT_EXPIRE_LIMIT
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.expiration.retention import (
    Retention,
    RetentionRequest,
    find_first_retained_snapshot,
    read_retaining_consumers,
)
from paimon_orch.steps.inspection.damage.unreadable_files import (
    UnreadableFile,
    find_unreadable_files,
)
from paimon_orch.steps.inspection.damage.unreadable_references import (
    describe_reference,
    find_unreadable_references,
)
from paimon_orch.steps.inspection.damage.way_back import (
    WayBack,
    find_unreadable_snapshots,
    find_way_back,
)
from paimon_orch.steps.inspection.doctor_findings import (
    DoctorFinding,
    DoctorReport,
    DoctorRule,
    ExaminedTable,
    Severity,
)
from paimon_orch.steps.inspection.health_metrics import METRIC_LIMITS
from paimon_orch.steps.inspection.index_damage import find_index_damage
from paimon_orch.steps.inspection.inspect import TableReport, inspect_newest
from paimon_orch.steps.inspection.snapshot_chain import MAX_SNAPSHOTS, SnapshotChain
from paimon_orch.steps.inspection.unmerged_levels import find_unmerged_levels
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.iceberg.iceberg_settings import is_iceberg_enabled
from paimon_orch.table.iceberg.status import read_iceberg_status
from paimon_orch.table.metadata.snapshot_store import EARLIEST, LATEST
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState, build_table_state
from paimon_orch.table.table_stores import TableStores

if TYPE_CHECKING:  # plans of compactions are needed only for tables that can be read
    from paimon_orch.steps.inspection.verdict.remedies import Remedy
    from paimon_orch.steps.inspection.verdict.verdict import Judge

_CLOCK_TOLERANCE_SECONDS = 300
_MAX_COMPACTION_AGE_SECONDS = 24 * 3600
_MANIFEST_PREFIXES = ("manifest-list-", "index-manifest-")


def examine_catalog(
    catalog: Catalog,
    names: list[str],
    *,
    check_files: bool = False,
    deep: bool = False,
    now: float | None = None,
    advance: Callable[[], object] = lambda: None,
) -> DoctorReport:
    """Examine tables of a catalog.

    A table that cannot be read is a finding; the other tables are examined. So is a table whose
    store or catalog cannot be reached, with the rule ``unavailable-table``.

    :param names: the tables, as ``database.table``
    :param check_files: also verify that all referenced files exist
    :param deep: also read all data files
    :param now: the time in epoch seconds; None means the current time
    :param advance: called after each table
    """
    tables, findings = list[ExaminedTable](), list[DoctorFinding]()
    for name in names:
        try:
            examined, found = _examine(catalog, name, check_files=check_files, deep=deep, now=now)
        except TransientError as error:
            examined, found = ExaminedTable(name=name), [_describe_outage(name, error)]
        tables.append(examined)
        findings += found
        advance()
    return DoctorReport(tables=tuple(tables), findings=tuple(findings))


def examine_table(
    catalog: Catalog,
    name: str,
    *,
    check_files: bool = False,
    deep: bool = False,
    now: float | None = None,
) -> list[DoctorFinding]:
    """Return the findings in one table, the most important first.

    Raises :class:`TransientError` if its store or catalog cannot be reached.
    """
    return _examine(catalog, name, check_files=check_files, deep=deep, now=now)[1]


def examine_opened_table(
    table: Table, *, check_files: bool = False, deep: bool = False, now: float | None = None
) -> list[DoctorFinding]:
    """Return the findings in a table that was opened, the most important first.

    Raises :class:`TransientError` if its store or catalog cannot be reached.
    """
    current_time = time.time() if now is None else now
    examination = _Examination(table, table.stores.hold(), current_time)
    findings = list[DoctorFinding]()
    found = examination.run(check_files=check_files, deep=deep)
    _collect(findings, table.identifier, found, lambda: table)
    return _sort(findings)


def _examine(
    catalog: Catalog, name: str, *, check_files: bool, deep: bool, now: float | None
) -> tuple[ExaminedTable, list[DoctorFinding]]:
    findings, examined = list[DoctorFinding](), ExaminedTable(name=name)
    table: Table | None = None

    def run() -> Iterator[DoctorFinding]:
        nonlocal examined, table
        table = catalog.table(name)
        stores = table.stores.hold(table.hint.take())  # the table was opened just now
        examination = _Examination(table, stores, time.time() if now is None else now)
        yield from examination.run(check_files=check_files, deep=deep)
        examined = ExaminedTable(
            name=name,
            files=examination.files,
            bytes=examination.bytes,
            requests=examination.requests,
        )

    _collect(findings, name, run(), lambda: table)
    return examined, _sort(findings)


def _collect(
    findings: list[DoctorFinding],
    name: str,
    found: Iterator[DoctorFinding],
    get_table: Callable[[], Table | None],
) -> None:
    """Add findings; an error of the examination is also a finding, unless it is temporary.

    ``get_table`` returns the table, or None if it could not be opened.
    """
    try:
        for finding in found:
            findings.append(finding)  # noqa: PERF402 - keeps the findings before an error
    except UnsupportedError as error:
        findings.append(_describe_unsupported(name, error))
    except Exception as error:  # noqa: BLE001 - whatever is stored in it, the others are examined
        raise_if_temporary(error)
        findings.append(_describe_unreadable_table(name, error, get_table()))


def _describe_outage(name: str, error: TransientError) -> DoctorFinding:
    return DoctorFinding(
        table=name,
        rule=DoctorRule.UNAVAILABLE_TABLE,
        severity=Severity.ERROR,
        text=f"the table was not examined: {error}",
        command="doctor",
    )


def _sort(findings: list[DoctorFinding]) -> list[DoctorFinding]:
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _is_manifest(path: str) -> bool:
    """Return whether a path is that of a manifest, and not of a list or an index manifest."""
    directory, _, name = path.rpartition("/")
    return directory.endswith("/manifest") and not name.startswith(_MANIFEST_PREFIXES)


def _describe_unsupported(name: str, error: UnsupportedError) -> DoctorFinding:
    return DoctorFinding(
        table=name,
        rule=DoctorRule.UNSUPPORTED_TABLE,
        severity=Severity.WARNING,
        text=describe_error(error),
        advice="no command of this release helps; Java Paimon may read the table",
    )


def _describe_unreadable_table(name: str, error: Exception, table: Table | None) -> DoctorFinding:
    """Return the finding of a table that cannot be examined; None as table: nor opened."""
    finding = DoctorFinding(
        table=name,
        rule=DoctorRule.UNREADABLE_TABLE,
        severity=Severity.ERROR,
        text=describe_error(error),
    )
    if isinstance(error, CorruptFileError) and _is_manifest(error.path):
        return replace(finding, rule=DoctorRule.MISSING_MANIFESTS, command="repair")
    if not isinstance(error, CorruptFileError | NotFoundError | FileNotFoundError):
        return replace(finding, advice="no command repairs this: the error names the cause")
    if table is None:
        return replace(finding, advice=_RESTORE_SCHEMA)
    way_back = _try_to_find_way_back(table)
    if way_back is None:
        return replace(finding, advice=_RESTORE_FILE)
    return replace(
        finding,
        text=f"{finding.text}; the newest state that can be read is {way_back}",
        command="repair" if table.stores.snapshots.catalog is None else way_back.command,
    )


def _try_to_find_way_back(table: Table) -> WayBack | None:
    try:
        return find_way_back(table)
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        return None


_RESTORE_SCHEMA = (
    "no command repairs this: the table cannot be opened without its newest schema. Restore the file "
    "from a backup or an older version of the object"
)
_RESTORE_FILE = (
    "no command repairs this, because no older snapshot and no tag can be read either: restore the "
    "file from a backup or an older version of the object"
)
_EXPIRE = "Restore its files, or wait until it expires"
_RESTORE_OR_ROLL_BACK = (
    "Restore the files from a backup, or roll back to a snapshot before the damage. If only older "
    "snapshots or tags are named, the finding goes away when they expire or are deleted"
)
_SET_CLOCK = (
    "no command repairs this: set the clock of the writers, or of this machine. The finding goes away "
    "with the next commits"
)
_CHANGE_OPTION = (
    "no command can decide this: correct the option with `paimon-orch alter --set KEY=VALUE`, or, if no "
    "other reader or writer needs it, reset it with `--reset KEY`"
)
_ALLOW = (
    "no command can decide this: allow the place, as docs/how-to/catalogs.md says, or remove the "
    "option"
)
_READ_CHECK = "no command repairs this; `paimon-orch check --deep` lists all that is wrong. "


_METRIC_RULES = {
    "level0_backlog": DoctorRule.LEVEL0_BACKLOG,
    "sorted_runs": DoctorRule.SORTED_RUNS,
    "small_files": DoctorRule.SMALL_FILES,
    "deletion_vector_ratio": DoctorRule.DELETED_ROWS,
    "file_index_coverage": DoctorRule.MISSING_FILE_INDEXES,
    "manifest_count": DoctorRule.MANY_MANIFESTS,
}
"""The rules of metrics. Retention replaces the metrics of snapshots."""


class _Examination:
    """The examination of one table."""

    def __init__(self, table: Table, stores: TableStores, now: float) -> None:
        self._table = table
        self._now = now
        self._stores = stores
        self._snapshots = stores.snapshots
        self.files = 0
        self.bytes = 0
        self.requests = 0

    def run(self, *, check_files: bool, deep: bool) -> Iterator[DoctorFinding]:
        read_schema = start_call(self._table.io, self._stores.get_schema)
        latest, failure = self._try_latest()
        schema = read_schema()
        yield from self._check_options(schema)
        if isinstance(failure, MissingFileError):
            yield self._find(
                DoctorRule.WRONG_HINT,
                Severity.ERROR,
                f"{failure.path} {failure.reason}",
                "repair",
            )
            return
        if failure is not None:
            raise failure
        state = build_table_state(self._stores, schema, latest)
        if latest is not None:
            yield from self._check_snapshot_files(latest)
            chain = self._read_chain(latest)
            if isinstance(chain, DoctorFinding):
                yield chain
            elif chain.snapshots:
                yield from self._check_chain(chain)
            yield from self._check_state(state, chain if isinstance(chain, SnapshotChain) else None)
            yield from self._check_retention(state)
            yield from self._check_iceberg(state)
            yield from self._check_catalog_partitions(state)
        if check_files or deep:
            yield from self._check_files(deep=deep)

    def _try_latest(self) -> tuple[Snapshot | None, PaimonError | OSError | None]:
        """Read the newest snapshot; return the error if that fails."""
        try:
            return self._read_latest(), None
        except (PaimonError, OSError) as error:
            return None, error

    def _read_latest(self) -> Snapshot | None:
        """Read the newest snapshot; the hint and the listing are needed for other findings."""
        if self._snapshots.catalog is None:
            hint = self._snapshots.hint(LATEST)
            newest = max(self._snapshots.ids(), default=0)
            latest = self._snapshots.find(newest) if newest >= (hint or 1) else None
            if latest is not None:
                return latest
        return self._snapshots.latest()

    def _find(
        self,
        rule: DoctorRule,
        severity: Severity,
        text: str,
        command: str | None = None,
        advice: str | None = None,
        **cost: int,
    ) -> DoctorFinding:
        return DoctorFinding(
            table=self._table.identifier,
            rule=rule,
            severity=severity,
            text=text,
            command=command,
            advice=advice,
            cost=cost,
        )

    def _check_options(self, schema: TableSchema) -> Iterator[DoctorFinding]:
        environment = self._table.environment
        for text in describe_options(schema.options, has_service=environment.is_service):
            yield self._find(DoctorRule.OPTION, Severity.WARNING, text, advice=_CHANGE_OPTION)
        for text in environment.permissions.list_refusals(self._table.identifier, schema):
            yield self._find(DoctorRule.NOT_ALLOWED, Severity.WARNING, text, advice=_ALLOW)

    def _check_snapshot_files(self, latest: Snapshot) -> Iterator[DoctorFinding]:
        ids = self._snapshots.ids()
        earliest = self._snapshots.earliest_id()
        if earliest is not None:
            expected = latest.id - earliest + 1
            missing = expected - sum(earliest <= number <= latest.id for number in ids)
            if missing > 0:
                verb = "is" if missing == 1 else "are"
                yield self._find(
                    DoctorRule.SNAPSHOT_GAP,
                    Severity.ERROR,
                    f"{format_count(missing, 'snapshot')} between {earliest} and {latest.id} "
                    f"{verb} missing: time travel, streaming reads and expiration fail",
                    "repair",
                    snapshots=missing,
                )
        if self._snapshots.catalog is None:
            yield from self._check_hints(latest.id, ids)
        age = self._now - latest.time_millis / 1000
        if age < -_CLOCK_TOLERANCE_SECONDS:
            yield self._find(
                DoctorRule.CLOCK_SKEW,
                Severity.WARNING,
                f"snapshot {latest.id} was committed {-age:,.0f} s in the future: the clock of a "
                "writer or of this machine is wrong, and expiration by age deletes too much or "
                "too little",
                advice=_SET_CLOCK,
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
                    f"{format_count(len(ids), 'file')} of the snapshot directory until the next "
                    "commit or expiration writes it",
                    "repair",
                    files=len(ids),
                )

    def _read_chain(self, latest: Snapshot) -> SnapshotChain | DoctorFinding:
        try:
            return SnapshotChain.read(self._snapshots, latest)
        except UnsupportedError:  # a newer format version is no damage
            raise
        except (PaimonError, OSError) as error:
            raise_if_temporary(error)
            return self._describe_unreadable_snapshot(error)

    def _check_chain(self, chain: SnapshotChain) -> Iterator[DoctorFinding]:
        manifests = self._stores.manifests
        try:
            manifests.read_lists_ahead(chain.snapshots)
            for before, after in chain.find_breaks(manifests):
                yield self._find(
                    DoctorRule.OVERWRITTEN_SNAPSHOT,
                    Severity.ERROR,
                    f"snapshot {after.id} does not continue snapshot {before.id}: its base has "
                    f"other files. Another writer has overwritten one of them, for example on a "
                    "store without exclusive creation; rows may be lost, and streaming readers "
                    "saw other rows than batch readers",
                    advice="no command finds the lost rows: run the jobs again that wrote at that "
                    "time, and use a store or catalog with atomic commits. The finding goes away "
                    "when the snapshots expire",
                )
        except (PaimonError, OSError) as error:
            raise_if_temporary(error)
            # the newest snapshot is read again, with a rule of its own
            if self._has_snapshots(chain) and self._has_lists(chain.snapshots[-1]):
                yield self._describe_unreadable_snapshot(error)
        for before, after in chain.find_backward_times(_CLOCK_TOLERANCE_SECONDS * 1000):
            seconds = (before.time_millis - after.time_millis) / 1000
            yield self._find(
                DoctorRule.CLOCK_SKEW,
                Severity.WARNING,
                f"snapshot {after.id} was committed {seconds:,.0f} s before snapshot {before.id}: "
                "the clocks of the writers differ, and time travel by timestamp finds a wrong "
                "snapshot",
                advice=_SET_CLOCK,
            )

    def _has_snapshots(self, chain: SnapshotChain) -> bool:
        """Return whether the snapshots have not expired during the examination."""
        return self._snapshots.catalog is not None or self._snapshots.exists(chain.oldest.id)

    def _has_lists(self, snapshot: Snapshot) -> bool:
        """Return whether the manifest lists of a snapshot can be read."""
        try:
            self._stores.manifests.manifests(snapshot)
        except (PaimonError, OSError) as error:
            raise_if_temporary(error)
            return False
        return True

    def _describe_unreadable_snapshot(self, error: Exception | str) -> DoctorFinding:
        return self._find(
            DoctorRule.UNREADABLE_SNAPSHOT,
            Severity.ERROR,
            f"a retained snapshot cannot be read: {error}",
            "repair" if self._snapshots.catalog is None else None,
            None if self._snapshots.catalog is None else _READ_CHECK + _EXPIRE,
        )

    def _check_state(
        self, state: TableState, chain: SnapshotChain | None
    ) -> Iterator[DoctorFinding]:
        """Check the newest snapshot."""
        report = inspect_newest(state)
        self.files, self.bytes = report.file_count, report.bytes
        if report.problem is not None:
            yield self._describe_problem(report, report.problem)
        yield from self._check_levels(state, report)
        yield from self._check_indexes(state, report)
        if report.health is not None:
            yield from self._check_health(state, report, chain)

    def _describe_problem(self, report: TableReport, problem: str) -> DoctorFinding:
        rule, command = DoctorRule.INCONSISTENT_METADATA, None
        if report.live is not None and report.schema.primary_keys:
            try:
                report.live.take(np.flatnonzero(report.live.groups.buckets >= 0)).check_levels()
            except CorruptFileError:
                rule, command = DoctorRule.OVERLAPPING_FILES, "repair"
                problem += ": compactions fail, and readers may see several rows of a key"
        cost = f"{format_count(report.file_count, 'file')}, {format_size(report.bytes)}"
        advice = _READ_CHECK + _RESTORE_OR_ROLL_BACK if command is None else None
        return self._find(rule, Severity.ERROR, f"{problem} ({cost})", command, advice)

    def _check_levels(self, state: TableState, report: TableReport) -> Iterator[DoctorFinding]:
        assert report.live is not None
        unmerged = find_unmerged_levels(state, report.live)
        if len(unmerged):
            yield self._find(
                DoctorRule.OVERLAPPING_FILES,
                Severity.ERROR,
                f"{format_count(len(unmerged), 'bucket')} with overlapping files on several levels, "
                "which were merged by readers under the options of older schemas and are not "
                "merged now: readers may see several rows of a key",
                "repair",
                buckets=len(unmerged),
            )

    def _check_indexes(self, state: TableState, report: TableReport) -> Iterator[DoctorFinding]:
        assert report.snapshot is not None
        assert report.live is not None
        damage = find_index_damage(state, report.snapshot, report.live)
        if damage.missing_vectors:
            count = len(damage.missing_vectors)
            files = sum(len(entry.ranges or ()) for entry in damage.missing_vectors)
            way_back = _try_to_find_way_back(self._table)
            yield self._find(
                DoctorRule.MISSING_DELETION_VECTORS,
                Severity.ERROR,
                f"{format_count(count, 'file')} with the deletion vectors of "
                f"{format_count(files, 'data file')} {'is' if count == 1 else 'are'} missing: "
                "readers fail, or see deleted rows. If a backup has the files, restore them instead "
                "of a rollback",
                None if way_back is None else way_back.command,
                _RESTORE_FILE if way_back is None else None,
                files=files,
            )
        if len(damage.unindexed_buckets):
            yield self._find(
                DoctorRule.MISSING_HASH_INDEX,
                Severity.ERROR,
                f"{format_count(len(damage.unindexed_buckets), 'dynamic bucket')} without a hash "
                "index: writers of Java Paimon insert existing keys again in another bucket",
                "repair",
                buckets=len(damage.unindexed_buckets),
            )
        if damage.stale:
            yield self._find(
                DoctorRule.STALE_DELETION_VECTORS,
                Severity.WARNING,
                f"{format_count(len(damage.stale), 'deletion vector')} "
                f"({format_size(damage.stale_bytes)}) of files that are not live any more: "
                "planning reads them, and they grow with each compaction",
                "repair",
                bytes=damage.stale_bytes,
            )

    def _check_health(
        self, state: TableState, report: TableReport, chain: SnapshotChain | None
    ) -> Iterator[DoctorFinding]:
        """Yield the problems of a verdict, which finds the commands."""
        from paimon_orch.steps.inspection.verdict.remedies import Inspection
        from paimon_orch.steps.inspection.verdict.verdict import Judge

        assert report.health is not None
        inspection = Inspection(
            table=self._table, state=state, report=report, health=report.health, now=self._now
        )
        limits = {name: METRIC_LIMITS[name] for name in _METRIC_RULES}
        judge = Judge(inspection, limits)
        self.requests = judge.now.requests
        if report.rows_not_visible:
            yield self._find_slow(
                DoctorRule.ROWS_NOT_VISIBLE,
                f"batch readers do not see {format_count(report.rows_not_visible, 'record')} "
                "before a compaction",
                judge,
                judge.find_compaction(),
                rows=report.rows_not_visible,
            )
        for problem in judge.problems:
            yield self._find_slow(
                _METRIC_RULES[problem.name],
                str(problem),
                judge,
                judge.find_remedy_of(problem),
                advice=f"to improve this, {problem.metric.remedy}",
            )
        if chain is not None and chain.snapshots:
            yield from self._check_compactions(chain, report, judge)

    def _find_slow(
        self,
        rule: DoctorRule,
        text: str,
        judge: "Judge",
        remedy: "Remedy | None",
        *,
        advice: str = "no compaction changes these files",
        **cost: int,
    ) -> DoctorFinding:
        """Return a finding that makes scans slow, with what its remedy saves and rewrites."""
        now = judge.now
        cost |= {"files": now.files, "bytes": now.bytes, "requests": now.requests}
        if remedy is None:
            return self._find(rule, Severity.WARNING, text, None, advice, **cost)
        saved = remedy.describe_saving(now)
        text += f"; then a scan needs {saved}" if saved else ""
        if remedy.rewrite_files:
            files, size = format_count(remedy.rewrite_files, "file"), remedy.rewrite_bytes
            text += f"; rewrites {files} of {format_size(size)}"
        cost |= {
            "saved_requests": max(0, now.requests - remedy.after.requests),
            "saved_bytes": max(0, now.bytes - remedy.after.bytes),
            "rewrite_bytes": remedy.rewrite_bytes,
        }
        is_due = rule is DoctorRule.ROWS_NOT_VISIBLE or judge.is_worth(remedy)
        if not is_due:
            text += ", which saves a scan too little to be due"
        severity = Severity.WARNING if is_due else Severity.ADVICE
        return self._find(rule, severity, text, remedy.command, None, **cost)

    def _check_compactions(
        self, chain: SnapshotChain, report: TableReport, judge: "Judge"
    ) -> Iterator[DoctorFinding]:
        health = report.health
        assert health is not None
        compaction = chain.find_newest_compaction()
        since = chain.oldest if compaction is None else compaction
        age = self._now - since.time_millis / 1000
        is_costly = health.max_sorted_runs > 1 or report.rows_not_visible
        if not health.level0_files or not is_costly or age < _MAX_COMPACTION_AGE_SECONDS:
            return
        days = format_count(int(age // _MAX_COMPACTION_AGE_SECONDS), "day")
        last = f"snapshot {since.id} was the last one"
        if compaction is None:
            last = f"none since snapshot {since.id}"
        yield self._find_slow(
            DoctorRule.NO_COMPACTION,
            f"no compaction for {days} ({last}): readers merge up to "
            f"{format_count(health.max_sorted_runs, 'sorted run')} in a bucket; "
            f"{format_count(health.level0_files, 'file')} of {format_size(health.level0_bytes)} "
            "in level 0",
            judge,
            judge.find_compaction(),
            runs=health.max_sorted_runs,
        )

    def _check_retention(self, state: TableState) -> Iterator[DoctorFinding]:
        options = state.schema.typed_options
        ids = self._snapshots.ids()
        if not ids:  # not every catalog writes the file of its newest snapshot
            return
        retention = Retention.of_snapshots(
            options, int(self._now * 1000), RetentionRequest(max_deletes=ids[-1])
        )
        end = find_first_retained_snapshot(self._snapshots, retention)
        if end is None:
            return
        consumers = read_retaining_consumers(state)
        retained = {path: number for path, number in consumers.items() if number < end}
        first = min([end, *retained.values()])
        expired = sum(number < first for number in ids)
        if expired:
            deletes = first - ids[0]
            more = (
                f" --max-deletes {deletes}" if deletes > options.get(SNAPSHOT_EXPIRE_LIMIT) else ""
            )
            yield self._find(
                DoctorRule.EXPIRED_SNAPSHOTS,
                Severity.WARNING,
                f"{format_count(expired, 'snapshot')} expired by the table's options, and their "
                "files are still stored",
                f"expire-snapshots{more}",
                snapshots=expired,
            )
        for path, number in sorted(retained.items()):
            count = sum(number <= other < end for other in ids)
            yield self._find(
                DoctorRule.CONSUMER_RETAINS_SNAPSHOTS,
                Severity.WARNING,
                f"consumer {path.rpartition('consumer-')[2]} retains "
                f"{format_count(count, 'snapshot')} from {number} on; without consumers, those "
                f"before {end} would expire",
                "consumer list",
                snapshots=count,
            )

    def _check_iceberg(self, state: TableState) -> Iterator[DoctorFinding]:
        if not is_iceberg_enabled(state.schema):
            return
        # not from what is held: a commit during the comparison explains a difference
        status = read_iceberg_status(self._table.stores.iceberg)
        if status is not None and status.problem is not None:
            yield self._find(
                DoctorRule.STALE_ICEBERG_METADATA,
                Severity.ADVICE if status.is_current else Severity.WARNING,
                status.problem,
                "sync-iceberg",
                None,
                **({} if not status.missing_snapshots else {"snapshots": status.missing_snapshots}),
            )

    def _check_catalog_partitions(self, state: TableState) -> Iterator[DoctorFinding]:
        reports = state.build_catalog_reports()
        if reports.partitions is None and reports.tag_partitions is None:
            return
        difference = reports.compare()
        missing, surplus = len(difference.missing), len(difference.surplus)
        if missing or surplus:
            yield self._find(
                DoctorRule.STALE_CATALOG_PARTITIONS,
                Severity.WARNING if missing else Severity.ADVICE,
                f"the catalog lacks {format_count(missing, 'partition')} of the table, which "
                f"other engines do not read, and has {surplus} without rows",
                "sync-partitions" if missing else "sync-partitions --drop",
                partitions=missing + surplus,
            )

    def _check_lost_commits(self) -> Iterator[DoctorFinding]:
        from paimon_orch.steps.inspection.lost_commits import find_lost_files

        lost = find_lost_files(self._table, self._now)
        if lost is not None:
            time = datetime.fromtimestamp(lost.time, UTC)
            yield self._find(
                DoctorRule.LOST_COMMIT,
                Severity.WARNING,
                f"{format_count(lost.files, 'data file')} of {format_size(lost.bytes)} with "
                f"{format_count(lost.rows, 'row')} were committed until {time:%Y-%m-%d %H:%M} UTC, "
                "but no snapshot has them: another writer has overwritten their snapshot, for "
                "example on a store without exclusive creation, or the commit was interrupted or "
                "rolled back",
                advice="no command decides this: if the job reported success, run it again; "
                "otherwise `paimon-orch remove-orphan-files` deletes the files",
                files=lost.files,
                bytes=lost.bytes,
                rows=lost.rows,
            )

    def _check_files(self, *, deep: bool) -> Iterator[DoctorFinding]:
        from paimon_orch.steps.inspection.check_table import check
        from paimon_orch.steps.repairs.remove_unexisting_files import find_missing_files

        yield from self._check_lost_commits()
        described = set[str]()
        for error in find_unreadable_references(self._stores):
            described.add(error.path)
            yield self._describe_reference(error)
        findings = check(self._table, deep=deep).findings
        if not findings:
            return
        snapshots = find_unreadable_snapshots(self._table)
        for number in snapshots:
            path = self._snapshots.path(number)
            described |= {f"{path}:", f"snapshot {number}:", f"snapshot {number} "}
        yield from self._describe_old_snapshots(snapshots)
        state = self._table.load()
        missing = find_missing_files(state)
        if missing:
            yield self._describe_missing(list(missing.values()))
        texts = "\n".join(map(str, findings))
        unreadable = find_unreadable_files(state, lambda name: name in texts)
        for file in unreadable:
            yield self._describe_unreadable_file(file)
        described |= {path.rpartition("/")[2] for path in missing}
        described |= {file.name for file in unreadable}
        others = [
            finding
            for finding in findings
            if not any(name in str(finding) for name in described)
            # a gap is a finding of its own, and an unreadable snapshot looks like one
            and (finding.rule, finding.where) != ("gap", self._table.paths.snapshot_dir)
        ]
        if others:
            yield self._find(
                DoctorRule.DAMAGED_FILES,
                Severity.ERROR,
                f"{format_count(len(others), 'finding')} of check in all snapshots; the first: "
                f"{others[0]}",
                advice=_READ_CHECK + _RESTORE_OR_ROLL_BACK,
                findings=len(others),
            )

    def _describe_old_snapshots(self, unreadable: list[int]) -> Iterator[DoctorFinding]:
        """Yield a finding for snapshots before the newest ones, which are always examined."""
        first_examined = (self._snapshots.latest_id() or 0) - MAX_SNAPSHOTS + 1
        old = [number for number in unreadable if number < first_examined]
        if old:
            count = format_count(len(old), "older snapshot")
            yield self._describe_unreadable_snapshot(f"{count}, the first is {old[0]}")

    def _describe_reference(self, error: CorruptFileError) -> DoctorFinding:
        return self._find(
            DoctorRule.UNREADABLE_REFERENCES,
            Severity.ERROR,
            f"{describe_reference(error.path)} cannot be read, so that expiration and orphan cleanup "
            f"delete nothing: {error}",
            "repair --rule unreadable-references",
        )

    def _describe_missing(self, missing: list[ManifestEntry]) -> DoctorFinding:
        size = sum(entry.file.file_size for entry in missing)
        rows = sum(entry.file.row_count for entry in missing)
        return self._find(
            DoctorRule.MISSING_FILES,
            Severity.ERROR,
            f"{format_count(len(missing), 'data file')} of {format_size(size)} with "
            f"{format_count(rows, 'row')} {'is' if len(missing) == 1 else 'are'} missing; the "
            f"first: {missing[0].file.file_name}",
            "repair",
            files=len(missing),
            bytes=size,
            rows=rows,
        )

    def _describe_unreadable_file(self, file: UnreadableFile) -> DoctorFinding:
        return self._find(
            DoctorRule.UNREADABLE_FILES,
            Severity.ERROR,
            f"{file}: scans and compactions that read it fail. If a backup has the file, restore it "
            "instead of a repair",
            "repair --rule unreadable-files",
            files=1,
            bytes=file.entry.file.file_size,
            rows=file.entry.file.row_count,
        )
