"""Asset checks over the health figures of a table: one look at its metadata answers all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import Attributes
from paimon_orch.dagster.names import check_table_name, definition_name, table_asset_key
from paimon_orch.dagster.resources import PaimonCatalogResource
from paimon_orch.dagster.retries import raise_dagster_errors
from paimon_orch.errors import InputError
from paimon_orch.steps.inspection.check import check
from paimon_orch.steps.inspection.health import TableHealth, compute_health
from paimon_orch.table.table import Table

FILE_REFERENCES = "file_references"
_SECONDS_PER_DAY = 24 * 3600


class Limit(Attributes):
    """The limit of one check; a figure equal to it still passes."""

    limit: float = Field(description="The most, or the least, that is good.")
    severity: Literal["warn", "error"] = Field(
        default="warn", description="What a figure beyond it is."
    )
    blocking: bool = Field(
        default=False,
        description="Whether a failure stops what is downstream; only failures of severity error do.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _HealthMetric:
    """A figure that is checked: how it is read, the default limit, and what to do about it.

    :ivar read: returns None where the figure means nothing for the table
    :ivar least: whether the limit is the least that is good, not the most
    """

    description: str
    read: Callable[[TableHealth], float | None]
    default: float | None
    remedy: str
    is_minimum: bool = False

    def is_within_limit(self, value: float, limit: float) -> bool:
        """Tell whether a figure is within its limit."""
        return value >= limit if self.is_minimum else value <= limit


HEALTH_METRICS: Mapping[str, _HealthMetric] = {
    "level0_backlog": _HealthMetric(
        description="Files in level 0, which compaction has not seen.",
        read=lambda h: h.level0_files,
        default=100,
        remedy="run the compaction",
    ),
    "sorted_runs": _HealthMetric(
        description="Sorted runs in the bucket with the most: what a reader of it merges.",
        read=lambda h: h.max_sorted_runs,
        default=10,
        remedy="run the compaction",
    ),
    "small_files": _HealthMetric(
        description="Share of files far below the target size that have neighbours to join.",
        read=lambda h: h.small_files / h.files if h.files else 0.0,
        default=0.5,
        remedy="run the compaction, or write less often",
    ),
    "deletion_vector_ratio": _HealthMetric(
        description="Share of rows that are stored but hidden or retracted.",
        read=lambda h: h.deleted_ratio,
        default=0.3,
        remedy="run the compaction with strategy: full",
    ),
    "bucket_skew": _HealthMetric(
        description="The largest bucket beside the mean of its partition.",
        read=lambda h: h.bucket_skew,
        default=None,
        remedy="choose another bucket key",
    ),
    "file_index_coverage": _HealthMetric(
        description="Share of files that have a file index, if the table asks for any.",
        read=lambda h: h.index_coverage,
        default=0.9,
        remedy="materialize the file indexes",
        is_minimum=True,
    ),
    "snapshot_count": _HealthMetric(
        description="Snapshots that are kept.",
        read=lambda h: h.snapshots,
        default=1000,
        remedy="run expire_snapshots",
    ),
    "snapshot_age_days": _HealthMetric(
        description="Age of the oldest snapshot that is kept.",
        read=lambda h: h.oldest_snapshot_age / _SECONDS_PER_DAY,
        default=7,
        remedy="run expire_snapshots",
    ),
    "manifest_count": _HealthMetric(
        description="Manifests of the newest snapshot.",
        read=lambda h: h.manifests,
        default=500,
        remedy="run compact_manifests",
    ),
}
"""Checks by name; those without a default limit run only where one is given."""

CHECK_NAMES = (*HEALTH_METRICS, FILE_REFERENCES)
"""The names of all checks."""

DEFAULT_LIMITS: Mapping[str, Limit] = {
    name: Limit(limit=measure.default)
    for name, measure in HEALTH_METRICS.items()
    if measure.default is not None
}


def build_paimon_table_checks(
    table: str,
    *,
    limits: Mapping[str, Limit] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.AssetChecksDefinition:
    """Return checks on a table's asset; each takes :data:`DEFAULT_LIMITS` unless ``limits`` names it.

    The names are those of :data:`HEALTH_METRICS`, and ``file_references``, which runs only if it is named: it verifies all
    versions of the table, and its limit is the number of findings (0). Runs take the resource ``paimon`` and read
    metadata alone; Spark is never started.

    >>> build_paimon_table_checks(
    ...     "lake.orders", limits={"level0_backlog": Limit(limit=20, severity="error", blocking=True)}
    ... )
    """
    check_table_name(table)
    chosen = {**DEFAULT_LIMITS, **(limits or {})}
    unknown = sorted(set(chosen) - set(CHECK_NAMES))
    if unknown:
        raise InputError(
            f"unknown checks for {table}: {', '.join(unknown)}; the checks are {', '.join(CHECK_NAMES)}"
        )
    key = table_asset_key(table, key_prefix)

    @dg.multi_asset_check(
        name=definition_name("checks", table, key_prefix),
        description=f"Health figures of `{table}`, read off its metadata.",
        specs=[_build_check_spec(key, name, limit) for name, limit in chosen.items()],
        can_subset=True,
    )
    def checks(
        context: dg.AssetCheckExecutionContext, paimon: PaimonCatalogResource
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {check_key.name for check_key in context.selected_asset_check_keys}
        with raise_dagster_errors(table):
            loaded = paimon.load_table(table)
            found = compute_health(loaded) if selected & HEALTH_METRICS.keys() else TableHealth()
            for name in sorted(selected & HEALTH_METRICS.keys()):
                yield _build_metric_result(
                    key, name, measure=HEALTH_METRICS[name], found=found, limit=chosen[name]
                )
            if FILE_REFERENCES in selected:
                yield _check_file_references(key, loaded, chosen[FILE_REFERENCES])

    return checks


def _build_check_spec(key: dg.AssetKey, name: str, limit: Limit) -> dg.AssetCheckSpec:
    measure = HEALTH_METRICS.get(name)
    text = "Findings of a check of all versions." if measure is None else measure.description
    word = "at least" if measure is not None and measure.is_minimum else "at most"
    return dg.AssetCheckSpec(
        name,
        asset=key,
        description=f"{text} Good: {word} {limit.limit:g}.",
        blocking=limit.blocking,
    )


def _build_metric_result(
    key: dg.AssetKey, name: str, measure: _HealthMetric, found: TableHealth, limit: Limit
) -> dg.AssetCheckResult:
    value = measure.read(found)
    if value is None:
        text, passed = "The table does not ask for it.", True
    else:
        passed = measure.is_within_limit(value, limit.limit)
        text = "Within the limit." if passed else f"To mend it, {measure.remedy}."
    figures = {} if value is None else {"paimon/value": round(value, 4)}
    return _build_check_result(key, name, passed=passed, limit=limit, text=text, figures=figures)


def _check_file_references(key: dg.AssetKey, table: Table, limit: Limit) -> dg.AssetCheckResult:
    report = check(table)
    shown = "\n".join(f"* {finding}" for finding in report.findings[:20])
    passed = len(report.findings) <= limit.limit
    figures = {
        "paimon/value": len(report.findings),
        "paimon/versions": report.versions,
        "paimon/data_files": report.data_files,
    }
    text = shown or "Every file that a version names is there."
    return _build_check_result(
        key, FILE_REFERENCES, passed=passed, limit=limit, text=text, figures=figures
    )


def _build_check_result(
    key: dg.AssetKey,
    name: str,
    passed: bool,  # noqa: FBT001
    limit: Limit,
    text: str,
    figures: Mapping[str, float],
) -> dg.AssetCheckResult:
    severities = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}
    return dg.AssetCheckResult(
        passed=passed,
        asset_key=key,
        check_name=name,
        severity=severities[limit.severity],
        description=text,
        metadata={**figures, "paimon/limit": limit.limit},
    )
