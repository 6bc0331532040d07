"""Whether a compaction is worth its price now: what readers of a partition suffer, beside what would be rewritten."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.options.value_type import parse_duration, parse_memory
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.steps.compaction.append import check_compactable, plan_bucket_units
from paimon_orch.steps.compaction.plan import (
    CompactionStrategy,
    CompactionUnit,
    PartitionSpecs,
    plan_splits,
)
from paimon_orch.steps.compaction.primary_key import plan_bucket_unit
from paimon_orch.steps.inspection.health import (
    compute_deleted_ratio,
    compute_max_sorted_runs,
    count_small_files,
)
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.scan_planner import BucketSplit
from paimon_orch.table.table import Table

_TABLE_OPTION_REASONS = frozenset({"optimization interval", "size threshold", "hidden rows"})
"""Reasons of a plan that an option of the table gives: no threshold makes these wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When a partition is compacted. What the table's options give no reason to compact is left alone.

    Any one of the thresholds is enough, and none is needed after :attr:`max_wait`.

    :ivar level0_files: files that wait in level 0
    :ivar sorted_runs: what readers merge in the bucket with the most
    :ivar small_files: files of an append table far below the target size
    :ivar deleted_ratio: share of rows that are stored but hidden or retracted; above it everything is rewritten. As the
        rest is at most as much as what goes, the cost stays in proportion to what was written.
    :ivar max_rewrite: a size such as ``10 gb``; a compaction that would read more is left to people
    :ivar max_wait: how long work may wait for a threshold, such as ``1 h``
    """

    level0_files: int = 1
    sorted_runs: int = 5
    small_files: int = 2
    deleted_ratio: float = 0.5
    max_rewrite: str | None = None
    max_wait: str = "1 h"

    def __post_init__(self) -> None:
        _ = self.wait_millis, self.rewrite_bytes  # refused here, not at the first tick

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
    """One partition: what its readers suffer, and what a compaction would rewrite; sizes are in bytes."""

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
    """What a policy says of one partition, an empty path for the one of an unpartitioned table.

    :ivar waits: whether there is work that only a threshold holds back
    """

    partition: str
    compact: bool
    reason: str
    figures: CompactionMetrics
    strategy: CompactionStrategy = "minor"
    is_waiting: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the decision as JSON values."""
        verdict = self.strategy if self.compact else "not now"
        figures = asdict(self.figures)
        figures["deleted_ratio"] = round(self.figures.deleted_ratio, 4)
        return {"partition": self.partition, "compact": verdict, "reason": self.reason, **figures}

    def __str__(self) -> str:
        verdict = f"{self.strategy} compaction" if self.compact else "not now"
        return f"{self.partition or 'the table'}: {verdict}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _PlannedWork:
    """What a compaction of one strategy would do in a partition; ``waiting`` are files of postpone buckets."""

    units: Sequence[CompactionUnit] = ()
    waiting: int = 0

    @property
    def files(self) -> int:
        return sum(unit.files for unit in self.units)

    @property
    def bytes(self) -> int:
        return sum(unit.bytes for unit in self.units)

    @property
    def reasons(self) -> set[str]:
        return {unit.reason for unit in self.units}

    def __bool__(self) -> bool:
        return bool(self.units) or self.waiting > 0


def decide(
    table: Table,
    policy: CompactionPolicy | None = None,
    *,
    partitions: PartitionSpecs | None = None,
    where: str | None = None,
    overdue: Collection[str] | None = (),
    may_be_full: bool = True,
) -> list[CompactionDecision]:
    """Return what a policy says of each partition of the newest snapshot, in order.

    Only manifests are read, and of ``partitions`` (as :func:`paimon_orch.steps.compaction.compact.plan` takes them) those that may
    name their files. ``overdue`` are paths that have waited for too long, None for all; without ``may_be_full`` nothing
    but a minor compaction is advised.
    """
    policy, schema = policy or CompactionPolicy(), table.schema
    if schema.primary_keys:
        create_merge_engine(schema)
    else:
        check_compactable(schema)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return []
    splits = plan_splits(table, schema, snapshot=snapshot, partitions=partitions, where=where)
    schemas = table.stores.schemas.get_all(
        file.schema_id for split in splits for file in split.files
    )
    reader = FileReader(table.io, table.paths, schema, schemas)
    return [
        _decide_partition(
            path, group, reader, policy, late=overdue is None or path in overdue, full=may_be_full
        )
        for path, group in _group_by_partition(splits, schema)
    ]


def _group_by_partition(
    splits: Sequence[BucketSplit], schema: TableSchema
) -> Iterator[tuple[str, list[BucketSplit]]]:
    paths = {p: format_partition(p, schema) for p in {split.partition for split in splits}}
    ordered = sorted(splits, key=lambda split: paths[split.partition])
    for path, group in groupby(ordered, key=lambda split: paths[split.partition]):
        yield path, list(group)


def _decide_partition(
    path: str,
    splits: Sequence[BucketSplit],
    reader: FileReader,
    policy: CompactionPolicy,
    *,
    late: bool,
    full: bool,
) -> CompactionDecision:
    work = _plan_work(splits, reader, "minor")
    found = _compute_metrics(splits, reader.schema, work)
    if full and found.deleted_ratio > policy.deleted_ratio:
        everything = _plan_work(splits, reader, "full")
        price = _compute_metrics(splits, reader.schema, everything)
        if everything and not _exceeds_max_rewrite(price, policy):
            reason = f"{found.deleted_ratio:.0%} of the rows are hidden or retracted, more than {policy.deleted_ratio:.0%}"
            return CompactionDecision(
                partition=path,
                compact=True,
                reason=f"{reason}; {_describe_cost(price)}",
                figures=price,
                strategy="full",
            )
    if not work:
        return CompactionDecision(
            partition=path,
            compact=False,
            reason=f"there is nothing to compact: {_describe_state(found)}",
            figures=found,
        )
    if _exceeds_max_rewrite(found, policy):
        reason = f"too much at once: {_describe_cost(found)}, at most {policy.max_rewrite}"
        return CompactionDecision(partition=path, compact=False, reason=reason, figures=found)
    why = _describe_reached_thresholds(found, work, policy) or (
        f"it has waited longer than {policy.max_wait}" if late else ""
    )
    if why:
        return CompactionDecision(
            partition=path, compact=True, reason=f"{why}; {_describe_cost(found)}", figures=found
        )
    reason = f"not worth it yet: {_describe_state(found)}; {_describe_cost(found)}"
    return CompactionDecision(
        partition=path, compact=False, reason=reason, figures=found, is_waiting=True
    )


def _plan_work(
    splits: Sequence[BucketSplit], reader: FileReader, strategy: CompactionStrategy
) -> _PlannedWork:
    if not reader.schema.primary_keys:
        return _PlannedWork(
            [u for split in splits for u in plan_bucket_units(reader, split, strategy)]
        )
    units = [plan_bucket_unit(reader, split, strategy) for split in splits if split.bucket >= 0]
    waiting = sum(len(split.files) for split in splits if split.bucket < 0)
    return _PlannedWork([unit for unit in units if unit is not None], waiting)


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


def _exceeds_max_rewrite(found: CompactionMetrics, policy: CompactionPolicy) -> bool:
    most = policy.rewrite_bytes
    return most is not None and found.rewrite_bytes > most


def _describe_reached_thresholds(
    found: CompactionMetrics, work: _PlannedWork, policy: CompactionPolicy
) -> str:
    """Say which thresholds are reached, an empty text for none."""
    asked = sorted(work.reasons & _TABLE_OPTION_REASONS)
    reached = [f"the table's options ask for it ({', '.join(asked)})"] if asked else []
    if found.level0_files >= policy.level0_files and found.level0_files:
        reached.append(f"level-0 files: {found.level0_files}, from {policy.level0_files} on")
    if found.sorted_runs >= policy.sorted_runs:
        reached.append(f"sorted runs: {found.sorted_runs}, from {policy.sorted_runs} on")
    if "small files" in work.reasons and found.small_files >= policy.small_files:
        reached.append(f"small files: {found.small_files}, from {policy.small_files} on")
    return ", ".join(reached)


def _describe_state(found: CompactionMetrics) -> str:
    return (
        f"level-0 files: {found.level0_files}, sorted runs: {found.sorted_runs}, "
        f"small files: {found.small_files}, hidden or retracted rows: {found.deleted_ratio:.0%}"
    )


def _describe_cost(found: CompactionMetrics) -> str:
    return f"{found.rewrite_bytes / 1e6:,.1f} of {found.bytes / 1e6:,.1f} MB to rewrite"
