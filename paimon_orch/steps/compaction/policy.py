"""Decides whether to compact a partition: read amplification against bytes to rewrite."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import numpy as np

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.arrays import Indices, Int64Array
from paimon_orch.format.options.value_type import parse_duration, parse_memory
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.partition_selection import (
    PartitionRequest,
    PartitionSpecs,
    open_reader,
    read_latest_buckets,
)
from paimon_orch.steps.compaction import append, primary_key
from paimon_orch.steps.compaction.append import check_compactable
from paimon_orch.steps.compaction.plan import CompactionStrategy, CompactionUnit
from paimon_orch.steps.inspection.bucket_metrics import BucketMetrics
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.live_buckets import LiveBuckets
from paimon_orch.table.table import Table

_TABLE_OPTION_REASONS = frozenset(
    {CompactReason.OPTIMIZATION_INTERVAL, CompactReason.SIZE_THRESHOLD, CompactReason.DELETED_ROWS}
)
"""Reasons that table options define; these do not wait for a threshold of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Decides when to compact partitions that have files to compact under the table's options.

    A partition is compacted if it reaches any threshold, or after :attr:`max_wait`.
    """

    level0_files: int = 1
    """The number of files on level 0."""
    sorted_runs: int = 5
    """The maximum number of sorted runs that readers merge in a bucket."""
    small_files: int = 2
    """The number of files of an append table that are far below the target size."""
    deleted_ratio: float = 0.5
    """A full compaction rewrites a partition if more than this share of its rows is deleted.

    Retracted rows count as deleted. With the default, the remaining rows are fewer than the deleted
    ones, so the cost is proportional to the number of deletes.
    """
    max_rewrite: str | None = None
    """A size such as ``10 gb``; a partition is not compacted if this would read more bytes."""
    max_wait: str = "1 h"
    """The time after which a partition is compacted even below all thresholds."""

    def __post_init__(self) -> None:
        # Invalid values raise an error here, not in a later tick.
        _ = self.wait_millis, self.rewrite_bytes

    @property
    def wait_millis(self) -> int:
        """Return :attr:`max_wait` in milliseconds."""
        waiting = parse_duration("max_wait", self.max_wait)
        return int(waiting.total_seconds() * 1000)

    @property
    def rewrite_bytes(self) -> int | None:
        """Return :attr:`max_rewrite` in bytes."""
        if self.max_rewrite is None:
            return None
        return parse_memory("max_rewrite", self.max_rewrite)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionMetrics:
    """Read amplification of a partition, and the cost of a compaction; sizes are in bytes."""

    files: int = 0
    bytes: int = 0
    level0_files: int = 0
    sorted_runs: int = 0
    small_files: int = 0
    deleted_ratio: float = 0.0
    rewrite_files: int = 0
    rewrite_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDecision:
    """The decision of a policy about one partition."""

    partition: str
    """``k1=v1/k2=v2``, or an empty string for an unpartitioned table."""
    compact: bool
    reason: str
    metrics: CompactionMetrics
    strategy: CompactionStrategy = "minor"
    is_waiting: bool = False
    """Whether the partition has files to compact but is below all thresholds."""

    def to_dict(self) -> dict[str, object]:
        """Return the decision as JSON values."""
        verdict = self.strategy if self.compact else "not now"
        metrics = asdict(self.metrics) | {"deleted_ratio": round(self.metrics.deleted_ratio, 4)}
        return {"partition": self.partition, "compact": verdict, "reason": self.reason, **metrics}

    def __str__(self) -> str:
        verdict = f"{self.strategy} compaction" if self.compact else "not now"
        return f"{self.partition or 'the table'}: {verdict}: {self.reason}"


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


def decide(
    table: Table,
    policy: CompactionPolicy | None = None,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    overdue: Collection[str] | None = (),
    may_be_full: bool = True,
    buckets: LiveBuckets | None = None,
) -> list[CompactionDecision]:
    """Decide which partitions of the latest snapshot to compact; reads only manifests.

    :param partitions: specs such as ``"dt=a"`` or mappings, full or partial; None selects all
        partitions
    :param where: a filter on partition columns
    :param overdue: paths of partitions that have waited for ``max_wait``; None means all
    :param may_be_full: whether decisions may be full compactions
    :param buckets: the selected buckets, if the caller has read them
    """
    policy, schema = policy or CompactionPolicy(), table.schema
    if schema.primary_keys:
        create_merge_engine(schema)
    else:
        check_compactable(schema)
    if buckets is None:
        request = PartitionRequest(partitions=partitions, where=where)
        buckets = read_latest_buckets(table, request)
    if buckets is None:
        return []
    by_path = _PathMetrics.of(buckets)
    reader = open_reader(table, schema, buckets)
    minor = _plan_work(buckets, by_path, reader, "minor")
    full: Mapping[str, _PlannedWork] = {}
    if may_be_full:
        is_hollow = np.array(by_path.deleted_ratios) > policy.deleted_ratio
        hollow = buckets.take(np.flatnonzero(is_hollow[by_path.indices]))
        full = _plan_work(hollow, _PathMetrics.of(hollow), reader, "full")
    return [
        _PartitionPolicy(
            path=path,
            metrics=metrics,
            work=minor.get(path, _PlannedWork()),
            full_work=full.get(path, _PlannedWork()),
            policy=policy,
            is_overdue=overdue is None or path in overdue,
        ).decide(may_be_full=may_be_full)
        for path, metrics in zip(by_path.paths, by_path.metrics, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _PathMetrics:
    """The metrics of partitions, ordered by path, without those of a compaction."""

    paths: Sequence[str]
    indices: Indices
    """The index of the path of each bucket."""
    metrics: Sequence[CompactionMetrics]

    @property
    def deleted_ratios(self) -> list[float]:
        return [each.deleted_ratio for each in self.metrics]

    @classmethod
    def of(cls, buckets: LiveBuckets) -> "_PathMetrics":
        """Compute the metrics; raise :class:`CorruptFileError` if files of a level overlap."""
        path_by_partition = {p: format_partition(p, buckets.schema) for p in buckets.partitions}
        paths = sorted(set(path_by_partition.values()))
        index_by_path = {path: index for index, path in enumerate(paths)}
        index_by_code = np.array(
            [
                index_by_path.get(path_by_partition.get(partition, ""), -1)
                for partition in buckets.groups.files.partitions
            ],
            np.int64,
        )
        indices = index_by_code[buckets.groups.partition_codes]
        each = BucketMetrics(buckets)
        each.compute_max_sorted_runs()

        def add(values: Int64Array) -> list[int]:
            sums = np.zeros(len(paths), np.int64)
            np.add.at(sums, indices, values)
            totals: list[int] = sums.tolist()
            return totals

        runs = np.zeros(len(paths), np.int64)
        np.maximum.at(runs, indices, each.sorted_runs)
        columns = (each.files, each.bytes, each.level0_files, each.small_files)
        rows, deleted = add(each.rows), add(each.deleted_rows)
        return cls(
            paths,
            indices,
            [
                CompactionMetrics(
                    files=files,
                    bytes=size,
                    level0_files=level0_files,
                    sorted_runs=sorted_runs,
                    small_files=small_files,
                    deleted_ratio=deleted_rows / row_count if row_count else 0.0,
                )
                for files, size, level0_files, small_files, sorted_runs, row_count, deleted_rows in zip(
                    *map(add, columns), runs.tolist(), rows, deleted, strict=True
                )
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionPolicy:
    path: str
    metrics: CompactionMetrics
    work: _PlannedWork
    full_work: _PlannedWork
    policy: CompactionPolicy
    is_overdue: bool

    def decide(self, *, may_be_full: bool) -> CompactionDecision:
        work = self.work
        metrics = _add_cost(self.metrics, work)
        if may_be_full and metrics.deleted_ratio > self.policy.deleted_ratio:
            decision = self._decide_full(metrics.deleted_ratio)
            if decision is not None:
                return decision
        if not work:
            return self._wait(metrics, f"nothing to compact: {_describe_state(metrics)}")
        if self._exceeds_max_rewrite(metrics):
            limit = f"limit {self.policy.max_rewrite}"
            return self._wait(metrics, f"too much to rewrite: {_describe_cost(metrics)}, {limit}")
        cause = _describe_reached_thresholds(metrics, work, self.policy)
        if not cause and self.is_overdue:
            cause = f"the partition has waited longer than {self.policy.max_wait}"
        if cause:
            return self._compact(metrics, cause, "minor")
        reason = f"below all thresholds: {_describe_state(metrics)}; {_describe_cost(metrics)}"
        return replace(self._wait(metrics, reason), is_waiting=True)

    def _decide_full(self, deleted_ratio: float) -> CompactionDecision | None:
        """Return a full compaction, or None if there is nothing, or too much, to rewrite."""
        work = self.full_work
        metrics = _add_cost(self.metrics, work)
        if not work or self._exceeds_max_rewrite(metrics):
            return None
        limit = self.policy.deleted_ratio
        cause = f"{deleted_ratio:.0%} of the rows are deleted or retracted, more than {limit:.0%}"
        return self._compact(metrics, cause, "full")

    def _exceeds_max_rewrite(self, metrics: CompactionMetrics) -> bool:
        limit = self.policy.rewrite_bytes
        return limit is not None and metrics.rewrite_bytes > limit

    def _wait(self, metrics: CompactionMetrics, reason: str) -> CompactionDecision:
        return CompactionDecision(
            partition=self.path, compact=False, reason=reason, metrics=metrics
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


def _plan_work(
    buckets: LiveBuckets, by_path: _PathMetrics, reader: FileReader, strategy: CompactionStrategy
) -> Mapping[str, _PlannedWork]:
    """Return the work of the partitions that have any, by path."""
    units: dict[str, list[CompactionUnit]] = {}
    if not reader.schema.primary_keys:
        for part in append.plan_units(reader, buckets, strategy):
            units.setdefault(part.partition_text, []).append(part)
        return {path: _PlannedWork(found) for path, found in units.items()}
    in_buckets = buckets.take(np.flatnonzero(buckets.groups.buckets >= 0))
    now = datetime.now().astimezone()
    candidates = primary_key.select_candidates(in_buckets, strategy, now)
    for split in in_buckets.build_splits(candidates):
        unit = primary_key.plan_bucket_unit(reader, split, strategy, now)
        if unit is not None:
            units.setdefault(unit.partition_text, []).append(unit)
    postponed = np.zeros(len(by_path.paths), np.int64)
    is_postponed = buckets.groups.buckets < 0
    np.add.at(postponed, by_path.indices[is_postponed], buckets.groups.lengths[is_postponed])
    return {
        path: _PlannedWork(units.get(path, ()), postponed_files)
        for path, postponed_files in zip(by_path.paths, postponed.tolist(), strict=True)
    }


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
    return f"{metrics.rewrite_bytes / 1e6:,.1f} of {metrics.bytes / 1e6:,.1f} MB to rewrite"
