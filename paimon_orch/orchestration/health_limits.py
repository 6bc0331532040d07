"""Limits of the health of a table, and whether a table keeps them, from its metadata only."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paimon_orch.errors import InputError
from paimon_orch.safe_text import escape_markdown
from paimon_orch.steps.inspection.health_metrics import HEALTH_METRICS, HealthMetric

if TYPE_CHECKING:  # the limits are declared before a table is read
    from paimon_orch.steps.common.executor import Executor
    from paimon_orch.steps.inspection.health import TableHealth
    from paimon_orch.table.iceberg.status import IcebergStatus
    from paimon_orch.table.table import Table

FILE_REFERENCES = "file_references"
ICEBERG_METADATA = "iceberg_metadata"
CHECK_NAMES = (*HEALTH_METRICS, ICEBERG_METADATA, FILE_REFERENCES)
"""The names of all checks."""

DEFAULT_LIMITS: Mapping[str, float] = {
    name: metric.default_limit
    for name, metric in HEALTH_METRICS.items()
    if metric.default_limit is not None
} | {ICEBERG_METADATA: 0}
"""The limits of the checks that apply to each table, by name."""

_OTHER_DESCRIPTIONS = {
    ICEBERG_METADATA: "Iceberg metadata = LATEST: snapshots that Iceberg readers do not see.",
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


def evaluate_health(table: "Table", limits: Mapping[str, float]) -> Iterator[HealthOutcome]:
    """Evaluate the checks that have a limit, except ``file_references``, in the newest snapshot."""
    from paimon_orch.steps.inspection.health import TableHealth, compute_health

    metrics = sorted(limits.keys() & HEALTH_METRICS.keys())
    health = compute_health(table) if metrics else TableHealth()
    for name in metrics:
        yield _check_metric(name, table, health, limits[name])
    if ICEBERG_METADATA in limits:
        yield _check_iceberg_metadata(table, limits[ICEBERG_METADATA])


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


def _check_metric(name: str, table: "Table", health: "TableHealth", limit: float) -> HealthOutcome:
    metric = HEALTH_METRICS[name]
    value = metric.read(health)
    if value is None:
        return HealthOutcome(name=name, passed=True, description="Does not apply to this table.")
    passed = metric.is_within_limit(value, limit)
    text = (
        "Within the limit."
        if passed
        else f"To fix this, {_find_remedy(metric, table, health, limit)}."
    )
    return HealthOutcome(
        name=name, passed=passed, description=text, figures={"value": round(value, 4)}
    )


def _find_remedy(metric: HealthMetric, table: "Table", health: "TableHealth", limit: float) -> str:
    """Return the remedy; it names a compaction only if the check passes afterwards."""
    if not metric.is_compacted:
        return metric.remedy
    from paimon_orch.steps.compaction.compaction_remedies import Remedies
    from paimon_orch.steps.inspection.health import read_live_buckets

    state = table.load(with_lists=True)
    if state.snapshot is None:
        return metric.remedy
    remedies = Remedies(table, state, read_live_buckets(state, state.snapshot), health)
    strategy = remedies.find_compaction(metric, limit)
    texts = {"minor": "run the compaction", "full": "run the compaction with strategy: full"}
    return metric.remedy if strategy is None else texts[strategy]


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
