"""Decides whether to compact a partition: read amplification against bytes to rewrite."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.options.value_type import parse_duration, parse_memory
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.steps.common.partition_selection import (
    PartitionRequest,
    PartitionSpecs,
    open_reader,
    plan_splits,
)
from paimon_orch.steps.compaction.append import check_compactable, plan_bucket_units
from paimon_orch.steps.compaction.plan import CompactionStrategy, CompactionUnit
from paimon_orch.steps.compaction.primary_key import plan_bucket_unit
from paimon_orch.steps.inspection.health import (
    compute_deleted_ratio,
    compute_max_sorted_runs,
    count_small_files,
)
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit
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
) -> list[CompactionDecision]:
    """Decide which partitions of the latest snapshot to compact; reads only manifests.

    :param partitions: specs such as ``"dt=a"`` or mappings, full or partial; None selects all
        partitions
    :param where: a filter on partition columns
    :param overdue: paths of partitions that have waited for ``max_wait``; None means all
    :param may_be_full: whether decisions may be full compactions
    """
    policy, schema = policy or CompactionPolicy(), table.schema
    if schema.primary_keys:
        create_merge_engine(schema)
    else:
        check_compactable(schema)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return []
    request = PartitionRequest(partitions=partitions, where=where)
    splits = plan_splits(table, schema, snapshot, request)
    reader = open_reader(table, schema, splits)
    return [
        _PartitionPolicy(
            path=path,
            splits=group,
            reader=reader,
            policy=policy,
            is_overdue=overdue is None or path in overdue,
        ).decide(may_be_full=may_be_full)
        for path, group in _group_by_partition(splits, schema)
    ]


def _group_by_partition(
    splits: Sequence[BucketSplit], schema: TableSchema
) -> Iterator[tuple[str, list[BucketSplit]]]:
    paths = {p: format_partition(p, schema) for p in {split.partition for split in splits}}
    ordered = sorted(splits, key=lambda split: paths[split.partition])
    for path, group in groupby(ordered, key=lambda split: paths[split.partition]):
        yield path, list(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionPolicy:
    path: str
    splits: Sequence[BucketSplit]
    reader: FileReader
    policy: CompactionPolicy
    is_overdue: bool

    def decide(self, *, may_be_full: bool) -> CompactionDecision:
        work = _plan_work(self.splits, self.reader, "minor")
        metrics = _compute_metrics(self.splits, self.reader.schema, work)
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
        work = _plan_work(self.splits, self.reader, "full")
        metrics = _compute_metrics(self.splits, self.reader.schema, work)
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
    splits: Sequence[BucketSplit], reader: FileReader, strategy: CompactionStrategy
) -> _PlannedWork:
    if not reader.schema.primary_keys:
        return _PlannedWork(
            [unit for split in splits for unit in plan_bucket_units(reader, split, strategy)]
        )
    units = [plan_bucket_unit(reader, split, strategy) for split in splits if split.bucket >= 0]
    postponed_files = sum(len(split.files) for split in splits if split.bucket < 0)
    return _PlannedWork([unit for unit in units if unit is not None], postponed_files)


def _compute_metrics(
    splits: Sequence[BucketSplit], schema: TableSchema, work: _PlannedWork
) -> CompactionMetrics:
    files = [file for split in splits for file in split.files]
    return CompactionMetrics(
        files=len(files),
        bytes=sum(file.file_size for file in files),
        level0_files=sum(file.level == 0 for file in files) if schema.primary_keys else 0,
        sorted_runs=compute_max_sorted_runs(splits, schema),
        small_files=count_small_files(splits, schema),
        deleted_ratio=compute_deleted_ratio(splits),
        rewrite_files=work.files,
        rewrite_bytes=work.bytes,
    )


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
