"""Limits of the health of a table, and whether a table keeps them, from its metadata only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paimon_orch.errors import InputError
from paimon_orch.safe_text import escape_markdown
from paimon_orch.steps.inspection.health_metrics import (
    COMPACT,
    COMPACT_FULLY,
    COMPACT_MANIFESTS,
    EXPIRE_SNAPSHOTS,
    HEALTH_METRICS,
    MATERIALIZE_VECTORS,
    METRIC_LIMITS,
    REWRITE_FILE_INDEX,
)
from paimon_orch.table.expired_reads import repeat_if_expired

if TYPE_CHECKING:  # the limits are declared before a table is read
    from paimon_orch.steps.common.executor import Executor
    from paimon_orch.table.iceberg.status import IcebergStatus
    from paimon_orch.table.table import Table

FILE_REFERENCES = "file_references"
ICEBERG_METADATA = "iceberg_metadata"
DAMAGE = "damage"
CHECK_NAMES = (*HEALTH_METRICS, ICEBERG_METADATA, DAMAGE, FILE_REFERENCES)
"""The names of all checks."""

DEFAULT_LIMITS: Mapping[str, float] = {**METRIC_LIMITS, ICEBERG_METADATA: 0, DAMAGE: 0}
"""The limits of the checks that apply to each table, by name."""

_OTHER_DESCRIPTIONS = {
    ICEBERG_METADATA: "Iceberg metadata = LATEST: snapshots that Iceberg readers do not see.",
    DAMAGE: "Damaged files that a step of the table has met.",
    FILE_REFERENCES: "Findings in all snapshots, tags and changelogs.",
}
_MAX_SHOWN_FINDINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOutcome:
    """The result of one check of a table."""

    name: str
    passed: bool
    description: str
    """What was found and how to fix it, in Markdown."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The value that is compared with the limit, and others."""
    damaged_files: tuple[str, ...] = ()
    """The damaged files that the next evaluation looks at again; only of the check of damage."""
    iceberg: "IcebergStatus | None" = None
    """What Iceberg readers see; only of the check of Iceberg metadata."""


def reject_unknown_checks(table: str, limits: Mapping[str, object]) -> None:
    """Raise :class:`InputError` if a limit belongs to no check."""
    if unknown := sorted(limits.keys() - set(CHECK_NAMES)):
        raise InputError(
            f"unknown checks for {table}: {', '.join(unknown)}; "
            f"the checks are {', '.join(CHECK_NAMES)}"
        )


def describe_check(name: str, limit: float) -> str:
    """Return a sentence on what a check compares, and with which limit."""
    metric = HEALTH_METRICS.get(name)
    text = _OTHER_DESCRIPTIONS[name] if metric is None else metric.description
    comparison = "at least" if metric is not None and metric.is_minimum else "at most"
    return f"{text} Passes if {comparison} {limit:g}."


def evaluate_health(
    table: "Table", limits: Mapping[str, float], damaged_files: Sequence[str] = ()
) -> Iterator[HealthOutcome]:
    """Evaluate the checks that have a limit, except ``file_references``, in the newest snapshot.

    ``damaged_files`` are those that steps have met, which are read again.
    """
    if DAMAGE in limits:
        from paimon_orch.steps.inspection.damage.remaining_damage import find_remaining_damage

        yield describe_damage(table, find_remaining_damage(table, damaged_files), limits[DAMAGE])
    if limits.keys() & HEALTH_METRICS.keys():
        yield from _check_metrics(table, limits)
    if ICEBERG_METADATA in limits:
        yield _check_iceberg_metadata(table, limits[ICEBERG_METADATA])


def describe_damage(table: "Table", damaged_files: Sequence[str], limit: float) -> HealthOutcome:
    """Return the outcome of the check of damage for files that cannot be read."""
    text = "No step has met a damaged file that the table still needs."
    if damaged_files:
        command = escape_markdown(table.stores.label.format_command("doctor"))
        files = ", ".join(map(escape_markdown, damaged_files[:_MAX_SHOWN_FINDINGS]))
        text = f"A step could not read {files}. `{command} --deep` names the repair."
    return HealthOutcome(
        name=DAMAGE,
        passed=len(damaged_files) <= limit,
        description=text,
        figures={"value": len(damaged_files)},
        damaged_files=tuple(damaged_files),
    )


def check_file_references(table: "Table", limit: float, executor: "Executor") -> HealthOutcome:
    """Verify all snapshots, tags and changelogs; the limit is the number of findings."""
    from paimon_orch.steps.inspection.check_table import check

    report = check(table, executor=executor)
    findings = "\n".join(
        f"* {escape_markdown(str(finding))}" for finding in report.findings[:_MAX_SHOWN_FINDINGS]
    )
    return HealthOutcome(
        name=FILE_REFERENCES,
        passed=len(report.findings) <= limit,
        description=findings or "All referenced files exist.",
        figures={
            "value": len(report.findings),
            "versions": report.versions,
            "data_files": report.data_files,
        },
    )


_REMEDIES: Mapping[str, str] = {
    COMPACT: "run the compaction",
    COMPACT_FULLY: "run the compaction with strategy: full",
    COMPACT_MANIFESTS: "run compact_manifests",
    EXPIRE_SNAPSHOTS: "run expire_snapshots",
    REWRITE_FILE_INDEX: "materialize the file indexes",
    MATERIALIZE_VECTORS: "run `paimon-orch materialize-deletion-vectors`",
}
"""What users of an orchestrator run in place of a command."""


@repeat_if_expired
def _check_metrics(table: "Table", limits: Mapping[str, float]) -> list[HealthOutcome]:
    """Evaluate the checks of metrics; one that fails names what makes it pass."""
    from paimon_orch.steps.inspection.verdict.verdict import open_judge

    judge = open_judge(table, limits)
    problems = {problem.name: problem for problem in judge.problems}
    outcomes = []
    for name in sorted(limits.keys() & HEALTH_METRICS.keys()):
        value, problem = judge.read(name), problems.get(name)
        text = "Within the limit."
        if value is None:
            text = "Does not apply to this table."
        elif problem is not None:
            remedy = judge.find_remedy_of(problem)
            todo = problem.metric.remedy if remedy is None else _REMEDIES[remedy.command]
            text = f"To fix this, {todo}."
        figures = {} if value is None else {"value": round(value, 4)}
        outcomes.append(
            HealthOutcome(name=name, passed=problem is None, description=text, figures=figures)
        )
    return outcomes


def _check_iceberg_metadata(table: "Table", limit: float) -> HealthOutcome:
    from paimon_orch.table.iceberg.status import read_iceberg_status

    status = read_iceberg_status(table.stores.iceberg)
    if status is None:
        text = "Does not apply: this library publishes no Iceberg metadata of the table."
        return HealthOutcome(name=ICEBERG_METADATA, passed=True, description=text)
    missing = status.missing_snapshots
    # The problem may be another one than missing snapshots, such as a damaged file.
    is_tolerated = missing is not None and 0 < missing <= limit
    return HealthOutcome(
        name=ICEBERG_METADATA,
        passed=status.is_current or is_tolerated,
        description="Iceberg readers see the newest snapshot."
        if status.is_current
        else f"{escape_markdown(str(status.problem))}. To fix this, run sync_iceberg.",
        figures={} if missing is None else {"value": missing},
        iceberg=status,
    )
