"""The work of the compaction and file index assets; only runs import it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paimon_orch.dagster.asset_runs.asset_run import (
    CompactionConfig,
    FileIndexConfig,
    MaintenanceAssetRun,
    Work,
)
from paimon_orch.dagster.external_reports import report_iceberg_snapshot, report_missing_partitions
from paimon_orch.dagster.names import TableAssetKind
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_metadata import Metadata, build_row_count_metadata, to_metadata
from paimon_orch.dagster.spark_links import build_progress_logger
from paimon_orch.errors import MissingFileError, NotFoundError
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.reported_steps import ReportedCompaction
from paimon_orch.orchestration.run_reports import (
    CompactionOutcome,
    build_compaction_report,
    build_index_report,
    filter_result,
)
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.compaction.compact import (
    CompactionResult,
    CompactRequest,
    move_postponed_and_replan,
    run_compaction,
)
from paimon_orch.steps.compaction.compact import plan as plan_compaction
from paimon_orch.steps.inspection.inspect import TableReport, inspect_snapshot
from paimon_orch.steps.maintenance.rewrite_file_index import (
    REWRITE_FILE_INDEX,
    FileIndexRewriteResult,
    RewriteFileIndexRequest,
)
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


def compact_partitions(
    run: MaintenanceAssetRun[CompactionConfig], keys: Sequence[str]
) -> dict[str, Metadata]:
    """Compact partitions in one commit, and return their metadata by key."""
    partition_keys, name = run.get_partition_keys(keys), " ".join([run.table.identifier, *keys])
    before, after, result, links = _compact(run, name, keys)
    external = links | _report_compaction(run, name, result)
    external |= report_iceberg_snapshot(run.context, run.state)
    external |= report_missing_partitions(run.context, run.state)
    if partition_keys is None:
        report = build_compaction_report(before, after, result, partition=False)
        return {
            "": to_metadata(report) | build_row_count_metadata(after, partition=False) | external
        }
    metadata = {}
    for key in keys:
        path = partition_keys.path_of(key)
        state = after.select_partition(path)
        report = build_compaction_report(
            before.select_partition(path),
            state,
            filter_result(result, path),
            partition=True,
            include_totals=len(keys) == 1,
        )
        metadata[key] = to_metadata(report) | build_row_count_metadata(state, partition=True)
        metadata[key] |= external
    return metadata


def _compact(
    run: MaintenanceAssetRun[CompactionConfig], name: str, keys: Sequence[str]
) -> tuple[TableReport, TableReport, CompactionOutcome, Metadata]:
    """Compact partitions in this process or elsewhere.

    Returns the files of the table before and after it, its result, and links to its process.
    """
    before, links = _inspect_present(run.table, state=run.state), Metadata()
    if run.remote is None:
        result = _plan_and_compact(run, name, keys)
        if result.snapshot is None:
            return before, before, result, links
        return before, _inspect_committed(run, result.snapshot), result, links
    compaction = ReportedCompaction()
    arguments = _select_partitions(run, before, keys)
    if arguments is not None:
        arguments["strategy"] = run.config.strategy.value
        report, links = run.remote.run(
            "compact", run.table, arguments, executor=_choose_executor(run)
        )
        compaction = ReportedCompaction.of(report)
    if compaction.snapshot_id is None:
        return before, before, compaction, links
    return before, _inspect_committed(run, compaction.snapshot_id), compaction, links


@repeat_if_expired
def _inspect_present(table: Table, *, state: TableState | None) -> TableReport:
    state = state or table.load()
    return inspect_snapshot(state, state.snapshot)


def _inspect_committed(run: MaintenanceAssetRun[Any], committed: Snapshot | int) -> TableReport:
    """Return the report on a snapshot of this run, or on the newest one if it has expired."""
    try:
        if not isinstance(committed, Snapshot):
            committed = run.state.snapshots.get(committed)
        return inspect_snapshot(run.state, committed)
    except (MissingFileError, NotFoundError):
        return _inspect_present(run.table, state=None)


def _choose_executor(run: MaintenanceAssetRun[Any]) -> ExecutorChoice:
    """Return where another process runs the work; ``auto`` is Spark if there is a cluster."""
    auto, choice = ExecutorChoice.auto, run.config.executor
    choice = run.spark.executor if choice is auto else choice
    return ExecutorChoice.spark if choice is auto and run.spark.cluster else choice


def _select_partitions(
    run: MaintenanceAssetRun[Any], present: TableReport, keys: Sequence[str]
) -> dict[str, object] | None:
    """Return the argument ``partitions`` of a step, or None if no partition has files.

    The step refuses partitions without files. Without keys, it processes the whole table.
    """
    partition_keys = run.get_partition_keys(keys)
    if partition_keys is None:
        return {}
    specs = [
        partition_keys.parse(key)
        for key in keys
        if present.select_partition(partition_keys.path_of(key)).file_count
    ]
    return {"partitions": specs} if specs else None


def _plan_and_compact(
    run: MaintenanceAssetRun[CompactionConfig], name: str, keys: Sequence[str]
) -> CompactionResult:
    """Plan a compaction, log the plan, and execute it; moves postponed rows first."""
    table, executor, state = run.table, run.executor, run.state
    request = CompactRequest(partitions=_parse_keys(run, keys), strategy=run.config.strategy.value)
    progress = build_progress_logger(run.context, f"compact {name}")
    plan = plan_compaction(table, request, executor=executor, state=state)
    if plan.postponed:
        run.context.log.info("%s: plan to move %d postponed rows", name, plan.postponed.rows)
        plan = move_postponed_and_replan(table, plan, executor, progress=progress)
    if plan:
        run.context.log.info(
            "%s: plan to compact %d files of %d buckets, %d bytes, of snapshot %d",
            name,
            len(plan.inputs),
            plan.buckets,
            plan.bytes,
            plan.snapshot_id,
        )
    return run_compaction(table, plan, executor, progress=progress)


def _parse_keys(run: MaintenanceAssetRun[Any], keys: Sequence[str]) -> list[dict[str, str]] | None:
    """Return the specs of the partitions of a run, or None for the whole table."""
    partition_keys = run.get_partition_keys(keys)
    return None if partition_keys is None else [partition_keys.parse(key) for key in keys]


def _report_compaction(
    run: MaintenanceAssetRun[CompactionConfig], name: str, result: CompactionOutcome
) -> Metadata:
    """Log the result of a compaction; return metadata about stale external systems."""
    if result.snapshot_id is None:
        run.context.log.info("%s: nothing to compact", name)
        return {}
    stale = report_stale_options(run.context, run.state)
    run.context.log.info(
        "%s: compacted %d buckets in %.1f s, snapshot %d",
        name,
        result.buckets,
        result.duration_seconds,
        result.snapshot_id,
    )
    return stale


def rewrite_partition_indexes(
    run: MaintenanceAssetRun[FileIndexConfig], keys: Sequence[str]
) -> dict[str, Metadata]:
    """Add file indexes to the files of partitions, and return their metadata by key."""
    context, partition_keys = run.context, run.get_partition_keys(keys)
    name = " ".join([run.table.identifier, *keys])
    rewrite = _rewrite_indexes_here if run.remote is None else _rewrite_indexes_elsewhere
    plan, outcome, units, external = rewrite(run, name, keys)
    if outcome["snapshot_id"] is None:
        context.log.info("%s: all files have the indexes of the table's options", name)
    else:
        context.log.info("%s: added file indexes to %d files", name, outcome["files"])
        external = external | report_stale_options(context, run.state)
    external |= report_iceberg_snapshot(context, run.state)
    external |= report_missing_partitions(context, run.state)
    if partition_keys is None:
        return {"": to_metadata(build_index_report(plan, outcome, units)) | external}
    return {
        key: to_metadata(
            build_index_report(
                plan, outcome, units, partition_keys.path_of(key), include_totals=len(keys) == 1
            )
        )
        | external
        for key in keys
    }


_IndexRewrite = tuple[Mapping[str, Any], Mapping[str, Any], Sequence[Mapping[str, Any]], Metadata]
"""The plan, the outcome and its units as JSON values, and links to the process."""


def _rewrite_indexes_here(
    run: MaintenanceAssetRun[FileIndexConfig], name: str, keys: Sequence[str]
) -> _IndexRewrite:
    """Plan a rewrite, log the plan, and execute it."""
    context, table = run.context, run.table
    request = RewriteFileIndexRequest(partitions=_parse_keys(run, keys))
    plan = REWRITE_FILE_INDEX.plan(table, request)
    result = FileIndexRewriteResult()
    if plan:
        text = "%s: plan to rewrite the indexes of %d files of snapshot %d"
        context.log.info(text, name, sum(len(unit.files) for unit in plan.units), plan.snapshot_id)
        progress = build_progress_logger(context, f"rewrite file indexes of {name}")
        result = run_step(REWRITE_FILE_INDEX, table, plan, run.executor, progress=progress)
    return plan.to_dict(), result.to_dict(), [unit.to_dict() for unit in result.units], {}


def _rewrite_indexes_elsewhere(
    run: MaintenanceAssetRun[FileIndexConfig],
    _name: str,
    keys: Sequence[str],
) -> _IndexRewrite:
    assert run.remote is not None
    present = _inspect_present(run.table, state=run.state)
    arguments = _select_partitions(run, present, keys)
    if arguments is None:
        plan = {"snapshot_id": present.snapshot_id, "skipped_files": 0}
        return plan, FileIndexRewriteResult().to_dict(), [], {}
    report, links = run.remote.run(
        "rewrite-file-index", run.table, arguments, executor=_choose_executor(run)
    )
    return report["plan"], report["outcome"], report["plan"]["units"], links


WORK: Mapping[TableAssetKind, Work[Any]] = MappingProxyType(
    {
        TableAssetKind.COMPACTION: compact_partitions,
        TableAssetKind.FILE_INDEX: rewrite_partition_indexes,
    }
)
"""The functions that process partitions, by asset."""
