"""What users set for the ops of a table and for their runs: ``op`` and ``run_tags``."""

from collections.abc import Callable, Mapping

import dagster as dg
from dagster.components.resolved.core_models import OpSpec

from paimon_orch.orchestration.planned_runs import PlannedRun

RunTags = Mapping[str, str] | Callable[[PlannedRun], Mapping[str, str]]
"""Tags of runs, or a function that returns them for a compaction from what it will read."""
DEFAULT_OP = OpSpec()


def build_run_tags(tags: RunTags | None, run: PlannedRun) -> dict[str, str]:
    """Return the tags of the user for a run."""
    return dict(tags(run) if callable(tags) else tags or {})


def get_backfill_policy(op: OpSpec, max_partitions: int) -> dg.BackfillPolicy:
    """Return the policy of an op, by default runs of several partitions."""
    return op.backfill_policy or dg.BackfillPolicy.multi_run(max_partitions)
