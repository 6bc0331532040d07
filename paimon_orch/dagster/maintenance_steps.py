"""The functions of maintenance ops: plan a step, describe the plan, execute it."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import dagster as dg

from paimon_orch.dagster.maintenance_ops import (
    C,
    CompactManifestsConfig,
    ExpirePartitionsConfig,
    ExpireSnapshotsConfig,
    MarkDoneConfig,
    RemoveOrphanFilesConfig,
    SyncIcebergConfig,
    SyncPartitionsConfig,
)
from paimon_orch.dagster.run_metadata import Metadata, build_metadata_table
from paimon_orch.format.display import format_count
from paimon_orch.format.times import parse_cutoff, parse_duration
from paimon_orch.orchestration.step_runs import is_snapshot_id, name_figures
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.cleanup.remove_orphan_files import OrphanFilesPlan
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step import EmptyRequest, StepPlan, run_step
from paimon_orch.steps.expiration import expire_partitions as partition_step
from paimon_orch.steps.expiration import expire_snapshots as snapshot_step
from paimon_orch.steps.expiration.expire_partitions import PartitionExpirationPlan
from paimon_orch.steps.expiration.expire_snapshots import SnapshotExpirationPlan
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import compact_manifests as manifest_step
from paimon_orch.steps.maintenance.compact_manifests import ManifestCompactionPlan
from paimon_orch.steps.publication import mark_done as mark_step
from paimon_orch.steps.publication import sync_iceberg as iceberg_step
from paimon_orch.steps.publication import sync_partitions as sync_step
from paimon_orch.steps.publication.mark_done import MarkDonePlan
from paimon_orch.steps.publication.sync_iceberg import IcebergSyncPlan
from paimon_orch.steps.publication.sync_partitions import PartitionSyncPlan
from paimon_orch.table.metadata.changelog_store import ChangelogStore
from paimon_orch.table.partition_marks import format_names
from paimon_orch.table.table import Table

_MAX_SHOWN_FINDINGS = 10

P = TypeVar("P", bound=StepPlan)


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """The result of a step; in a dry run, its plan."""

    metrics: Mapping[str, object]
    """Values by name; only numbers are reported."""
    rows: Iterable[Mapping[str, Any]] = ()
    """The rows of the table that shows the plan."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns of the table that shows the plan: types by name."""

    @property
    def numeric_metrics(self) -> dict[str, int | float]:
        """The metrics that are numbers."""
        return {
            name: value for name, value in self.metrics.items() if isinstance(value, int | float)
        }

    def to_metadata(self, action: str, *, dry_run: bool) -> Metadata:
        """Return the metrics, by the keys of :func:`name_figures`, and the plan as metadata."""
        metadata: Metadata = {"paimon/summary": self._summarize(action, dry_run=dry_run)}
        metadata |= name_figures(action, self.metrics, dry_run=dry_run)
        metadata["paimon/dry_run"] = dry_run
        if self.columns:
            metadata["paimon/plan"] = build_metadata_table(self.rows, self.columns)
        return metadata

    def _summarize(self, action: str, *, dry_run: bool) -> str:
        """Return the counts that are not 0 as a sentence."""
        counts = [
            format_count(value, name.removesuffix("s"), name).replace("_", " ")
            for name, value in self.numeric_metrics.items()
            if value and isinstance(value, int) and not is_snapshot_id(name)
        ]
        mode = "Dry run of" if dry_run else "Executed"
        return f"{mode} {action}: {', '.join(counts) or 'nothing to do'}."


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep(Generic[C, P]):
    """The functions of a maintenance op."""

    plan: Callable[[Table, C, Executor, Progress], P]
    """Plans the step without changing the table."""
    describe: Callable[[Table, P], MaintenanceResult]
    """Describes a plan: returns the result of a dry run."""
    run: Callable[[Table, P, Executor, Progress], MaintenanceResult]
    """Executes a plan and returns its result."""


def _plan_snapshot_expiration(
    table: Table, config: ExpireSnapshotsConfig, *_: object
) -> SnapshotExpirationPlan:
    older_than = None
    if config.retain_for is not None:
        retained = parse_duration("retain_for", config.retain_for)
        older_than = int((time.time() - retained.total_seconds()) * 1000)
    request = snapshot_step.ExpireSnapshotsRequest(
        retain_max=config.retain_max,
        retain_min=config.retain_min,
        older_than=older_than,
        max_deletes=config.max_deletes,
    )
    return snapshot_step.plan(table, request)


def _describe_snapshot_expiration(table: Table, plan: SnapshotExpirationPlan) -> MaintenanceResult:
    kinds = {
        "snapshot": [table.stores.snapshots.path(number) for number in plan.snapshots],
        "data": [*plan.files_to_delete.data],
        "metadata": [*plan.files_to_delete.metadata, *plan.files_to_delete.lists],
    }
    if plan.changelog_plan is not None:
        files, store = plan.changelog_plan.files_to_delete, ChangelogStore(table.io, table.paths)
        kinds["changelog"] = [*map(store.path, plan.changelog_plan.changelogs), *files.data]
        kinds["metadata"] += [*files.metadata, *files.lists]
    rows = ({"kind": kind, "path": path} for kind, paths in kinds.items() for path in paths)
    figures = plan.to_dict() | {"refused": len(plan.refused)}
    return MaintenanceResult(figures, rows, {"kind": "string", "path": "string"})


def _expire_snapshots(
    table: Table, plan: SnapshotExpirationPlan, executor: Executor, progress: Progress
) -> MaintenanceResult:
    result = snapshot_step.run_expiration(table, plan, executor, progress=progress)
    return MaintenanceResult(result.to_dict() | {"refused": len(result.refused)})


def _plan_orphan_removal(
    table: Table, config: RemoveOrphanFilesConfig, executor: Executor, progress: Progress
) -> OrphanFilesPlan:
    older_than = parse_cutoff("older_than", config.older_than)
    if not config.dry_run:
        _check_not_damaged(table, executor)
    request = orphan_step.RemoveOrphanFilesRequest(
        older_than=older_than, quarantine=config.quarantine
    )
    return orphan_step.plan(table, request, executor=executor, progress=progress)


def _check_not_damaged(table: Table, executor: Executor) -> None:
    """Raise :class:`dagster.Failure` if files are missing or the metadata is inconsistent."""
    report = check(table, executor=executor)
    if not report:
        findings = "\n".join(
            clean_line(str(each)) for each in report.findings[:_MAX_SHOWN_FINDINGS]
        )
        raise dg.Failure(
            f"{table.identifier} is damaged; no orphan file was removed. "
            f"Findings: {len(report.findings)}\n{findings}",
            metadata={
                "dagster/table_name": table.identifier,
                "paimon/findings": len(report.findings),
            },
            allow_retries=False,
        )


def _describe_orphan_removal(_table: Table, plan: OrphanFilesPlan) -> MaintenanceResult:
    rows = [{"path": file.path, "bytes": file.size} for file in plan.files]
    return MaintenanceResult(plan.to_dict(), rows, {"path": "string", "bytes": "int"})


def _remove_orphan_files(
    table: Table, plan: OrphanFilesPlan, executor: Executor, progress: Progress
) -> MaintenanceResult:
    result = run_step(orphan_step.REMOVE_ORPHAN_FILES, table, plan, executor, progress=progress)
    figures = result.to_dict() | {"refused": len(result.refused)}
    return replace(_describe_orphan_removal(table, plan), metrics=figures)


def _plan_partition_expiration(
    table: Table, config: ExpirePartitionsConfig, *_: object
) -> PartitionExpirationPlan:
    retention = config.expiration_time
    request = partition_step.ExpirePartitionsRequest(
        expiration_time=None if retention is None else parse_duration("expiration_time", retention),
        strategy=config.strategy,
        max_expires=config.max_expires,
    )
    return partition_step.plan(table, request)


def _describe_partition_expiration(
    _table: Table, plan: PartitionExpirationPlan
) -> MaintenanceResult:
    figures = {"partitions": len(plan.names), "rows": plan.rows, "bytes": plan.bytes}
    return MaintenanceResult(
        figures, ({"partition": name} for name in plan.names), {"partition": "string"}
    )


def _expire_partitions(
    table: Table, plan: PartitionExpirationPlan, *_: object
) -> MaintenanceResult:
    result = run_step(partition_step.EXPIRE_PARTITIONS, table, plan)
    return _describe_partition_expiration(table, result.plan)


def _plan_manifest_compaction(
    table: Table, _config: CompactManifestsConfig, *_: object
) -> ManifestCompactionPlan:
    return manifest_step.plan(table, EmptyRequest())


def _describe_manifest_compaction(_table: Table, plan: ManifestCompactionPlan) -> MaintenanceResult:
    return MaintenanceResult(plan.to_dict())


def _compact_manifests(table: Table, plan: ManifestCompactionPlan, *_: object) -> MaintenanceResult:
    run_step(manifest_step.COMPACT_MANIFESTS, table, plan)
    after = manifest_step.plan(table, EmptyRequest())  # this plan has the remaining manifests
    return MaintenanceResult(
        {
            "manifests_before": plan.manifests,
            "manifests_after": after.manifests,
            "bytes_before": plan.bytes,
            "bytes_after": after.bytes,
        }
    )


def _plan_iceberg_sync(table: Table, _config: SyncIcebergConfig, *_: object) -> IcebergSyncPlan:
    return iceberg_step.plan(table, EmptyRequest())


def _describe_iceberg_sync(_table: Table, plan: IcebergSyncPlan) -> MaintenanceResult:
    values = plan.to_dict()
    columns = {
        "problem": "string",
        "iceberg_snapshot_id": "int",
        "latest_snapshot_id": "int",
        "metadata_path": "string",
    }
    rows = [{name: values[name] for name in columns}] if plan else []
    return MaintenanceResult(values, rows, columns)


def _sync_iceberg(table: Table, plan: IcebergSyncPlan, *_: object) -> MaintenanceResult:
    result = run_step(iceberg_step.SYNC_ICEBERG, table, plan)
    return replace(_describe_iceberg_sync(table, plan), metrics=result.to_dict())


def _plan_partition_sync(
    table: Table, config: SyncPartitionsConfig, *_: object
) -> PartitionSyncPlan:
    return sync_step.plan(table, sync_step.SyncPartitionsRequest(drop=config.drop))


def _describe_partition_sync(_table: Table, plan: PartitionSyncPlan) -> MaintenanceResult:
    states = {"missing": plan.missing, "surplus": plan.surplus}
    rows = (
        {"partition": format_names(name).rstrip("/"), "state": state}
        for state, names in states.items()
        for name in names
    )
    metrics = {"missing": len(plan.missing), "surplus": len(plan.surplus)}
    return MaintenanceResult(metrics, rows, {"partition": "string", "state": "string"})


def _sync_partitions(table: Table, plan: PartitionSyncPlan, *_: object) -> MaintenanceResult:
    result = run_step(sync_step.SYNC_PARTITIONS, table, plan)
    metrics = {"added": len(result.added), "dropped": len(result.dropped)}
    return replace(_describe_partition_sync(table, plan), metrics=metrics)


def _plan_marks(table: Table, config: MarkDoneConfig, *_: object) -> MarkDonePlan:
    return mark_step.plan(table, mark_step.MarkDoneRequest(partitions=config.partitions))


def _describe_marks(_table: Table, plan: MarkDonePlan) -> MaintenanceResult:
    rows = ({"partition": name} for name in plan.names)
    return MaintenanceResult({"partitions": len(plan.names)}, rows, {"partition": "string"})


def _mark_done(table: Table, plan: MarkDonePlan, *_: object) -> MaintenanceResult:
    return _describe_marks(table, run_step(mark_step.MARK_DONE, table, plan).plan)


MAINTENANCE_STEPS: Mapping[str, MaintenanceStep[Any, Any]] = {
    "expire_snapshots": MaintenanceStep(
        plan=_plan_snapshot_expiration,
        describe=_describe_snapshot_expiration,
        run=_expire_snapshots,
    ),
    "remove_orphan_files": MaintenanceStep(
        plan=_plan_orphan_removal,
        describe=_describe_orphan_removal,
        run=_remove_orphan_files,
    ),
    "expire_partitions": MaintenanceStep(
        plan=_plan_partition_expiration,
        describe=_describe_partition_expiration,
        run=_expire_partitions,
    ),
    "compact_manifests": MaintenanceStep(
        plan=_plan_manifest_compaction,
        describe=_describe_manifest_compaction,
        run=_compact_manifests,
    ),
    "sync_iceberg": MaintenanceStep(
        plan=_plan_iceberg_sync,
        describe=_describe_iceberg_sync,
        run=_sync_iceberg,
    ),
    "sync_partitions": MaintenanceStep(
        plan=_plan_partition_sync,
        describe=_describe_partition_sync,
        run=_sync_partitions,
    ),
    "mark_done": MaintenanceStep(
        plan=_plan_marks,
        describe=_describe_marks,
        run=_mark_done,
    ),
}
"""The functions of steps by action."""
