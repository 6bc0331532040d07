"""Asset checks of the health of a table, computed from its metadata only.

The age of the newest data is not a check but a freshness policy
(:mod:`paimon_orch.dagster.components.freshness_attributes`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import Attributes
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.external_reports import build_iceberg_metadata
from paimon_orch.dagster.names import check_table_name, definition_name, table_asset_key
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.dagster.spark_links import build_maintenance_executor
from paimon_orch.errors import InputError
from paimon_orch.steps.inspection.health_metrics import HEALTH_METRICS

if TYPE_CHECKING:  # runs import the library
    from paimon_orch.steps.common.executor import Executor
    from paimon_orch.steps.inspection.health import TableHealth
    from paimon_orch.table.table import Table

FILE_REFERENCES = "file_references"
ICEBERG_METADATA = "iceberg_metadata"
_MAX_SHOWN_FINDINGS = 20
_SEVERITIES = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


class Limit(Attributes):
    """The limit of one check; a value equal to the limit passes."""

    limit: float = Field(
        description="The maximum value that passes; for file_index_coverage, the minimum."
    )
    severity: Literal["warn", "error"] = Field(default="warn", description="Severity of a failure.")
    blocking: bool = Field(
        default=False,
        description="Whether a failure with severity error blocks downstream assets.",
    )


CHECK_NAMES = (*HEALTH_METRICS, ICEBERG_METADATA, FILE_REFERENCES)
"""The names of all checks."""

_OTHER_DESCRIPTIONS = {
    ICEBERG_METADATA: "Iceberg metadata = LATEST: snapshots that Iceberg readers do not see.",
    FILE_REFERENCES: "Findings in all snapshots, tags and changelogs.",
}

DEFAULT_LIMITS: Mapping[str, Limit] = {
    name: Limit(limit=metric.default_limit)
    for name, metric in HEALTH_METRICS.items()
    if metric.default_limit is not None
} | {ICEBERG_METADATA: Limit(limit=0, severity="error")}


def build_paimon_table_checks(
    table: str,
    *,
    limits: Mapping[str, Limit] | None = None,
    key_prefix: Sequence[str] = (),
) -> dg.AssetChecksDefinition:
    """Return checks on the asset of a table; ``limits`` override :data:`DEFAULT_LIMITS` by name.

    The check names are the keys of :data:`HEALTH_METRICS`, ``iceberg_metadata`` and
    ``file_references``. The check ``iceberg_metadata`` passes if Iceberg readers see LATEST, or if
    the table is not published as Iceberg metadata.

    The check ``file_references`` runs only if ``limits`` contains it: it verifies all snapshots,
    tags and changelogs of the table, and its limit is the number of findings, usually 0. The
    executor of the resource ``spark`` does its work, or this process if the manifests are small.

    Runs require the resource ``paimon`` and, for ``file_references``, also ``spark``. They read
    only metadata.

    >>> build_paimon_table_checks(
    ...     "lake.orders",
    ...     limits={"level0_backlog": Limit(limit=20, severity="error", blocking=True)},
    ... )
    """
    check_table_name(table)
    check_limits = {**DEFAULT_LIMITS, **(limits or {})}
    unknown = sorted(set(check_limits) - set(CHECK_NAMES))
    if unknown:
        raise InputError(
            f"unknown checks for {table}: {', '.join(unknown)}; "
            f"the checks are {', '.join(CHECK_NAMES)}"
        )
    key = table_asset_key(table, key_prefix)

    @dg.multi_asset_check(
        name=definition_name("checks", table, key_prefix),
        description=f"Health of `{table}`, computed from its metadata.",
        specs=[_build_check_spec(key, name, limit) for name, limit in check_limits.items()],
        can_subset=True,
        required_resource_keys={"paimon", *(["spark"] if FILE_REFERENCES in check_limits else [])},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from paimon_orch.steps.inspection.health import TableHealth, compute_health

        selected = {check_key.name for check_key in context.selected_asset_check_keys}
        with raise_dagster_errors(table):
            loaded = context.resources.paimon.load_table(table)
            metrics = sorted(selected & HEALTH_METRICS.keys())
            health = compute_health(loaded) if metrics else TableHealth()
            for name in metrics:
                yield _check_metric(key, name, health, check_limits[name])
            if ICEBERG_METADATA in selected:
                yield _check_iceberg_metadata(key, loaded, check_limits[ICEBERG_METADATA])
            if FILE_REFERENCES in selected:
                executor = build_maintenance_executor(
                    context, context.resources.spark, ExecutorChoice.auto
                )
                limit = check_limits[FILE_REFERENCES]
                yield _check_file_references(key, loaded, limit, executor)

    return checks


def _build_check_spec(key: dg.AssetKey, name: str, limit: Limit) -> dg.AssetCheckSpec:
    metric = HEALTH_METRICS.get(name)
    text = _OTHER_DESCRIPTIONS[name] if metric is None else metric.description
    comparison = "at least" if metric is not None and metric.is_minimum else "at most"
    return dg.AssetCheckSpec(
        name,
        asset=key,
        description=f"{text} Passes if {comparison} {limit.limit:g}.",
        blocking=limit.blocking,
    )


def _check_metric(
    key: dg.AssetKey, name: str, health: "TableHealth", limit: Limit
) -> dg.AssetCheckResult:
    metric = HEALTH_METRICS[name]
    value = metric.read(health)
    if value is None:
        outcome = _Outcome(passed=True, description="Does not apply to this table.")
    else:
        passed = metric.is_within_limit(value, limit.limit)
        text = "Within the limit." if passed else f"To fix this, {metric.remedy}."
        outcome = _Outcome(passed=passed, description=text, metrics={"value": round(value, 4)})
    return _build_check_result(key, name, limit, outcome)


def _check_iceberg_metadata(key: dg.AssetKey, table: "Table", limit: Limit) -> dg.AssetCheckResult:
    from paimon_orch.table.iceberg.status import read_iceberg_status

    status = read_iceberg_status(table.stores.iceberg)
    if status is None:
        text = "Does not apply: this library publishes no Iceberg metadata of the table."
        outcome = _Outcome(passed=True, description=text)
        return _build_check_result(key, ICEBERG_METADATA, limit, outcome)
    missing = status.missing_snapshots
    # The problem may be another one than missing snapshots, such as a damaged file.
    is_tolerated = missing is not None and 0 < missing <= limit.limit
    outcome = _Outcome(
        passed=status.is_current or is_tolerated,
        description="Iceberg readers see the newest snapshot."
        if status.is_current
        else f"{status.problem}. To fix this, run sync_iceberg.",
        metrics={} if missing is None else {"value": missing},
        metadata=build_iceberg_metadata(status),
    )
    return _build_check_result(key, ICEBERG_METADATA, limit, outcome)


def _check_file_references(
    key: dg.AssetKey, table: "Table", limit: Limit, executor: "Executor"
) -> dg.AssetCheckResult:
    from paimon_orch.steps.inspection.check_table import check

    report = check(table, executor=executor)
    findings = "\n".join(f"* {finding}" for finding in report.findings[:_MAX_SHOWN_FINDINGS])
    outcome = _Outcome(
        passed=len(report.findings) <= limit.limit,
        description=findings or "All referenced files exist.",
        metrics={
            "value": len(report.findings),
            "versions": report.versions,
            "data_files": report.data_files,
        },
    )
    return _build_check_result(key, FILE_REFERENCES, limit, outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    passed: bool
    description: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Metadata = field(default_factory=dict)


def _build_check_result(
    key: dg.AssetKey, name: str, limit: Limit, outcome: _Outcome
) -> dg.AssetCheckResult:
    metrics = {**outcome.metrics, "limit": limit.limit}
    return dg.AssetCheckResult(
        passed=outcome.passed,
        asset_key=key,
        check_name=name,
        severity=_SEVERITIES[limit.severity],
        description=outcome.description,
        metadata={f"paimon/{metric}": value for metric, value in metrics.items()}
        | outcome.metadata,
    )
