"""The work of the compaction and file index assets; only runs import it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paimon_orch.dagster.external_reports import report_iceberg_snapshot, report_missing_partitions
from paimon_orch.dagster.maintenance_assets import (
    CompactionConfig,
    FileIndexConfig,
    MaintenanceAssetRun,
    Work,
)
from paimon_orch.dagster.names import TableAssetKind
from paimon_orch.dagster.run_config import report_stale_options
from paimon_orch.dagster.run_metadata import Metadata, build_row_count_metadata, to_metadata
from paimon_orch.dagster.spark_links import build_progress_logger
from paimon_orch.orchestration.run_reports import (
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
from paimon_orch.steps.maintenance.rewrite_file_index import plan as plan_index


def compact_partitions(
    run: MaintenanceAssetRun[CompactionConfig], keys: Sequence[str]
) -> dict[str, Metadata]:
    """Compact partitions in one commit, and return their metadata by key."""
    partition_keys, name = run.get_partition_keys(keys), " ".join([run.table.identifier, *keys])
    specs = [partition_keys.parse(key) for key in keys] if partition_keys else None
    request = CompactRequest(partitions=specs, strategy=run.config.strategy.value)
    before, after, result = _compact(run, name, request)
    external = _report_compaction(run, name, result)
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
    run: MaintenanceAssetRun[CompactionConfig], name: str, request: CompactRequest
) -> tuple[TableReport, TableReport, CompactionResult]:
    """Plan a compaction, log the plan, and execute it; moves postponed rows first.

    Returns the files of the table before and after it, and its result.
    """
    table, executor, state = run.table, run.executor, run.state
    before = inspect_snapshot(state, state.snapshot)
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
    result = run_compaction(table, plan, executor, progress=progress)
    if result.snapshot is None:
        return before, before, result
    return before, inspect_snapshot(state, result.snapshot), result


def _report_compaction(
    run: MaintenanceAssetRun[CompactionConfig], name: str, result: CompactionResult
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
    context, table, partition_keys = run.context, run.table, run.get_partition_keys(keys)
    specs = [partition_keys.parse(key) for key in keys] if partition_keys else None
    plan = plan_index(table, RewriteFileIndexRequest(partitions=specs))
    name = " ".join([table.identifier, *keys])
    if plan:
        text = "%s: plan to rewrite the indexes of %d files of snapshot %d"
        context.log.info(text, name, sum(len(unit.files) for unit in plan.units), plan.snapshot_id)
        progress = build_progress_logger(context, f"rewrite file indexes of {name}")
        result = run_step(REWRITE_FILE_INDEX, table, plan, run.executor, progress=progress)
        context.log.info("%s: added file indexes to %d files", name, result.files)
        external = report_stale_options(context, run.state)
    else:
        result, external = FileIndexRewriteResult(), {}
        context.log.info("%s: all files have the indexes of the table's options", name)
    external |= report_iceberg_snapshot(context, run.state)
    external |= report_missing_partitions(context, run.state)
    if partition_keys is None:
        return {"": to_metadata(build_index_report(plan, result)) | external}
    return {
        key: to_metadata(
            build_index_report(
                plan, result, partition_keys.path_of(key), include_totals=len(keys) == 1
            )
        )
        | external
        for key in keys
    }


WORK: Mapping[TableAssetKind, Work[Any]] = MappingProxyType(
    {
        TableAssetKind.COMPACTION: compact_partitions,
        TableAssetKind.FILE_INDEX: rewrite_partition_indexes,
    }
)
"""The functions that process partitions, by asset."""
