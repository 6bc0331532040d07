"""The job that maintains all tables of a catalog, and its metadata."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from pydantic import Field

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.dagster.components.warehouse_attributes import declare_field
from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.dagster.jobs import NO_TAGS, build_op_job
from paimon_orch.dagster.names import check_table_name, table_asset_key
from paimon_orch.dagster.op_specs import DEFAULT_OP
from paimon_orch.dagster.resources import (
    RUN_EXECUTOR_HELP,
    ExecutorChoice,
    PaimonCatalogResource,
    SparkSessionResource,
    get_catalog,
    get_spark,
)
from paimon_orch.dagster.run_config import AllowanceConfig, build_config_class, report_stale_options
from paimon_orch.dagster.run_metadata import Metadata, build_metadata_table
from paimon_orch.dagster.spark_links import build_executor, build_spark_link_metadata
from paimon_orch.errors import InputError
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.autopilot.action_outcome import ActionOutcome, MaintenancePrices, OutcomeKind
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.autopilot.decisions import DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest

if TYPE_CHECKING:  # a run imports the steps, and the loading of definitions does not
    from paimon_orch.steps.autopilot.maintenance_plan import MaintenancePlan
    from paimon_orch.steps.autopilot.run_maintenance import MaintenanceResult

MAX_DECISIONS = 2_000
"""The maximum number of decisions in the metadata of a run."""
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_DECISION_COLUMNS = {
    "table": "string",
    "partition": "string",
    "action": "string",
    "state": "string",
    "score": "float",
    "rewrite_bytes": "int",
    "saved_requests": "int",
    "saved_bytes": "int",
    "reason": "string",
}
_OUTCOME_COLUMNS = {
    "table": "string",
    "partition": "string",
    "action": "string",
    "outcome": "string",
    "bytes_read": "int",
    "bytes_written": "int",
    "rows": "int",
    "seconds": "float",
    "cost": "float",
    "reason": "string",
    "error": "string",
}


class WarehouseRunConfig(AllowanceConfig):
    """Run config of the maintenance of many tables."""

    dry_run: bool = Field(
        default=True, description="Report what the run would do, without changing tables."
    )
    executor: ExecutorChoice = Field(default=ExecutorChoice.auto, description=RUN_EXECUTOR_HELP)
    max_bytes: str | None = declare_field(MaintenanceBudgets, "max_bytes")
    max_bytes_per_hour: str | None = declare_field(MaintenanceBudgets, "max_bytes_per_hour")
    max_concurrent: int = declare_field(MaintenanceBudgets, "max_concurrent")
    hours: str | None = declare_field(MaintenanceBudgets, "hours")
    min_score: float = declare_field(MaintenanceBudgets, "min_score")

    def build_budgets(self) -> MaintenanceBudgets:
        """Return the budgets of the run; raises :class:`InputError` for invalid values."""
        return MaintenanceBudgets(
            **{field.name: getattr(self, field.name) for field in fields(MaintenanceBudgets)}
        )


def build_warehouse_job(  # noqa: PLR0913 - keywords of a factory
    name: str,
    request: MaintenanceRequest,
    prices: MaintenancePrices,
    *,
    key_prefix: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    op: OpSpec = DEFAULT_OP,
    run_tags: Mapping[str, str] = NO_TAGS,
    resource_prefix: str = "",
) -> dg.JobDefinition:
    """Return a job that plans and runs the maintenance of all tables that a request selects.

    The tables are listed by each run. ``config`` is the default run config of the op, in addition
    to the budgets of the request.
    """
    assert request.history_table is not None
    config = asdict(request.budgets) | dict(config or {})
    config_class = build_config_class(WarehouseRunConfig, config)
    history = table_asset_key(request.history_table, key_prefix)

    def perform(context: dg.OpExecutionContext) -> None:
        paimon, spark = get_catalog(context, resource_prefix), get_spark(context, resource_prefix)
        run_config = config_class(**context.op_config)
        with raise_dagster_errors(str(request.history_table), context):
            budgeted = replace(request, budgets=run_config.build_budgets())
            run = _WarehouseRun(context, budgeted, key_prefix)
            run.execute(run_config, paimon, spark, prices)

    return build_op_job(
        perform,
        name,
        op.model_copy(update={"pool": op.pool or f"paimon/{name}"}),
        alias="maintain",
        config=config_class,
        resources=(f"{resource_prefix}paimon", f"{resource_prefix}spark"),
        description="Maintains all tables of the catalog within budgets: compactions, clustering, "
        "manifest compactions, file indexes and the expiration of snapshots, ranked by the read "
        f"cost saved for a rewritten byte. Records each action in `{request.history_table}`.",
        run_tags=run_tags,
        job_config={"ops": {"maintain": {"config": config}}},
        metadata={"paimon/history": dg.MetadataValue.asset(history)},
    )


def build_warehouse_schedule(
    job: dg.JobDefinition,
    cron: str,
    *,
    execution_timezone: str,
    default_status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    """Return a schedule of the job that does not start a run while another one is unfinished.

    Its runs have the config of the job with ``dry_run: false``, because a run deletes snapshots.
    """
    config = (job.run_config or {})["ops"]["maintain"]["config"]
    run_config = {"ops": {"maintain": {"config": {**config, "dry_run": False}}}}

    @dg.schedule(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone=execution_timezone,
        default_status=default_status,
        description=f"Runs {job.name} unless a run of it is unfinished.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        unfinished = dg.RunsFilter(job_name=job.name, statuses=_UNFINISHED)
        runs = context.instance.get_runs(unfinished, limit=1)
        if runs:
            return dg.SkipReason(f"run {runs[0].run_id} of {job.name} is unfinished")
        return dg.RunRequest(run_config=run_config)

    return schedule


class _WarehouseRun:
    """One run: plans, executes, and reports to the log, to the history and to each table."""

    def __init__(
        self,
        context: dg.OpExecutionContext,
        request: MaintenanceRequest,
        key_prefix: Sequence[str],
    ) -> None:
        self._context, self._request, self._key_prefix = context, request, key_prefix
        assert request.history_table is not None
        self._history = table_asset_key(request.history_table, key_prefix)

    def execute(
        self,
        config: WarehouseRunConfig,
        paimon: PaimonCatalogResource,
        spark: SparkSessionResource,
        prices: MaintenancePrices,
    ) -> None:
        """Plan, and unless this is a dry run, execute the plan; fail if an action failed."""
        from paimon_orch.steps.autopilot.maintenance_plan import plan_maintenance
        from paimon_orch.steps.autopilot.run_maintenance import run_maintenance

        catalog, executor = paimon.catalog(), build_executor(self._context, spark, config.executor)
        catalog.allowances |= config.allowances
        planned = plan_maintenance(catalog, self._request, executor)
        self._report_plan(planned)
        if config.dry_run:
            return
        # Dagster's log is not written by several threads.
        result = run_maintenance(catalog, planned, executor, prices=prices)
        self._report_result(catalog, result, build_spark_link_metadata(spark))

    def _report_plan(self, plan: "MaintenancePlan") -> None:
        for action in plan.actions:
            self._context.log.info("%s", clean_line(str(action)))
        for skip in plan.skips:
            if skip.state is DecisionState.REFUSED:
                self._context.log.warning("%s", clean_line(str(skip)))
        event = dg.AssetObservation(
            self._history, description="maintenance plan", metadata=build_plan_metadata(plan)
        )
        self._context.log_event(event)

    def _report_result(
        self, catalog: Catalog, result: "MaintenanceResult", links: Metadata
    ) -> None:
        by_table: dict[str, list[ActionOutcome]] = {}
        for outcome in result.outcomes:
            by_table.setdefault(outcome.decision.table, []).append(outcome)
        for table, outcomes in by_table.items():
            if _can_be_asset(table):
                key = table_asset_key(table, self._key_prefix)
                metadata = build_outcome_metadata(outcomes)
                if any(outcome.kind is OutcomeKind.DONE for outcome in outcomes):
                    metadata |= report_stale_options(self._context, catalog.table(table).stores)
                event = dg.AssetObservation(key, description="maintenance", metadata=metadata)
                self._context.log_event(event)
        metadata = build_outcome_metadata(result.outcomes) | links
        if result.run_id is not None:
            metadata["paimon/history_run_id"] = result.run_id
            self._context.log_event(dg.AssetMaterialization(self._history, metadata=metadata))
        failed = [clean_line(str(o)) for o in result.outcomes if o.kind is OutcomeKind.FAILED]
        if failed:
            raise dg.Failure(
                f"{len(failed)} of {len(result.outcomes)} actions failed; the others were "
                f"executed. The first: {failed[0]}",
                metadata={"paimon/outcomes": metadata["paimon/outcomes"]},
                allow_retries=False,
            )


def build_plan_metadata(plan: "MaintenancePlan") -> Metadata:
    """Return the numbers of a plan, and its decisions as a table: chosen, refused, skipped."""
    decisions: list[MaintenanceDecision] = [*plan.actions, *plan.skips]
    states = {
        f"paimon/{state.replace(' ', '_')}": count for state, count in plan.count_states().items()
    }
    metadata: Metadata = {
        "paimon/tables": len(plan.tables),
        **states,
        "paimon/planned_bytes": plan.rewrite_bytes,
        "paimon/decisions": _build_table(_DECISION_COLUMNS, decisions),
    }
    if plan.available_bytes is not None:
        metadata["paimon/available_bytes"] = plan.available_bytes
    return metadata


def build_outcome_metadata(outcomes: Sequence[ActionOutcome]) -> Metadata:
    """Return the sums of executed actions, which Dagster plots, and the actions as a table."""
    effects = [outcome.effect for outcome in outcomes]
    return {
        "paimon/actions": len(outcomes),
        "paimon/failed_actions": sum(o.kind is OutcomeKind.FAILED for o in outcomes),
        "paimon/bytes_read": sum(effect.bytes_read for effect in effects),
        "paimon/bytes_written": sum(effect.bytes_written for effect in effects),
        "paimon/bytes_deleted": sum(effect.bytes_deleted for effect in effects),
        "paimon/rows_written": sum(effect.rows for effect in effects),
        "paimon/estimated_saved_bytes": sum(o.decision.saved_bytes for o in outcomes),
        "paimon/duration_seconds": round(sum(o.seconds for o in outcomes), 3),
        "paimon/cost": round(sum(o.cost for o in outcomes), 6),
        "paimon/outcomes": _build_table(_OUTCOME_COLUMNS, outcomes),
    }


def _build_table(
    columns: Mapping[str, str], items: Iterable[MaintenanceDecision | ActionOutcome]
) -> dg.TableMetadataValue:
    values = (item.to_dict() for item in items)
    rows = ({name: row[name] for name in columns} for row in values)
    return build_metadata_table(rows, columns, max_records=MAX_DECISIONS)


def _can_be_asset(table: str) -> bool:
    try:
        check_table_name(table)
    except InputError:
        return False
    return True
