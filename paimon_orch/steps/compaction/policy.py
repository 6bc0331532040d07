"""When to compact a partition, and the decision about it; :mod:`.decide` makes the decisions."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Literal

from paimon_orch.format.display import Displayable
from paimon_orch.format.options.value_type import parse_memory
from paimon_orch.format.times import parse_duration

CompactionStrategy = Literal["minor", "full"]
OrderStrategy = Literal["order", "zorder", "hilbert"]
"""How a sort compaction combines several columns into one order."""


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
    """A size such as ``10 gb``; a partition is not compacted if this would read more bytes.

    Rows that batch readers do not see before a compaction are compacted after :attr:`max_wait`
    whatever the size; see docs/format/merge-tree-reads.md#visibility-of-level-0.
    """
    max_wait: str | timedelta = "1 h"
    """The time after which a partition is compacted even below all thresholds."""

    cluster_idle_for: str | timedelta | None = None
    """A duration such as ``7 d``; for tables with ``clustering.incremental`` = ``true``.

    A partition that got no new file for so long is sorted as a whole, once.
    """

    def __post_init__(self) -> None:
        # Invalid values raise an error here, not in a later tick.
        _ = self.wait_millis, self.rewrite_bytes, self.idle_time

    @property
    def wait_millis(self) -> int:
        """Return :attr:`max_wait` in milliseconds."""
        waiting = parse_duration("max_wait", self.max_wait)
        return int(waiting.total_seconds() * 1000)

    @property
    def idle_time(self) -> timedelta | None:
        """Return :attr:`cluster_idle_for`."""
        if self.cluster_idle_for is None:
            return None
        return parse_duration("cluster_idle_for", self.cluster_idle_for)

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
    """The share of rows that are deleted or retracted, and that a compaction removes."""
    rewrite_files: int = 0
    rewrite_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDecision(Displayable):
    """The decision of a policy about one partition."""

    partition: str
    """``k1=v1/k2=v2``, or an empty string for an unpartitioned table."""
    compact: bool
    reason: str
    metrics: CompactionMetrics
    strategy: CompactionStrategy = "minor"
    is_waiting: bool = False
    """Whether the partition has files to compact but is below all thresholds."""
    may_become_idle: bool = False
    """Whether the partition may reach ``cluster_idle_for`` without another commit."""

    def to_dict(self) -> dict[str, object]:
        """Return the decision as JSON values."""
        verdict = self.strategy if self.compact else "not now"
        metrics = asdict(self.metrics) | {"deleted_ratio": round(self.metrics.deleted_ratio, 4)}
        return {"partition": self.partition, "compact": verdict, "reason": self.reason, **metrics}

    def __str__(self) -> str:
        verdict = f"{self.strategy} compaction" if self.compact else "not now"
        return f"{self.partition or 'the table'}: {verdict}: {self.reason}"
