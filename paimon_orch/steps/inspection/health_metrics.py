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
    text: str
    """What a value beyond the limit means; a format string."""
    read: "Callable[[TableHealth], float | None]"
    """Returns None if the metric does not apply to the table."""
    default_limit: float | None
    commands: tuple[str, ...] = ()
    """The commands that may improve the metric, the cheapest first; a verdict finds which one does."""
    remedy: str
    """Completes the sentence "To fix this, ...", if no command improves the metric."""
    is_minimum: bool = False
    """Whether the limit is a minimum instead of a maximum."""

    def describe(self, value: float, limit: float) -> str:
        """Return what a value beyond the limit means, with the limit."""
        bound = f"{limit:.0%}" if "%" in self.text else f"{limit:g}"
        return f"{self.text.format(value)} ({'minimum' if self.is_minimum else 'limit'} {bound})"

    def is_within_limit(self, value: float, limit: float) -> bool:
        """Return whether a value passes; a value equal to the limit passes."""
        return value >= limit if self.is_minimum else value <= limit


COMPACT, COMPACT_FULLY = "compact", "compact --strategy full"
COMPACTIONS = (COMPACT, COMPACT_FULLY)
COMPACT_MANIFESTS, EXPIRE_SNAPSHOTS = "compact-manifests", "expire-snapshots"
REWRITE_FILE_INDEX = "rewrite-file-index"
MATERIALIZE_VECTORS = "materialize-deletion-vectors"

HEALTH_METRICS: Mapping[str, HealthMetric] = {
    "level0_backlog": HealthMetric(
        description="Files in level 0, which are not compacted yet.",
        text="{:,.0f} files in level 0",
        read=lambda h: h.level0_files,
        default_limit=100,
        commands=COMPACTIONS,
        remedy="lower num-sorted-run.compaction-trigger, or raise the limit of the check; the options "
        "of the table keep these files in level 0",
    ),
    "sorted_runs": HealthMetric(
        description="Maximum number of sorted runs that a reader merges in a bucket.",
        text="readers merge up to {:,.0f} sorted runs in a bucket",
        read=lambda h: h.max_sorted_runs,
        default_limit=10,
        commands=COMPACTIONS,
        remedy="lower num-sorted-run.compaction-trigger, or raise the limit of the check; a compaction "
        "leaves as many sorted runs",
    ),
    "small_files": HealthMetric(
        description="Share of files far below the target size that a compaction could merge; 0 if "
        f"there are fewer than {_MIN_SMALL_FILES}.",
        text="{:.0%} of the files are small",
        read=lambda h: h.small_files / h.files if h.small_files >= _MIN_SMALL_FILES else 0.0,
        default_limit=0.5,
        commands=COMPACTIONS,
        remedy="write less often, lower compaction.min.file-num, or raise the limit of the check; the "
        "partitions have too few small files to merge",
    ),
    "deletion_vector_ratio": HealthMetric(
        description="Share of stored rows that are deleted or retracted.",
        text="{:.0%} of the stored rows are deleted, and readers skip them",
        read=lambda h: h.deleted_ratio,
        default_limit=0.3,
        commands=(*COMPACTIONS, MATERIALIZE_VECTORS),
        remedy="raise the limit of the check; no compaction removes these rows",
    ),
    "bucket_skew": HealthMetric(
        description="Size of the largest bucket divided by the mean of its partition.",
        text="the largest bucket has {:.1f} times the mean size",
        read=lambda h: h.bucket_skew,
        default_limit=None,
        remedy="choose another bucket key",
    ),
    "file_index_coverage": HealthMetric(
        description="Share of files that have a file index, if the table's options configure one.",
        text="{:.0%} of the files have the file indexes of the table's options",
        read=lambda h: h.index_coverage,
        default_limit=0.9,
        commands=(REWRITE_FILE_INDEX,),
        remedy="lower the limit of the check; the other files cannot get these indexes",
        is_minimum=True,
    ),
    "snapshot_count": HealthMetric(
        description="Number of snapshots.",
        text="{:,.0f} snapshots",
        read=lambda h: h.snapshots,
        default_limit=1000,
        commands=(EXPIRE_SNAPSHOTS,),
        remedy="lower snapshot.num-retained.min or snapshot.time-retained, or raise the limit of the "
        "check; the table's options, or a consumer, retain the snapshots",
    ),
    "snapshot_age_days": HealthMetric(
        description="Age of the oldest snapshot in days.",
        text="the oldest snapshot has an age of {:,.1f} days",
        read=lambda h: h.oldest_snapshot_age / _SECONDS_PER_DAY,
        default_limit=7,
        commands=(EXPIRE_SNAPSHOTS,),
        remedy="lower snapshot.num-retained.min or snapshot.time-retained, or raise the limit of the "
        "check; the table's options, or a consumer, retain the snapshots",
    ),
    "manifest_count": HealthMetric(
        description="Manifests of the latest snapshot.",
        text="each plan reads {:,.0f} manifests",
        read=lambda h: h.manifests,
        default_limit=500,
        commands=(COMPACT_MANIFESTS,),
        remedy="raise manifest.target-file-size, or the limit of the check; a merge leaves as many "
        "manifests",
    ),
}
"""Metrics by check name; a metric without a default limit is checked only if a limit is given."""
METRIC_LIMITS: Mapping[str, float] = {
    name: metric.default_limit
    for name, metric in HEALTH_METRICS.items()
    if metric.default_limit is not None
}
"""The default limits by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A metric beyond its limit."""

    name: str
    """A key of :data:`HEALTH_METRICS`."""
    value: float
    limit: float

    @property
    def metric(self) -> HealthMetric:
        """Return the metric."""
        return HEALTH_METRICS[self.name]

    def __str__(self) -> str:
        return self.metric.describe(self.value, self.limit)


def find_problems(health: "TableHealth", limits: Mapping[str, float]) -> list[Problem]:
    """Return the metrics that are beyond their limits, in the order of :data:`HEALTH_METRICS`."""
    values = {
        name: metric.read(health) for name, metric in HEALTH_METRICS.items() if name in limits
    }
    return [
        Problem(name=name, value=value, limit=limits[name])
        for name, value in values.items()
        if value is not None and not HEALTH_METRICS[name].is_within_limit(value, limits[name])
    ]
