"""Asset checks of the health of a table, computed from its metadata only.

The age of the newest data is not a check but a freshness policy
(:mod:`paimon_orch.dagster.components.freshness_attributes`).
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from paimon_orch.errors import InputError, PaimonError, UnsupportedError
from paimon_orch.safe_text import escape_markdown
from paimon_orch.steps.inspection.health_metrics import HEALTH_METRICS, HealthMetric

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChecks:
    """The checks on the asset of a table, with their limits by name."""

    asset_key: dg.AssetKey
    limits: Mapping[str, Limit]

    @classmethod
    def of(
        cls, table: str, limits: Mapping[str, Limit] | None, key_prefix: Sequence[str] = ()
    ) -> "TableChecks":
        """Return the checks of a table; ``limits`` override :data:`DEFAULT_LIMITS`."""
        check_table_name(table)
        check_limits = {**DEFAULT_LIMITS, **(limits or {})}
        unknown = sorted(set(check_limits) - set(CHECK_NAMES))
        if unknown:
            raise InputError(
                f"unknown checks for {table}: {', '.join(unknown)}; "
                f"the checks are {', '.join(CHECK_NAMES)}"
            )
        return cls(asset_key=table_asset_key(table, key_prefix), limits=check_limits)

    def build_specs(self) -> list[dg.AssetCheckSpec]:
        """Return the specs of all checks."""
        return [
            _build_check_spec(self.asset_key, name, limit) for name, limit in self.limits.items()
        ]

    def evaluate(self, table: "Table", names: Iterable[str]) -> Iterator[dg.AssetCheckResult]:
        """Evaluate checks, except ``file_references``, from the metadata of the newest snapshot."""
        from paimon_orch.steps.inspection.health import TableHealth, compute_health

        selected = set(names)
        metrics = sorted(selected & HEALTH_METRICS.keys())
        health = compute_health(table) if metrics else TableHealth()
        for name in metrics:
            yield _check_metric(self.asset_key, name, table, health, self.limits[name])
        if ICEBERG_METADATA in selected:
            yield _check_iceberg_metadata(self.asset_key, table, self.limits[ICEBERG_METADATA])

    def build_evaluations(
        self, table: "Table", log: logging.Logger
    ) -> list[dg.AssetCheckEvaluation]:
        """Evaluate all checks except ``file_references``; the events need no run of the checks.

        If the table cannot be read, there is a warning in place of evaluations, because the caller
        has finished its own work.
        """
        try:
            return [self._build_evaluation(result) for result in self.evaluate(table, self.limits)]
        except PaimonError as error:
            log.warning("%s: the checks were not evaluated: %s", table.identifier, error)
            return []

    def _build_evaluation(self, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
        assert result.check_name is not None
        return dg.AssetCheckEvaluation(
            asset_key=self.asset_key,
            check_name=result.check_name,
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
            blocking=self.limits[result.check_name].blocking,
        )


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
    only metadata. The compaction asset and the sensor evaluate the other checks too, if they are
    given the same ``limits``.

    >>> build_paimon_table_checks(
    ...     "lake.orders",
    ...     limits={"level0_backlog": Limit(limit=20, severity="error", blocking=True)},
    ... )
    """
    checks = TableChecks.of(table, limits, key_prefix)
    has_references = FILE_REFERENCES in checks.limits

    @dg.multi_asset_check(
        name=definition_name("checks", table, key_prefix),
        description=f"Health of `{table}`, computed from its metadata.",
        specs=checks.build_specs(),
        can_subset=True,
        required_resource_keys={"paimon", *(["spark"] if has_references else [])},
    )
    def run_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = {check_key.name for check_key in context.selected_asset_check_keys}
        with raise_dagster_errors(table):
            loaded = context.resources.paimon.load_table(table)
            yield from checks.evaluate(loaded, selected)
            if FILE_REFERENCES in selected:
                executor = build_maintenance_executor(
                    context, context.resources.spark, ExecutorChoice.auto
                )
                limit = checks.limits[FILE_REFERENCES]
                yield _check_file_references(checks.asset_key, loaded, limit, executor)

    return run_checks


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
    key: dg.AssetKey, name: str, table: "Table", health: "TableHealth", limit: Limit
) -> dg.AssetCheckResult:
    metric = HEALTH_METRICS[name]
    value = metric.read(health)
    if value is None:
        outcome = _Outcome(passed=True, description="Does not apply to this table.")
    else:
        passed = metric.is_within_limit(value, limit.limit)
        text = "Within the limit." if passed else f"To fix this, {_find_remedy(metric, table)}."
        outcome = _Outcome(passed=passed, description=text, metrics={"value": round(value, 4)})
    return _build_check_result(key, name, limit, outcome)


def _find_remedy(metric: HealthMetric, table: "Table") -> str:
    """Return the remedy; it names the compaction only if there is something to compact."""
    if metric.remedy_if_compacted is None:
        return metric.remedy
    from paimon_orch.steps.compaction.compact import CompactRequest, plan

    try:
        has_work = bool(plan(table, CompactRequest()))
    except UnsupportedError:  # the compaction itself reports this
        return metric.remedy
    return metric.remedy if has_work else metric.remedy_if_compacted


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
        else f"{escape_markdown(str(status.problem))}. To fix this, run sync_iceberg.",
        metrics={} if missing is None else {"value": missing},
        metadata=build_iceberg_metadata(status),
    )
    return _build_check_result(key, ICEBERG_METADATA, limit, outcome)


def _check_file_references(
    key: dg.AssetKey, table: "Table", limit: Limit, executor: "Executor"
) -> dg.AssetCheckResult:
    from paimon_orch.steps.inspection.check_table import check

    report = check(table, executor=executor)
    findings = "\n".join(
        f"* {escape_markdown(str(finding))}" for finding in report.findings[:_MAX_SHOWN_FINDINGS]
    )
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
    metadata: Metadata = {f"paimon/{metric}": value for metric, value in outcome.metrics.items()}
    metadata["paimon/limit"] = f"{limit.limit:g}"  # text, as a plot of a constant shows nothing
    return dg.AssetCheckResult(
        passed=outcome.passed,
        asset_key=key,
        check_name=name,
        severity=_SEVERITIES[limit.severity],
        description=outcome.description,
        metadata=metadata | outcome.metadata,
    )
