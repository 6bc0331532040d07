"""Rules of the newest snapshot: levels, indexes, and what makes scans slow."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.display import format_count, format_size
from paimon_orch.steps.inspection.damage.way_back import try_to_find_way_back
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorFinding, DoctorRule, Severity
from paimon_orch.steps.inspection.health_metrics import METRIC_LIMITS
from paimon_orch.steps.inspection.index_damage import find_index_damage
from paimon_orch.steps.inspection.inspect import TableReport
from paimon_orch.steps.inspection.snapshot_chain import SnapshotChain
from paimon_orch.steps.inspection.unmerged_levels import find_unmerged_levels
from paimon_orch.table.table_state import TableState

if TYPE_CHECKING:  # plans of compactions are needed only for tables that can be read
    from paimon_orch.steps.inspection.verdict.remedies import Remedy
    from paimon_orch.steps.inspection.verdict.verdict import Judge
from paimon_orch.steps.inspection.doctor.rule_context import (
    READ_CHECK,
    RESTORE_FILE,
    RESTORE_OR_ROLL_BACK,
    RuleContext,
)

_MAX_COMPACTION_AGE_SECONDS = 24 * 3600
_METRIC_RULES = {
    "level0_backlog": DoctorRule.LEVEL0_BACKLOG,
    "sorted_runs": DoctorRule.SORTED_RUNS,
    "small_files": DoctorRule.SMALL_FILES,
    "deletion_vector_ratio": DoctorRule.DELETED_ROWS,
    "file_index_coverage": DoctorRule.MISSING_FILE_INDEXES,
    "manifest_count": DoctorRule.MANY_MANIFESTS,
}
"""The rules of metrics. Retention replaces the metrics of snapshots."""


def build_judge(context: RuleContext, state: TableState, report: TableReport) -> "Judge | None":
    """Return what judges the costs of the newest snapshot; None if its files cannot be read."""
    from paimon_orch.steps.inspection.verdict.remedies import Inspection
    from paimon_orch.steps.inspection.verdict.verdict import Judge

    if report.health is None:
        return None
    inspection = Inspection(
        table=context.table, state=state, report=report, health=report.health, now=context.now
    )
    return Judge(inspection, {name: METRIC_LIMITS[name] for name in _METRIC_RULES})


def check_layout(
    context: RuleContext,
    state: TableState,
    report: TableReport,
    chain: SnapshotChain | None,
    judge: "Judge | None",
) -> Iterator[DoctorFinding]:
    """Check the files of the newest snapshot; ``chain`` has the snapshots that can be read."""
    if report.problem is not None:
        yield _describe_problem(context, report, report.problem)
    yield from _check_levels(context, state, report)
    yield from _check_indexes(context, state, report)
    if judge is not None:
        yield from _check_health(context, report, chain, judge)


def _describe_problem(context: RuleContext, report: TableReport, problem: str) -> DoctorFinding:
    """Return the finding of files that contradict each other."""
    rule, command = DoctorRule.INCONSISTENT_METADATA, None
    if report.live is not None:
        try:
            report.live.take_merged().check_levels()
        except CorruptFileError:
            rule, command = DoctorRule.OVERLAPPING_FILES, "repair"
            problem += ": compactions fail, and readers may see several rows of a key"
    cost = f"{format_count(report.file_count, 'file')}, {format_size(report.bytes)}"
    advice = READ_CHECK + RESTORE_OR_ROLL_BACK if command is None else None
    return context.find(rule, Severity.ERROR, f"{problem} ({cost})", command, advice)


def _check_levels(
    context: RuleContext, state: TableState, report: TableReport
) -> Iterator[DoctorFinding]:
    """Yield a finding if files overlap that the newest options do not merge."""
    assert report.live is not None
    unmerged = find_unmerged_levels(state, report.live)
    if len(unmerged):
        yield context.find(
            DoctorRule.OVERLAPPING_FILES,
            Severity.ERROR,
            f"{format_count(len(unmerged), 'bucket')} with overlapping files on several levels, "
            "which were merged by readers under the options of older schemas and are not "
            "merged now: readers may see several rows of a key",
            "repair",
            buckets=len(unmerged),
        )


def _check_indexes(
    context: RuleContext, state: TableState, report: TableReport
) -> Iterator[DoctorFinding]:
    """Yield the damage of deletion vectors and hash indexes."""
    assert report.snapshot is not None
    assert report.live is not None
    damage = find_index_damage(state, report.snapshot, report.live)
    if damage.missing_vectors:
        count = len(damage.missing_vectors)
        files = sum(len(entry.ranges or ()) for entry in damage.missing_vectors)
        way_back = try_to_find_way_back(context.table)
        yield context.find(
            DoctorRule.MISSING_DELETION_VECTORS,
            Severity.ERROR,
            f"{format_count(count, 'file')} with the deletion vectors of "
            f"{format_count(files, 'data file')} {'is' if count == 1 else 'are'} missing: "
            "readers fail, or see deleted rows. If a backup has the files, restore them instead "
            "of a rollback",
            None if way_back is None else way_back.command,
            RESTORE_FILE if way_back is None else None,
            files=files,
        )
    if len(damage.unindexed_buckets):
        yield context.find(
            DoctorRule.MISSING_HASH_INDEX,
            Severity.ERROR,
            f"{format_count(len(damage.unindexed_buckets), 'dynamic bucket')} without a hash "
            "index: writers of Java Paimon insert existing keys again in another bucket",
            "repair",
            buckets=len(damage.unindexed_buckets),
        )
    if damage.stale:
        yield context.find(
            DoctorRule.STALE_DELETION_VECTORS,
            Severity.WARNING,
            f"{format_count(len(damage.stale), 'deletion vector')} "
            f"({format_size(damage.stale_bytes)}) of files that are not live any more: "
            "planning reads them, and they grow with each compaction",
            "repair",
            bytes=damage.stale_bytes,
        )


def _check_health(
    context: RuleContext, report: TableReport, chain: SnapshotChain | None, judge: "Judge"
) -> Iterator[DoctorFinding]:
    """Yield the problems of a verdict, which finds the commands."""
    if report.rows_not_visible:
        yield _find_slow(
            context,
            DoctorRule.ROWS_NOT_VISIBLE,
            f"batch readers do not see {format_count(report.rows_not_visible, 'record')} "
            "before a compaction",
            judge,
            judge.find_compaction(),
            rows=report.rows_not_visible,
        )
    for problem in judge.problems:
        yield _find_slow(
            context,
            _METRIC_RULES[problem.name],
            str(problem),
            judge,
            judge.find_remedy_of(problem),
            advice=f"to improve this, {problem.metric.remedy}",
        )
    if chain is not None and chain.snapshots:
        yield from _check_compactions(context, chain, report, judge)


def _find_slow(
    context: RuleContext,
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
        return context.find(rule, Severity.WARNING, text, None, advice, **cost)
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
    return context.find(rule, severity, text, remedy.command, None, **cost)


def _check_compactions(
    context: RuleContext, chain: SnapshotChain, report: TableReport, judge: "Judge"
) -> Iterator[DoctorFinding]:
    health = report.health
    assert health is not None
    compaction = chain.find_newest_compaction()
    since = chain.oldest if compaction is None else compaction
    age = context.now - since.time_millis / 1000
    is_costly = health.max_sorted_runs > 1 or report.rows_not_visible
    if not health.level0_files or not is_costly or age < _MAX_COMPACTION_AGE_SECONDS:
        return
    days = format_count(int(age // _MAX_COMPACTION_AGE_SECONDS), "day")
    last = f"snapshot {since.id} was the last one"
    if compaction is None:
        last = f"none since snapshot {since.id}"
    yield _find_slow(
        context,
        DoctorRule.NO_COMPACTION,
        f"no compaction for {days} ({last}): readers merge up to "
        f"{format_count(health.max_sorted_runs, 'sorted run')} in a bucket; "
        f"{format_count(health.level0_files, 'file')} of {format_size(health.level0_bytes)} "
        "in level 0",
        judge,
        judge.find_compaction(),
        runs=health.max_sorted_runs,
    )
