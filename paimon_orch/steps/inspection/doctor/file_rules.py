"""Rules of files: missing, unreadable and damaged ones, and those of lost commits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from paimon_orch.errors import CorruptFileError
from paimon_orch.files.file_index_reader import INDEX_SUFFIX
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.steps.inspection.damage.unreadable_files import (
    UnreadableFile,
    find_unreadable_files,
)
from paimon_orch.steps.inspection.damage.unreadable_references import (
    describe_reference,
    find_unreadable_references,
)
from paimon_orch.steps.inspection.damage.way_back import find_unreadable_snapshots
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.inspection.doctor.rule_context import (
    READ_CHECK,
    RESTORE_OR_ROLL_BACK,
    RuleContext,
)
from paimon_orch.steps.inspection.findings import Finding
from paimon_orch.table.table_state import TableState

_INDEX_FILE = re.compile(re.escape(INDEX_SUFFIX) + r"\b(?!/)")
"""The end of the path of an index file in a finding."""


def _check_lost_commits(context: RuleContext) -> Iterator[DoctorFinding]:
    from paimon_orch.steps.inspection.doctor.lost_commits import find_lost_files

    lost = find_lost_files(context.table, context.now)
    if lost is not None:
        time = datetime.fromtimestamp(lost.time, UTC)
        yield context.find(
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


def check_all_files(context: RuleContext, *, deep: bool) -> Iterator[DoctorFinding]:
    """Verify that all referenced files exist, and with ``deep`` read them."""
    from paimon_orch.steps.inspection.check_table import check
    from paimon_orch.steps.repairs.remove_unexisting_files import find_missing_files

    yield from _check_lost_commits(context)
    described = set[str]()
    for error in find_unreadable_references(context.stores):
        described.add(error.path)
        yield _describe_reference(context, error)
    findings = check(context.table, deep=deep).findings
    if not findings:
        return
    snapshots = find_unreadable_snapshots(context.table)
    yield from _describe_snapshots(context, snapshots)
    for number in snapshots:
        described |= {f"snapshot {number}:", f"snapshot {number} "}
    described |= {f"{path}:" for path in context.reported}
    state = context.table.load()
    missing = find_missing_files(state)
    if missing:
        yield _describe_missing(context, list(missing.values()))
    texts = "\n".join(map(str, findings))
    unreadable = find_unreadable_files(state, lambda name: name in texts)
    for file in unreadable:
        yield _describe_unreadable_file(context, file)
    described |= {path.rpartition("/")[2] for path in missing}
    described |= {file.name for file in unreadable}
    others = [
        finding
        for finding in findings
        if not any(name in str(finding) for name in described)
        # a gap is a finding of its own, and an unreadable snapshot looks like one
        and (finding.rule, finding.where) != ("gap", context.table.paths.snapshot_dir)
    ]
    yield from _describe_others(context, state, others)


def _describe_others(
    context: RuleContext, state: TableState, others: Sequence[Finding]
) -> Iterator[DoctorFinding]:
    """Describe the findings of ``check`` that no other rule describes."""
    indexes = [str(finding) for finding in others if _INDEX_FILE.search(str(finding))]
    if indexes:
        yield _describe_indexes(context, state, indexes)
    others = [finding for finding in others if str(finding) not in indexes]
    from paimon_orch.steps.inspection.check_row_groups import REWRITE

    statistics = [finding for finding in others if finding.text.endswith(REWRITE)]
    if statistics:
        yield _describe_statistics(context, statistics)
    others = [finding for finding in others if finding not in statistics]
    if others:
        yield context.find(
            DoctorRule.DAMAGED_FILES,
            Severity.ERROR,
            f"{format_count(len(others), 'finding')} of check in all snapshots; the first: "
            f"{others[0]}",
            advice=READ_CHECK + RESTORE_OR_ROLL_BACK,
            findings=len(others),
        )


def _describe_snapshots(
    context: RuleContext, unreadable: Mapping[int, Exception]
) -> Iterator[DoctorFinding]:
    """Yield a finding for snapshots whose damage was not found before."""
    errors = {
        number: error
        for number, error in unreadable.items()
        if not (isinstance(error, CorruptFileError) and error.path in context.reported)
    }
    if errors:
        first, error = next(iter(errors.items()))
        count = format_count(len(errors), "older snapshot")
        yield context.describe_unreadable_snapshot(f"{count}, the first is {first}: {error}")
    context.reported.update(
        error.path for error in errors.values() if isinstance(error, CorruptFileError)
    )


def _describe_reference(context: RuleContext, error: CorruptFileError) -> DoctorFinding:
    return context.find(
        DoctorRule.UNREADABLE_REFERENCES,
        Severity.ERROR,
        f"{describe_reference(error.path)} cannot be read, so that expiration and orphan cleanup "
        f"delete nothing: {error}",
        "repair --rule unreadable-references",
    )


def _describe_missing(context: RuleContext, missing: list[ManifestEntry]) -> DoctorFinding:
    size = sum(entry.file.file_size for entry in missing)
    rows = sum(entry.file.row_count for entry in missing)
    return context.find(
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


def _describe_indexes(
    context: RuleContext, state: TableState, findings: list[str]
) -> DoctorFinding:
    """Describe index files that are missing or damaged; no reader needs them."""
    texts = "\n".join(findings)
    files = (file for split in state.files() for file in split.files)
    named = [name for file in files for name in file.extra_files if name in texts]
    if not named:
        return context.find(
            DoctorRule.MISSING_FILE_INDEXES,
            Severity.WARNING,
            f"index files of older snapshots, tags or branches are missing or damaged; the first: "
            f"{findings[0]}",
            advice="the finding goes away when these expire or are deleted",
        )
    return context.find(
        DoctorRule.MISSING_FILE_INDEXES,
        Severity.WARNING,
        f"{format_count(len(named), 'index file')} of data files {'is' if len(named) == 1 else 'are'} "
        f"missing or damaged, so filters read these data files whole; the first: {named[0]}",
        "rewrite-file-index",
        files=len(named),
    )


def _describe_statistics(context: RuleContext, findings: list[Finding]) -> DoctorFinding:
    return context.find(
        DoctorRule.WRONG_STATISTICS,
        Severity.ERROR,
        f"{format_count(len(findings), 'finding')} of statistics that exclude stored values, so that "
        f"filters lose rows; the first: {findings[0]}",
        advice="set the table option 'compaction.force-rewrite-all-files' to true, run "
        "`paimon-orch compact --strategy full`, and remove it again. Older snapshots, tags and "
        "branches have the finding until they expire or are deleted",
        findings=len(findings),
    )


def _describe_unreadable_file(context: RuleContext, file: UnreadableFile) -> DoctorFinding:
    return context.find(
        DoctorRule.UNREADABLE_FILES,
        Severity.ERROR,
        f"{file}: scans and compactions that read it fail. If a backup has the file, restore it "
        "instead of a repair",
        "repair --rule unreadable-files",
        files=1,
        bytes=file.entry.file.file_size,
        rows=file.entry.file.row_count,
    )
