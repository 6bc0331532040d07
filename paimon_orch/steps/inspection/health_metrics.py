"""The metrics of table health with their default limits, for checks and the command ``doctor``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the metrics are defined when definitions load, before a table is read
    from paimon_orch.steps.inspection.health import TableHealth

_SECONDS_PER_DAY = 24 * 3600
_MIN_SMALL_FILES = 20
"""Fewer small files cost readers little, whatever their share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthMetric:
    """A metric of table health, its default limit, and how to improve it."""

    description: str
    read: "Callable[[TableHealth], float | None]"
    """Returns None if the metric does not apply to the table."""
    default_limit: float | None
    remedy: str
    """Completes the sentence "To fix this, ...", if no compaction does."""
    is_compacted: bool = False
    """Whether a compaction may improve the metric; ``compaction_remedies`` finds which one does."""
    command: str | None = None
    """The other command that improves the metric of a table."""
    is_minimum: bool = False
    """Whether the limit is a minimum instead of a maximum."""

    def is_within_limit(self, value: float, limit: float) -> bool:
        """Return whether a value passes; a value equal to the limit passes."""
        return value >= limit if self.is_minimum else value <= limit


HEALTH_METRICS: Mapping[str, HealthMetric] = {
    "level0_backlog": HealthMetric(
        description="Files in level 0, which are not compacted yet.",
        read=lambda h: h.level0_files,
        default_limit=100,
        remedy="lower num-sorted-run.compaction-trigger, or raise the limit of the check; the options "
        "of the table keep these files in level 0",
        is_compacted=True,
    ),
    "sorted_runs": HealthMetric(
        description="Maximum number of sorted runs that a reader merges in a bucket.",
        read=lambda h: h.max_sorted_runs,
        default_limit=10,
        remedy="lower num-sorted-run.compaction-trigger, or raise the limit of the check; a compaction "
        "leaves as many sorted runs",
        is_compacted=True,
    ),
    "small_files": HealthMetric(
        description="Share of files far below the target size that a compaction could merge; 0 if "
        f"there are fewer than {_MIN_SMALL_FILES}.",
        read=lambda h: h.small_files / h.files if h.small_files >= _MIN_SMALL_FILES else 0.0,
        default_limit=0.5,
        remedy="write less often, lower compaction.min.file-num, or raise the limit of the check; the "
        "partitions have too few small files to merge",
        is_compacted=True,
    ),
    "deletion_vector_ratio": HealthMetric(
        description="Share of stored rows that are deleted or retracted.",
        read=lambda h: h.deleted_ratio,
        default_limit=0.3,
        remedy="raise the limit of the check; a compaction keeps these rows. In a table with data "
        "evolution, materialize-deletion-vectors removes them",
        is_compacted=True,
    ),
    "bucket_skew": HealthMetric(
        description="Size of the largest bucket divided by the mean of its partition.",
        read=lambda h: h.bucket_skew,
        default_limit=None,
        remedy="choose another bucket key",
    ),
    "file_index_coverage": HealthMetric(
        description="Share of files that have a file index, if the table's options configure one.",
        read=lambda h: h.index_coverage,
        default_limit=0.9,
        remedy="materialize the file indexes",
        command="rewrite-file-index",
        is_minimum=True,
    ),
    "snapshot_count": HealthMetric(
        description="Number of snapshots.",
        read=lambda h: h.snapshots,
        default_limit=1000,
        remedy="run expire_snapshots",
        command="expire-snapshots",
    ),
    "snapshot_age_days": HealthMetric(
        description="Age of the oldest snapshot in days.",
        read=lambda h: h.oldest_snapshot_age / _SECONDS_PER_DAY,
        default_limit=7,
        remedy="run expire_snapshots",
        command="expire-snapshots",
    ),
    "manifest_count": HealthMetric(
        description="Manifests of the latest snapshot.",
        read=lambda h: h.manifests,
        default_limit=500,
        remedy="run compact_manifests",
        command="compact-manifests",
    ),
}
"""Metrics by check name; a metric without a default limit is checked only if a limit is given."""
