"""Asset checks of the rows of a table that its metadata proves, without a scan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import dagster as dg

from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.health_checks import SEVERITIES
from paimon_orch.dagster.names import check_table_name, definition_name, table_asset_key
from paimon_orch.dagster.op_specs import TableSettings, describe_op, take_settings
from paimon_orch.dagster.resources import get_catalog
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import escape_markdown

if TYPE_CHECKING:  # runs import the library
    from paimon_orch.orchestration.row_rules import RuleOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class QualitySettings(TableSettings):
    """Checks of the rows of a table."""

    never: Mapping[str, str] = field(kw_only=False)
    severity: Literal["warn", "error"] = "warn"
    blocking: bool = False


@take_settings(QualitySettings)
def build_paimon_quality_checks(settings: QualitySettings) -> dg.AssetChecksDefinition:
    """Return a check for each filter that no row of a table may match, by the name of the check.

    A check passes if the metadata of the newest snapshot proves that no row matches: null counts,
    minima and maxima, and embedded file indexes. Otherwise it fails, and says how many files may
    have such rows and how to read them. Runs require the resource ``paimon``; they read manifests
    and no data file. ``op`` has the name, tags, description and pool of the op.

    Dagster's own builders cover changes of the columns and of the row count, from the metadata of
    the assets that this package defines: ``dg.build_column_schema_change_checks`` and
    ``dg.build_metadata_bounds_checks`` with the key ``dagster/row_count``.

    >>> build_paimon_quality_checks(
    ...     "lake.orders",
    ...     {"amounts_are_positive": "amount < 0", "customers_are_known": "customer IS NULL"},
    ...     severity="error",
    ... )
    """
    table = settings.table
    check_table_name(table)
    if not settings.never:
        raise InputError(f"no quality check for {table}: pass filters that no row may match")
    asset_key = table_asset_key(table, settings.key_prefix)

    @dg.multi_asset_check(
        **describe_op(
            settings.op,
            definition_name("quality", table, settings.key_prefix),
            f"Rows that `{table}` must not have, by its metadata.",
        ),
        specs=_build_specs(settings, asset_key),
        can_subset=True,
        required_resource_keys={f"{settings.resource_prefix}paimon"},
    )
    def run_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from paimon_orch.orchestration.row_rules import evaluate_row_rules

        selected = {check_key.name for check_key in context.selected_asset_check_keys}
        rules = {name: text for name, text in settings.never.items() if name in selected}
        with raise_dagster_errors(table):
            loaded = get_catalog(context, settings.resource_prefix).load_table(table)
            outcomes = evaluate_row_rules(loaded, rules)
        for outcome in outcomes:
            yield _build_result(outcome, asset_key, SEVERITIES[settings.severity])

    return run_checks


def _build_specs(settings: QualitySettings, asset_key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [
        dg.AssetCheckSpec(
            name,
            asset=asset_key,
            description=f"Passes if no row matches `{text}`.",
            blocking=settings.blocking,
        )
        for name, text in settings.never.items()
    ]


def _build_result(
    outcome: "RuleOutcome", asset_key: dg.AssetKey, severity: dg.AssetCheckSeverity
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=outcome.is_proved,
        asset_key=asset_key,
        check_name=outcome.name,
        severity=severity,
        description=_describe(outcome),
        metadata={
            "paimon/value": outcome.files,
            "paimon/rows": outcome.rows,
            "paimon/data_files": outcome.all_files,
        },
    )


def _describe(outcome: "RuleOutcome") -> str:
    if outcome.is_proved:
        return f"The metadata of {format_count(outcome.all_files, 'file')} proves it."
    text = (
        f"{outcome.files:,} of {format_count(outcome.all_files, 'file')} may have such rows, or had "
        "them before they were deleted or replaced. To see them, read the table with the filter "
        f"{outcome.filter}; if there are none, run the compaction with strategy: full."
    )
    return escape_markdown(text)
