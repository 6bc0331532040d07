"""A sensor that requests compactions after commits of any engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, Self

import dagster as dg

from paimon_orch.dagster.health_checks import Limit, TableChecks
from paimon_orch.dagster.names import compaction_asset_key, definition_name, table_asset_key
from paimon_orch.dagster.op_specs import RequestSettings, take_settings
from paimon_orch.dagster.partitions_definitions import DynamicPartitionsRequest
from paimon_orch.dagster.resources import PaimonCatalogResource, rename_catalog_parameter
from paimon_orch.dagster.run_metadata import (
    build_column_schema,
    build_decisions_metadata,
    build_row_count_metadata,
    to_metadata,
)
from paimon_orch.dagster.run_requests import CompactionTarget, limit_pools
from paimon_orch.errors import PaimonError, raise_if_temporary
from paimon_orch.format.display import format_count
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.changes_since_cursor import ChangesSinceCursor
from paimon_orch.orchestration.cursor import Cursor, now_millis
from paimon_orch.orchestration.planned_runs import PlannedRun
from paimon_orch.orchestration.run_reports import RunReport
from paimon_orch.orchestration.table_tick import (
    explain_no_run,
    find_compaction_refusal,
    postpone_runs,
)
from paimon_orch.orchestration.table_watch import AwaitedTableError, TableEvaluation, TableWatch
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

SnapshotEvent = dg.AssetObservation | dg.AssetMaterialization

MAX_REQUESTS_PER_TICK = 25
_MAX_LOGGED_DECISIONS = 50
_MAX_MANIFEST_BYTES = 16 << 20
"""Ticks of all sensors share one process, so they do not read more than this for checks and sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTable(RequestSettings):
    """A table of a sensor: how its commits are evaluated and reported."""

    max_snapshots_per_tick: int = 100
    checks: TableChecks | Mapping[str, Limit] | None = None
    """The checks, or their limits by name."""
    report_as: Literal["observation", "materialization"] = "observation"
    fresh_within: timedelta | None = None
    """The age above which a commit is reported as an observation; None means any age."""
    request_runs: bool = True

    def __post_init__(self) -> None:
        _ = self.table_checks  # raises an error for unknown checks

    @property
    def table_checks(self) -> TableChecks | None:
        """The checks that ticks evaluate."""
        if not isinstance(self.checks, Mapping):
            return self.checks
        return TableChecks.of(self.table, self.checks, self.key_prefix)

    @property
    def watch(self) -> TableWatch:
        """How changes are found and decided."""
        return TableWatch(
            table=self.table,
            policy=self.policy or CompactionPolicy(),
            max_snapshots=self.max_snapshots_per_tick,
            allowances=self.allowances,
            compacts_partitions=self.partitions_def is not None,
        )

    def plan_tick(
        self, context: dg.SensorEvaluationContext, evaluation: TableEvaluation, *, is_first: bool
    ) -> "TableTick | None":
        """Return the events and runs for the changes of the table, or None without a snapshot.

        The decisions are logged. ``is_first`` says that there is no cursor of the table.
        """
        changes = evaluation.changes
        if changes is None:
            return None
        target = CompactionTarget(self, evaluation.table, evaluation.state, context)
        _log_decisions(context, target.table, changes, is_first=is_first)
        is_materialized = self.report_as == "materialization" and self._is_fresh(changes)
        events = _build_asset_events(target, changes, materialized=is_materialized)
        plan = TableTick.plan if self.request_runs else TableTick.plan_report
        tick = plan(target, changes, events)
        checks = self.table_checks
        if checks and not tick.runs and (changes.data_snapshots or is_first):
            evaluations = _evaluate_checks(context, checks, target)
            tick = replace(tick, events=(*tick.events, *evaluations))
        return tick

    def _is_fresh(self, changes: ChangesSinceCursor) -> bool:
        """Return whether the newest commit is young enough for an event that has the present time.

        Otherwise old data would become fresh when the sensor starts.
        """
        if self.fresh_within is None or not changes.data_snapshots:
            return True
        age = timedelta(milliseconds=now_millis() - changes.data_snapshots[-1].time_millis)
        return age <= self.fresh_within


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTick:
    """The changes of a table in one tick, with the runs that they need."""

    target: CompactionTarget
    changes: ChangesSinceCursor
    events: Sequence[SnapshotEvent | dg.AssetCheckEvaluation]
    partitions_requests: Sequence[DynamicPartitionsRequest]
    no_run_reason: str
    runs: Sequence[PlannedRun] = ()

    @classmethod
    def plan(
        cls, target: CompactionTarget, changes: ChangesSinceCursor, events: Sequence[SnapshotEvent]
    ) -> Self:
        """Return the runs for the partitions to compact.

        If the table's options do not allow compaction, there is no run, since it would fail; the
        table is evaluated again after the ``max_wait`` of the policy.
        """
        partitions_requests = target.build_partitions_requests(
            [decision.partition for decision in changes.decisions], changes.touched_partitions
        )
        runs = target.plan_runs([d for d in changes.decisions if d.compact], partitions_requests)
        refusal = find_compaction_refusal(target.state) if runs else ""
        if refusal:
            target.evaluation_context.log.warning("%s", refusal)
            runs = []
        return cls(
            target=target,
            changes=changes,
            events=events,
            partitions_requests=partitions_requests,
            no_run_reason=refusal or explain_no_run(target.table, changes),
            runs=runs,
        )

    @classmethod
    def plan_report(
        cls, target: CompactionTarget, changes: ChangesSinceCursor, events: Sequence[SnapshotEvent]
    ) -> Self:
        """Return no runs, and the newest event for each partition that changed."""
        paths = [decision.partition for decision in changes.decisions]
        requests = target.build_partitions_requests(paths, changes.touched_partitions)
        newest = list(events[-1:])
        if newest and target.partitions_def is not None:
            keys = target.find_partition_keys(paths, requests).values()
            newest = [newest[0]._replace(partition=key) for key in sorted(keys)]
        return cls(
            target=target,
            changes=replace(changes, cursor=replace(changes.cursor, waiting={})),
            events=newest,
            partitions_requests=requests,
            no_run_reason=f"{target.table.identifier}: reported the changes up to snapshot "
            f"{changes.cursor.handled.snapshot_id}",
        )

    @property
    def needs_pool_limit(self) -> bool:
        """Whether runs of the table may start together before Dagster limits its pool.

        After the first evaluation, a user may launch a backfill before the sensor requests a run.
        """
        is_partitioned = self.target.partitions_def is not None
        return len(self.runs) > 1 or bool(is_partitioned and self.changes.whole_table_reason)

    def build_result(self, limit: int) -> dg.SensorResult:
        """Return the result with at most ``limit`` run requests.

        Other requests remain pending in the cursor.
        """
        target, cursor = self.target, self.changes.cursor
        suffixes = cursor.pending if target.partitions_def else {"": self.changes.run_key_suffix}
        requests = [
            target.build_run_request(
                run, run.build_run_key(target.table.identifier, cursor.table, suffixes)
            )
            for run in self.runs[:limit]
        ]
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else self.no_run_reason,
            cursor=postpone_runs(cursor, self.runs[limit:], suffixes).to_json(),
            dynamic_partitions_requests=self.partitions_requests,
            asset_events=self.events,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSettings(WatchedTable):
    """A sensor of one table."""

    minimum_interval_seconds: int = 30
    max_requests_per_tick: int = MAX_REQUESTS_PER_TICK
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED


@take_settings(SensorSettings)
def build_latest_snapshot_sensor(settings: SensorSettings) -> dg.SensorDefinition:
    """Return a sensor that requests compaction of the partitions that new snapshots changed.

    The sensor evaluates snapshots of the kinds APPEND and OVERWRITE, of all writers. ``policy``
    decides about each changed partition; a tick logs all decisions and adds them to the observation
    of the table. Partitions that are neighbors in ``partitions_def`` are compacted by one run, at
    most ``max_partitions_per_run`` of them; without ``partitions_def``, one run compacts the whole
    table. A tick without a new snapshot sends one request to a catalog that makes the
    commits itself; with other catalogs, it loads the table and reads one snapshot. The sensor keeps
    the partitions of a dynamic ``partitions_def`` equal to those of the table. The arguments must
    equal those of :func:`build_compaction_asset`. Ticks require the resource ``paimon``, whose name
    begins with ``resource_prefix``, and never start Spark.

    The sensor reports each snapshot that changed data as an observation of the table's asset. With
    ``report_as="materialization"``, it reports only the newest one, as a materialization, which
    Dagster needs to evaluate freshness and automation conditions. Dagster takes the time of the
    event as the time of the data, so a commit that is older than ``fresh_within``, the window of
    the freshness policy, is an observation: a sensor that starts does not make old data fresh. With
    ``request_runs=False``, it requests no runs, and reports the newest snapshot for each partition
    that changed.

    With ``checks``, the limits of :func:`~paimon_orch.dagster.build_paimon_table_checks`, the
    first tick and each tick with new data evaluate these checks of the table, except
    ``file_references``, if they request no run, which evaluates them too, and if the manifests
    are smaller than 16 MB.

    ``run_tags`` are the tags of the requested runs, or a function that returns them from what the
    run will do, so that it asks for as much memory as it needs:

    >>> run_tags = lambda run: {"team": "large" if run.bytes > 10 << 30 else "small"}
    """
    return build_watch_sensor(
        settings,
        minimum_interval_seconds=settings.minimum_interval_seconds,
        max_requests_per_tick=settings.max_requests_per_tick,
        default_status=settings.default_status,
    )


def build_watch_sensor(
    watched: WatchedTable,
    *,
    minimum_interval_seconds: int,
    max_requests_per_tick: int = MAX_REQUESTS_PER_TICK,
    default_status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Return the sensor of one table."""
    table, key_prefix = watched.table, watched.key_prefix
    target_asset = dg.AssetSelection.assets(compaction_asset_key(table, key_prefix))

    @dg.sensor(
        name=definition_name("latest_snapshot", table, key_prefix),
        description=f"{describe_action(watched)} of `{table}` that new snapshots changed.",
        target=target_asset if watched.request_runs else None,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )
    @rename_catalog_parameter(watched.resource_prefix)
    def latest_snapshot(
        context: dg.SensorEvaluationContext, paimon: PaimonCatalogResource
    ) -> dg.SensorResult | dg.SkipReason:
        cursor = Cursor.from_json(context.cursor)
        try:
            evaluation = watched.watch.evaluate(paimon.catalog(), cursor)
        except AwaitedTableError as error:
            return dg.SkipReason(str(error))
        if evaluation is None:
            number = None if cursor is None else cursor.handled.snapshot_id
            return dg.SkipReason(f"{table}: snapshot {number} was already handled")
        tick = watched.plan_tick(context, evaluation, is_first=context.cursor is None)
        if tick is None:
            return dg.SkipReason(f"{table} has no snapshot yet")
        if tick.needs_pool_limit:
            limit_pools(context.instance, [tick.target.pool])
        return tick.build_result(max_requests_per_tick)

    return latest_snapshot


def describe_action(watched: WatchedTable) -> str:
    """Return the first words of the description of a sensor."""
    is_requesting = watched.request_runs
    return "Requests compaction of partitions" if is_requesting else "Reports the partitions"


def _log_decisions(
    context: dg.SensorEvaluationContext,
    table: Table,
    changes: ChangesSinceCursor,
    *,
    is_first: bool,
) -> None:
    """Log the decisions, at most :data:`_MAX_LOGGED_DECISIONS` of them."""
    if changes.whole_table_reason:
        log = context.log.info if is_first else context.log.warning
        log("%s: %s; evaluating all partitions", table.identifier, changes.whole_table_reason)
    for decision in changes.decisions[:_MAX_LOGGED_DECISIONS]:
        context.log.info("%s: %s", table.identifier, clean_line(str(decision)))
    if len(changes.decisions) > _MAX_LOGGED_DECISIONS:
        context.log.info("and %d other partitions", len(changes.decisions) - _MAX_LOGGED_DECISIONS)


def _evaluate_checks(
    context: dg.SensorEvaluationContext, checks: TableChecks, target: CompactionTarget
) -> list[dg.AssetCheckEvaluation]:
    """Return evaluations of the checks, or none if the manifests are large."""
    snapshot = target.state.snapshot
    assert snapshot is not None, "the tick has seen a snapshot"
    if not has_small_manifests(target.state, snapshot):
        return []
    return checks.build_evaluations(target.table, context.log, context.instance)


def has_small_manifests(state: TableState, snapshot: Snapshot) -> bool:
    """Return whether the manifests of a snapshot are small enough to read them in a tick."""
    manifests = state.manifests.manifests(snapshot)
    return sum(meta.file_size for meta in manifests) <= _MAX_MANIFEST_BYTES


def _build_asset_events(
    target: CompactionTarget, changes: ChangesSinceCursor, *, materialized: bool
) -> list[SnapshotEvent]:
    """Return an event with a new data version for each snapshot that changed data."""
    key = table_asset_key(target.table.identifier, target.settings.key_prefix)
    event = dg.AssetMaterialization if materialized else dg.AssetObservation
    snapshots = changes.data_snapshots[-1:] if materialized else changes.data_snapshots
    return [
        event(
            key,
            metadata=_build_snapshot_metadata(target, changes, snapshot),
            tags={"dagster/data_version": str(snapshot.id)},
        )
        for snapshot in snapshots
    ]


def _build_snapshot_metadata(
    target: CompactionTarget, changes: ChangesSinceCursor, snapshot: Snapshot
) -> dict[str, Any]:
    """Return the metadata of a snapshot; for the newest one, also that of its table."""
    commit = f"Snapshot {snapshot.id} ({snapshot.commit_kind.value})"
    metadata: dict[str, Any] = {
        "paimon/summary": f"{commit}.",
        "paimon/snapshot_id": str(snapshot.id),  # text, as Dagster plots numbers
        "paimon/commit_kind": snapshot.commit_kind.value,
        "paimon/commit_user": clean_line(snapshot.commit_user),
        "paimon/physical_rows": snapshot.total_record_count,
        "paimon/commit_time": dg.MetadataValue.timestamp(snapshot.time_millis / 1000),
    }
    if snapshot is changes.data_snapshots[-1]:
        metadata["paimon/summary"] = f"{commit}{_summarize_decisions(target.state, changes)}."
        metadata |= build_decisions_metadata(changes.decisions)
        metadata |= _build_table_metadata(target, snapshot)
    return metadata


def _summarize_decisions(state: TableState, changes: ChangesSinceCursor) -> str:
    if not changes.decisions:
        return ""
    due = sum(decision.compact for decision in changes.decisions)
    if not state.schema.partition_keys:
        return f": {'a' if due else 'no'} compaction is due"
    return f": compaction is due in {due} of {format_count(len(changes.decisions), 'partition')}"


def _build_table_metadata(target: CompactionTarget, snapshot: Snapshot) -> dict[str, Any]:
    """Return the columns and the path of a table; if its manifests are small, also its size."""
    from paimon_orch.steps.inspection.inspect import inspect_snapshot  # definitions load without

    metadata: dict[str, Any] = {
        "dagster/uri": clean_line(target.table.paths.root),
        "dagster/column_schema": build_column_schema(target.state.schema),
    }
    try:
        if not has_small_manifests(target.state, snapshot):
            return metadata
        report = inspect_snapshot(target.state, snapshot)
    except PaimonError as error:  # expired meanwhile; the other metadata is known
        raise_if_temporary(error)
        return metadata
    size = to_metadata(RunReport(files=report.file_count, bytes=report.bytes))
    return metadata | size | build_row_count_metadata(report, partition=False)
