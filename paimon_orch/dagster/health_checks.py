"""Asset checks of the health of a table, computed from its metadata only.

The age of the newest data is not a check but a freshness policy
(:mod:`paimon_orch.dagster.components.freshness_attributes`).
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import Attributes
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.external_reports import build_iceberg_metadata
from paimon_orch.dagster.names import check_table_name, definition_name, table_asset_key
from paimon_orch.dagster.op_specs import TableSettings, describe_op, take_settings
from paimon_orch.dagster.resources import ExecutorChoice, get_catalog, get_spark
from paimon_orch.dagster.run_metadata import Metadata
from paimon_orch.dagster.spark_links import build_maintenance_executor
from paimon_orch.errors import CorruptFileError, PaimonError
from paimon_orch.orchestration.health_limits import (
    DAMAGE,
    DEFAULT_LIMITS,
    FILE_REFERENCES,
    ICEBERG_METADATA,
    HealthOutcome,
    check_file_references,
    describe_check,
    describe_damage,
    evaluate_health,
    reject_unknown_checks,
)

if TYPE_CHECKING:  # runs import the library
    from paimon_orch.steps.common.executor import Executor
    from paimon_orch.table.table import Table

SEVERITIES = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}
_MAX_RECORDS = 10  # checks that are planned, or whose run was killed, have no evaluation


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


_DEFAULT_LIMITS: Mapping[str, Limit] = {
    name: Limit(limit=limit) for name, limit in DEFAULT_LIMITS.items()
} | {
    name: Limit(limit=DEFAULT_LIMITS[name], severity="error") for name in (ICEBERG_METADATA, DAMAGE)
}
_DAMAGED_FILES = "paimon/damaged_files"
"""The metadata by which the next evaluation of the check of damage knows the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChecks:
    """The checks on the asset of a table, with their limits by name."""

    asset_key: dg.AssetKey
    limits: Mapping[str, Limit]

    @classmethod
    def of(
        cls, table: str, limits: Mapping[str, Limit] | None, key_prefix: Sequence[str] = ()
    ) -> "TableChecks":
        """Return the checks of a table; ``limits`` override the default ones."""
        check_table_name(table)
        check_limits = {**_DEFAULT_LIMITS, **(limits or {})}
        reject_unknown_checks(table, check_limits)
        return cls(asset_key=table_asset_key(table, key_prefix), limits=check_limits)

    def build_specs(self) -> list[dg.AssetCheckSpec]:
        """Return the specs of all checks."""
        return [
            dg.AssetCheckSpec(
                name,
                asset=self.asset_key,
                description=describe_check(name, limit.limit),
                blocking=limit.blocking,
            )
            for name, limit in self.limits.items()
        ]

    def evaluate(
        self, table: "Table", names: Iterable[str], instance: dg.DagsterInstance
    ) -> Iterator[dg.AssetCheckResult]:
        """Evaluate checks, except ``file_references``, from the metadata of the newest snapshot.

        The instance knows the damaged files that steps have met; these are read again.
        """
        limits = {name: self.limits[name].limit for name in names}
        damaged = self._recall_damage(instance) if DAMAGE in limits else []
        return map(self._build_result, evaluate_health(table, limits, damaged))

    def _recall_damage(self, instance: dg.DagsterInstance) -> list[str]:
        """Return the files that were damaged in the last evaluation of the check of damage."""
        key = dg.AssetCheckKey(self.asset_key, DAMAGE)
        records = instance.event_log_storage.get_asset_check_execution_history(key, _MAX_RECORDS)
        evaluations = (record.evaluation for record in records)
        last = next(
            (each for each in evaluations if isinstance(each, dg.AssetCheckEvaluation)), None
        )
        value = None if last is None else last.metadata.get(_DAMAGED_FILES)
        if not isinstance(value, dg.JsonMetadataValue) or not isinstance(value.value, list):
            return []
        return [str(each) for each in value.value]

    def check_file_references(self, table: "Table", executor: "Executor") -> dg.AssetCheckResult:
        """Evaluate the check ``file_references``."""
        limit = self.limits[FILE_REFERENCES].limit
        return self._build_result(check_file_references(table, limit, executor))

    def build_evaluations(
        self,
        table: "Table",
        log: logging.Logger,
        instance: dg.DagsterInstance,
        failure: Exception | None = None,
    ) -> list[dg.AssetCheckEvaluation]:
        """Evaluate all checks except ``file_references``; the events need no run of the checks.

        If the table cannot be read, there is a warning in place of evaluations, because the caller
        has finished its own work. A damaged file that is met then, or is the ``failure`` of the
        caller, fails the check of damage until the file can be read or is not needed any more.
        """
        results = dict[str | None, dg.AssetCheckResult]()
        try:
            for result in self.evaluate(table, self.limits, instance):
                results[result.check_name] = result
        except (PaimonError, OSError) as error:
            log.warning("%s: the checks were not evaluated: %s", table.identifier, error)
            failure = failure or error
        if isinstance(failure, CorruptFileError) and DAMAGE in self.limits:
            files = dict.fromkeys([failure.path, *self._recall_damage(instance)])
            outcome = describe_damage(table, [*files], self.limits[DAMAGE].limit)
            results[DAMAGE] = self._build_result(outcome)
        return [self._build_evaluation(result) for result in results.values()]

    def _build_result(self, outcome: HealthOutcome) -> dg.AssetCheckResult:
        limit = self.limits[outcome.name]
        metadata: Metadata = {f"paimon/{name}": value for name, value in outcome.figures.items()}
        metadata["paimon/limit"] = f"{limit.limit:g}"  # text, as a plot of a constant shows nothing
        if outcome.damaged_files:
            metadata[_DAMAGED_FILES] = dg.MetadataValue.json([*outcome.damaged_files])
        if outcome.iceberg is not None:
            metadata |= build_iceberg_metadata(outcome.iceberg)
        return dg.AssetCheckResult(
            passed=outcome.passed,
            asset_key=self.asset_key,
            check_name=outcome.name,
            severity=SEVERITIES[limit.severity],
            description=outcome.description,
            metadata=metadata,
        )

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings(TableSettings):
    """Checks of the health of a table."""

    limits: Mapping[str, Limit] | None = None


@take_settings(CheckSettings)
def build_paimon_table_checks(settings: CheckSettings) -> dg.AssetChecksDefinition:
    """Return checks on the asset of a table; ``limits`` override the default ones by name.

    The check names are the keys of :data:`HEALTH_METRICS`, ``iceberg_metadata``, ``damage`` and
    ``file_references``. The check ``damage`` fails after a run has met a damaged file, until an
    evaluation can read the file, or the newest snapshot does not need it. The check
    ``iceberg_metadata`` passes if Iceberg readers see LATEST, or if the table is not published as
    Iceberg metadata.

    The check ``file_references`` runs only if ``limits`` contains it: it verifies all snapshots,
    tags and changelogs of the table, and its limit is the number of findings, usually 0. The
    executor of the resource ``spark`` does its work, or this process if the manifests are small.

    Runs require the resource ``paimon`` and, for ``file_references``, also ``spark``. They read
    only metadata. The names of the resources begin with ``resource_prefix``. The compaction asset
    and the sensor evaluate the other checks too, if they are given the same ``limits``. ``op`` has the name, tags, description and pool of the op.

    >>> build_paimon_table_checks(
    ...     "lake.orders",
    ...     limits={"level0_backlog": Limit(limit=20, severity="error", blocking=True)},
    ... )
    """
    table = settings.table
    checks = TableChecks.of(table, settings.limits, settings.key_prefix)
    resources = ["paimon", *(["spark"] if FILE_REFERENCES in checks.limits else [])]

    @dg.multi_asset_check(
        **describe_op(
            settings.op,
            definition_name("checks", table, settings.key_prefix),
            f"Health of `{table}`, computed from its metadata.",
        ),
        specs=checks.build_specs(),
        can_subset=True,
        required_resource_keys={settings.resource_prefix + name for name in resources},
    )
    def run_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = {check_key.name for check_key in context.selected_asset_check_keys}
        with raise_dagster_errors(table):
            loaded = get_catalog(context, settings.resource_prefix).load_table(table)
            yield from checks.evaluate(loaded, selected, context.instance)
            if FILE_REFERENCES in selected:
                executor = build_maintenance_executor(
                    context, get_spark(context, settings.resource_prefix), ExecutorChoice.auto
                )
                yield checks.check_file_references(loaded, executor)

    return run_checks
