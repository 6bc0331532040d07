"""Attributes of compaction in the YAML of components."""

from typing import Annotated

from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import DURATION_RULE, SIZE_RULE, Attributes
from paimon_orch.steps.compaction.policy import CompactionPolicy

_DEFAULT_POLICY = CompactionPolicy()


class CompactionAttributes(Attributes):
    """Thresholds: a partition is compacted if it reaches any of them; see docs/dagster.md."""

    level0_files: int = Field(
        default=_DEFAULT_POLICY.level0_files, description="Minimum number of files in level 0."
    )
    sorted_runs: int = Field(
        default=_DEFAULT_POLICY.sorted_runs,
        description="Minimum number of sorted runs that a reader merges.",
    )
    small_files: int = Field(
        default=_DEFAULT_POLICY.small_files,
        description="Minimum number of small files of an append table.",
    )
    deleted_ratio: float = Field(
        default=_DEFAULT_POLICY.deleted_ratio,
        ge=0,
        le=1,
        description="Share of deleted or retracted rows above which the whole partition is "
        "rewritten.",
    )
    max_rewrite: Annotated[str | None, SIZE_RULE] = Field(
        default=_DEFAULT_POLICY.max_rewrite,
        description="Maximum size of the files that a compaction reads, for example 10 gb. Larger "
        "compactions are not requested.",
    )
    max_wait: Annotated[str, DURATION_RULE] = Field(
        default=str(_DEFAULT_POLICY.max_wait),
        description="Time after which a partition is compacted even if it is below all thresholds, "
        "for example 1 h.",
    )
    cluster_idle_for: Annotated[str | None, DURATION_RULE] = Field(
        default=None,
        description="For tables with clustering.incremental: time without new files after which a "
        "partition is sorted as a whole, for example 7 d.",
    )

    def policy(self) -> CompactionPolicy:
        """Return the policy; raises :class:`InputError` for an invalid size or duration."""
        return CompactionPolicy(**self.model_dump())
