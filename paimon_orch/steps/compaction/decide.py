"""Decides whether to compact a partition: read amplification against bytes to rewrite."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import add
from typing import Any

import numpy as np

from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.manifest.live_files import NO_TIME
from paimon_orch.merge.tree.cluster_strategy import ClusterStrategy
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.bucket_scan import (
    BucketScan,
    JudgedBuckets,
    Judgment,
    scan_latest_buckets,
)
from paimon_orch.steps.common.partition_request import PartitionRequest, check_partitions_exist
from paimon_orch.steps.compaction.clustering import find_idle_limit
from paimon_orch.steps.compaction.kind_compaction import find_compaction
from paimon_orch.steps.compaction.plan import CompactionUnit
from paimon_orch.steps.compaction.policy import (
    CompactionDecision,
    CompactionMetrics,
    CompactionPolicy,
    CompactionStrategy,
)
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.steps.inspection.health import TableHealth
from paimon_orch.steps.inspection.health_metrics import METRIC_LIMITS, Problem, find_problems
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.partition_selection import PartitionSpecs, open_reader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

_TABLE_OPTION_REASONS = frozenset(
    {CompactReason.OPTIMIZATION_INTERVAL, CompactReason.SIZE_THRESHOLD, CompactReason.DELETED_ROWS}
)
"""Reasons that table options define; these do not wait for a threshold of the policy."""


@dataclass(frozen=True, slots=True)
class _PlannedWork:
    """The work of a compaction with one strategy in a partition."""

    units: Sequence[CompactionUnit] = ()
    postponed_files: int = 0

    @property
    def files(self) -> int:
        return sum(unit.files for unit in self.units)

    @property
    def bytes(self) -> int:
        return sum(unit.bytes for unit in self.units)

    @property
    def reasons(self) -> set[CompactReason]:
        return {unit.reason for unit in self.units}

    def __bool__(self) -> bool:
        return bool(self.units) or self.postponed_files > 0


@repeat_if_expired
def decide(
    table: Table,
    policy: CompactionPolicy | None = None,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    overdue: Collection[str] | None = (),
    may_be_full: bool = True,
    scan: BucketScan | None = None,
) -> list[CompactionDecision]:
    """Decide which partitions of the latest snapshot to compact; reads only manifests.

    :param partitions: specs such as ``"dt=a"`` or mappings, full or partial; None selects all
        partitions
    :param where: a filter on partition columns
    :param overdue: paths of partitions that have waited for ``max_wait``; None means all
    :param may_be_full: whether decisions may be full compactions
    :param scan: the buckets of the partitions, if the caller needs them too

    Raises :class:`NotFoundError` for a partition without files.
    """
    state = scan.state if scan is not None else table.load(with_lists=True)
    find_compaction(state.schema).check_compactable(state.schema)
    scan = scan or _scan_partitions(state, partitions, where)
    policy = policy or CompactionPolicy()
    return [] if scan is None else _decide_all(scan, policy, overdue, may_be_full=may_be_full)


def _decide_all(
    scan: BucketScan,
    policy: CompactionPolicy,
    overdue: Collection[str] | None,
    *,
    may_be_full: bool,
) -> list[CompactionDecision]:
    judged = scan.judge(PolicyJudge(now=scan.now))
    by_path = _merge_metrics(judged.values)
    if has_data_evolution(scan.schema):  # its compactions keep deleted rows
        by_path = {path: replace(each, deleted_ratio=0.0) for path, each in by_path.items()}
    minor = _plan_work(scan, judged, "minor")
    newest = _collect_newest_files(judged.values) if may_be_full else {}
    idle_before = find_idle_limit(scan.now, policy.idle_time)
    idle = {path for path, time in newest.items() if idle_before and time < idle_before}
    hollow = {p for p, metrics in by_path.items() if metrics.deleted_ratio > policy.deleted_ratio}
    # the options leave these partitions as they are, although readers pay for them
    kept = {p for p, metrics in by_path.items() if p not in minor and find_problems_of(metrics)}
    full = _plan_full_work(scan, frozenset(kept | hollow | idle if may_be_full else kept))
    return [
        _PartitionPolicy(
            path=path,
            metrics=metrics,
            work=minor.get(path, _PlannedWork()),
            full_work=full.get(path, _PlannedWork()),
            policy=policy,
            is_overdue=overdue is None or path in overdue,
            is_idle=path in idle,
            may_become_idle=idle_before is not None and path in newest,
            skips_level_0=scan.schema.skips_level_0,
            command=scan.state.label.format_command("compact"),
        ).decide(may_be_full=may_be_full)
        for path, metrics in by_path.items()
    ]


def _scan_partitions(
    state: TableState, partitions: PartitionSpecs | None, where: str | None
) -> BucketScan | None:
    scan = scan_latest_buckets(state, PartitionRequest(partitions=partitions, where=where))
    if partitions is not None:
        selection = PartitionRequest(partitions=partitions)
        all_buckets = scan_latest_buckets(state, selection) if where else scan
        check_partitions_exist(state, partitions, all_buckets)
    return scan


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyJudge:
    """Chooses the buckets that may have work, and computes metrics of all partitions."""

    now: datetime
    strategy: CompactionStrategy = "minor"
    paths: frozenset[str] | None = None
    """The paths of the partitions to judge; None means all."""

    def __call__(self, buckets: LiveBuckets) -> Judgment:
        """Judge some buckets; raise :class:`CorruptFileError` if files of a level overlap."""
        paths = {p: format_partition(p, buckets.schema) for p in buckets.partitions}
        if self.paths is not None:
            is_selected = np.array(
                [paths.get(each) in self.paths for each in buckets.groups.files.partitions], bool
            )
            buckets = buckets.take(np.flatnonzero(is_selected[buckets.groups.partition_codes]))
        kind = find_compaction(buckets.schema)
        chosen = kind.select_buckets(buckets, self.strategy, self.now)
        return Judgment(chosen=chosen, values=_compute_metrics(buckets, paths))


_SUMS = ("files", "bytes", "level0_files", "small_files", "rows", "deleted_rows", "postponed")


def _compute_metrics(buckets: LiveBuckets, paths: Mapping[bytes, str]) -> dict[str, list[Any]]:
    """Return columns with one item per path."""
    distinct = sorted({paths[partition] for partition in buckets.partitions})
    index_by_path = {path: index for index, path in enumerate(distinct)}
    index_by_code = np.array(
        [
            index_by_path.get(paths.get(partition, ""), -1)
            for partition in buckets.groups.files.partitions
        ],
        np.int64,
    )
    indices = index_by_code[buckets.groups.partition_codes]
    each = BucketMetrics(buckets)
    each.compute_max_sorted_runs()
    runs = np.zeros(len(distinct), np.int64)
    np.maximum.at(runs, indices, each.sorted_runs)
    columns: dict[str, list[Any]] = {"path": distinct, "sorted_runs": runs.tolist()}
    for name in _SUMS:
        is_postponed = buckets.groups.buckets < 0
        values = (
            np.where(is_postponed, each.files, 0) if name == "postponed" else getattr(each, name)
        )
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, indices, values)
        columns[name] = sums.tolist()
    if buckets.schema.is_clustered:
        newest = np.full(len(distinct), NO_TIME)
        times = ClusterStrategy.of(buckets.schema).find_newest_files(buckets.groups)
        np.maximum.at(newest, indices, times)
        columns["newest"] = newest.tolist()
    return columns


def _collect_newest_files(parts: Sequence[Mapping[str, list[Any]]]) -> dict[str, int]:
    """Return the times of the newest files below the highest level, by path of partition.

    Partitions without such files are left out; only tables with incremental clustering have others.
    """
    newest: dict[str, int] = {}
    for part in parts:
        for path, time in zip(part["path"], part.get("newest", ()), strict=False):
            if time != NO_TIME:
                newest[path] = max(time, newest.get(path, time))
    return newest


def _merge_metrics(parts: Sequence[Mapping[str, list[Any]]]) -> dict[str, CompactionMetrics]:
    """Return the metrics of partitions, ordered by path, without those of a compaction."""
    sums: dict[str, list[int]] = {}
    for part in parts:
        columns = [part["sorted_runs"], *(part[name] for name in _SUMS)]
        for path, *numbers in zip(part["path"], *columns, strict=True):
            known = sums.get(path)
            if known is None:
                sums[path] = numbers
            else:
                runs = max(known[0], numbers[0])
                sums[path] = [runs, *map(add, known[1:], numbers[1:])]
    metrics = {}
    for path in sorted(sums):
        sorted_runs, files, size, level0_files, small_files, rows, deleted, _ = sums[path]
        metrics[path] = CompactionMetrics(
            files=files,
            bytes=size,
            level0_files=level0_files,
            sorted_runs=sorted_runs,
            small_files=small_files,
            deleted_ratio=deleted / rows if rows else 0.0,
        )
    return metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionPolicy:
    path: str
    metrics: CompactionMetrics
    work: _PlannedWork
    full_work: _PlannedWork
    policy: CompactionPolicy
    is_overdue: bool
    is_idle: bool
    may_become_idle: bool
    skips_level_0: bool
    command: str
    """The command line of a compaction of the table."""

    def decide(self, *, may_be_full: bool) -> CompactionDecision:
        work = self.work
        metrics = _add_cost(self.metrics, work)
        if may_be_full and metrics.deleted_ratio > self.policy.deleted_ratio:
            share = f"{metrics.deleted_ratio:.0%} of the rows are deleted or retracted"
            decision = self._decide_full(f"{share}, more than {self.policy.deleted_ratio:.0%}")
            if decision is not None:
                return decision
        if self.is_idle:
            decision = self._decide_full(f"no new files for {self.policy.cluster_idle_for}")
            if decision is not None:
                return decision
        if not work:
            return self._wait(metrics, self._explain_no_work(metrics))
        if self._exceeds_max_rewrite(metrics):
            return self._decide_large(metrics)
        cause = _describe_reached_thresholds(metrics, work, self.policy)
        if not cause and self.is_overdue:
            cause = f"the partition has waited longer than {self.policy.max_wait}"
        if cause:
            return self._compact(metrics, cause, "minor")
        reason = f"below all thresholds: {_describe_state(metrics)}; {_describe_cost(metrics)}"
        return replace(self._wait(metrics, reason), is_waiting=True)

    def _explain_no_work(self, metrics: CompactionMetrics) -> str:
        problems, full = find_problems_of(metrics), self.full_work
        if not problems or not full:
            return f"nothing to compact: {_describe_state(metrics)}"
        partition = f" --partitions {shlex.quote(self.path)}" if self.path else ""
        return (
            f"nothing to compact by the table's options, although {'; '.join(map(str, problems))}: "
            f"`{self.command} --strategy full{partition}` would rewrite "
            f"{format_count(full.files, 'file')} of {format_size(full.bytes)}"
        )

    def _decide_large(self, metrics: CompactionMetrics) -> CompactionDecision:
        """Decide about more bytes than the limit; only rows that readers do not see exceed it."""
        unseen_files = metrics.level0_files if self.skips_level_0 else 0
        is_unseen = unseen_files > 0 or self.work.postponed_files > 0
        if is_unseen and self.is_overdue:
            cause = f"rows are not visible to batch readers for more than {self.policy.max_wait}"
            return self._compact(metrics, cause, "minor")
        reason = f"too much to rewrite: {_describe_cost(metrics)}, limit {self.policy.max_rewrite}"
        return replace(self._wait(metrics, reason), is_waiting=is_unseen)

    def _decide_full(self, cause: str) -> CompactionDecision | None:
        """Return a full compaction, or None if there is nothing, or too much, to rewrite."""
        work = self.full_work
        metrics = _add_cost(self.metrics, work)
        if not work or self._exceeds_max_rewrite(metrics):
            return None
        return self._compact(metrics, cause, "full")

    def _exceeds_max_rewrite(self, metrics: CompactionMetrics) -> bool:
        limit = self.policy.rewrite_bytes
        return limit is not None and metrics.rewrite_bytes > limit

    def _wait(self, metrics: CompactionMetrics, reason: str) -> CompactionDecision:
        return CompactionDecision(
            partition=self.path,
            compact=False,
            reason=reason,
            metrics=metrics,
            may_become_idle=self.may_become_idle,
        )

    def _compact(
        self, metrics: CompactionMetrics, cause: str, strategy: CompactionStrategy
    ) -> CompactionDecision:
        return CompactionDecision(
            partition=self.path,
            compact=True,
            reason=f"{cause}; {_describe_cost(metrics)}",
            metrics=metrics,
            strategy=strategy,
        )


def sum_metrics(parts: Sequence[CompactionMetrics]) -> CompactionMetrics:
    """Return the metrics of several partitions together; their shares of rows count by size."""
    size = sum(each.bytes for each in parts)
    deleted = sum(each.deleted_ratio * each.bytes for each in parts)
    return CompactionMetrics(
        files=sum(each.files for each in parts),
        bytes=size,
        level0_files=sum(each.level0_files for each in parts),
        sorted_runs=max((each.sorted_runs for each in parts), default=0),
        small_files=sum(each.small_files for each in parts),
        deleted_ratio=deleted / size if size else 0.0,
    )


def find_problems_of(metrics: CompactionMetrics) -> list[Problem]:
    """Return the metrics of partitions that are beyond the limits of doctor."""
    health = TableHealth(
        files=metrics.files,
        bytes=metrics.bytes,
        small_files=metrics.small_files,
        level0_files=metrics.level0_files,
        max_sorted_runs=metrics.sorted_runs,
        deleted_ratio=metrics.deleted_ratio,
    )
    return find_problems(health, METRIC_LIMITS)


def _plan_work(
    scan: BucketScan, judged: JudgedBuckets, strategy: CompactionStrategy
) -> Mapping[str, _PlannedWork]:
    """Return the work of the partitions that have any, by path."""
    reader = open_reader(scan.state, scan.schema, judged.chosen)
    units: dict[str, list[CompactionUnit]] = {}
    planned = find_compaction(scan.schema).plan_units(reader, scan, judged.chosen, strategy)
    for unit in planned:
        units.setdefault(unit.partition_text, []).append(unit)
    postponed: dict[str, int] = {}
    for part in judged.values:
        for path, files in zip(part["path"], part["postponed"], strict=True):
            if files:
                postponed[path] = postponed.get(path, 0) + files
    return {
        path: _PlannedWork(units.get(path, ()), postponed.get(path, 0))
        for path in units.keys() | postponed.keys()
    }


def _plan_full_work(scan: BucketScan, paths: frozenset[str]) -> Mapping[str, _PlannedWork]:
    if not paths:
        return {}
    judge = PolicyJudge(now=scan.now, strategy="full", paths=paths)
    return _plan_work(scan, scan.judge(judge), "full")


def _add_cost(metrics: CompactionMetrics, work: _PlannedWork) -> CompactionMetrics:
    return replace(metrics, rewrite_files=work.files, rewrite_bytes=work.bytes)


def _describe_reached_thresholds(
    metrics: CompactionMetrics, work: _PlannedWork, policy: CompactionPolicy
) -> str:
    """Describe the thresholds that the partition reaches; return "" if it reaches none."""
    by_options = sorted(work.reasons & _TABLE_OPTION_REASONS)
    reached = [f"required by the table's options ({', '.join(by_options)})"] if by_options else []
    if metrics.level0_files >= policy.level0_files and metrics.level0_files:
        reached.append(f"level-0 files: {metrics.level0_files} (threshold {policy.level0_files})")
    if metrics.sorted_runs >= policy.sorted_runs:
        reached.append(f"sorted runs: {metrics.sorted_runs} (threshold {policy.sorted_runs})")
    if CompactReason.SMALL_FILES in work.reasons and metrics.small_files >= policy.small_files:
        reached.append(f"small files: {metrics.small_files} (threshold {policy.small_files})")
    return ", ".join(reached)


def _describe_state(metrics: CompactionMetrics) -> str:
    return (
        f"level-0 files: {metrics.level0_files}, sorted runs: {metrics.sorted_runs}, "
        f"small files: {metrics.small_files}, "
        f"deleted or retracted rows: {metrics.deleted_ratio:.0%}"
    )


def _describe_cost(metrics: CompactionMetrics) -> str:
    return f"{format_size(metrics.rewrite_bytes)} of {format_size(metrics.bytes)} to rewrite"
