"""Finds what is wrong or slow in the tables of a catalog, with the command that fixes it.

Reads only metadata unless it is asked for more, and changes nothing.
:mod:`paimon_orch.steps.inspection.check_table` verifies the files of one table; this module finds
the tables that need attention.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

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
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.inspection.damage.way_back import try_to_find_way_back
from paimon_orch.steps.inspection.doctor.copy_rules import check_catalog_partitions, check_iceberg
from paimon_orch.steps.inspection.doctor.doctor_findings import (
    DoctorFinding,
    DoctorReport,
    DoctorRule,
    ExaminedTable,
    Severity,
)
from paimon_orch.steps.inspection.doctor.file_rules import check_all_files
from paimon_orch.steps.inspection.doctor.layout_rules import build_judge, check_layout
from paimon_orch.steps.inspection.doctor.option_rules import check_options
from paimon_orch.steps.inspection.doctor.rule_context import RESTORE_FILE, RuleContext
from paimon_orch.steps.inspection.doctor.snapshot_rules import (
    check_chain,
    check_retention,
    check_snapshot_files,
    read_chain,
    read_latest,
)
from paimon_orch.steps.inspection.inspect import inspect_newest
from paimon_orch.steps.inspection.snapshot_chain import SnapshotChain
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState, build_table_state
from paimon_orch.table.table_stores import TableStores

_RESTORE_SCHEMA = (
    "no command repairs this: the table cannot be opened without its newest schema. Restore the file "
    "from a backup or an older version of the object"
)
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

    def examine(name: str) -> tuple[ExaminedTable, list[DoctorFinding]]:
        try:
            return _examine(catalog, name, check_files=check_files, deep=deep, now=now)
        except TransientError as error:
            return ExaminedTable(name=name), [_describe_outage(name, error)]

    # What reads all files of a table has enough requests for the store by itself.
    examine_each = map if check_files or deep else catalog.examine_each
    for examined, found in examine_each(examine, names):
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
        examined = replace(examined, store=_describe_store(table))
        stores = table.stores.hold(table.hint.take())  # the table was opened just now
        examination = _Examination(table, stores, time.time() if now is None else now)
        yield from examination.run(check_files=check_files, deep=deep)
        examined = replace(
            examined,
            files=examination.files,
            bytes=examination.bytes,
            requests=examination.requests,
        )

    _collect(findings, name, run(), lambda: table)
    return examined, _sort(findings)


def _describe_store(table: Table) -> str:
    scheme, separator, path = table.paths.root.partition("://")
    place = f"{scheme}://{path.partition('/')[0]}" if separator else "file system of this machine"
    if table.environment.snapshots is not None:
        return f"{place}: commits by the catalog"
    return f"{place}: {table.io.capabilities.describe_commits()}"


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
    way_back = try_to_find_way_back(table)
    if way_back is None:
        return replace(finding, advice=RESTORE_FILE)
    return replace(
        finding,
        text=f"{finding.text}; the newest state that can be read is {way_back}",
        command="repair" if table.stores.snapshots.catalog is None else way_back.command,
    )


class _Examination:
    """The examination of one table."""

    def __init__(self, table: Table, stores: TableStores, now: float) -> None:
        self._context = RuleContext(table, stores, now)
        self.files = 0
        self.bytes = 0
        self.requests = 0

    def run(self, *, check_files: bool, deep: bool) -> Iterator[DoctorFinding]:
        context = self._context
        read_schema = start_call(context.table.io, context.stores.get_schema)
        latest, failure = self._try_latest()
        schema = read_schema()
        yield from check_options(context, schema)
        if isinstance(failure, MissingFileError):
            text = f"{failure.path} {failure.reason}"
            yield context.find(DoctorRule.WRONG_HINT, Severity.ERROR, text, "repair")
            return
        if failure is not None:
            raise failure
        if latest is not None:
            yield from self._check_newest(build_table_state(context.stores, schema, latest), latest)
        if check_files or deep:
            yield from check_all_files(context, deep=deep)

    def _try_latest(self) -> tuple[Snapshot | None, PaimonError | OSError | None]:
        """Read the newest snapshot; return the error if that fails."""
        try:
            return read_latest(self._context), None
        except (PaimonError, OSError) as error:
            return None, error

    def _check_newest(self, state: TableState, latest: Snapshot) -> Iterator[DoctorFinding]:
        context = self._context
        yield from check_snapshot_files(context, latest)
        chain = read_chain(context, latest)
        if isinstance(chain, DoctorFinding):
            yield chain
        elif chain.snapshots:
            yield from check_chain(context, chain)
        report = inspect_newest(state)
        self.files, self.bytes = report.file_count, report.bytes
        judge = build_judge(context, state, report)
        self.requests = 0 if judge is None else judge.now.requests
        readable = chain if isinstance(chain, SnapshotChain) else None
        yield from check_layout(context, state, report, readable, judge)
        yield from check_retention(context, state)
        yield from check_iceberg(context, state)
        yield from check_catalog_partitions(context, state)
