"""The plan and the result of steps that delete whole partitions, or all rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.common.step import StepOutcome
from paimon_orch.steps.common.step_report import KEPT_ROWS, PlanReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlan(Displayable):
    """The rows to delete. The plan is falsy if there is nothing to delete."""

    request: Any
    loss: str
    """What is deleted: ``2 rows and 1 partition (dt=a)``."""
    bucket_rows: Sequence[int]
    """The number of rows of each bucket; those of all files."""
    catalog_partitions: int = 0
    """The number of partitions that are also dropped from the catalog."""

    def __bool__(self) -> bool:
        """Return whether there is anything to delete."""
        return bool(self.bucket_rows or self.catalog_partitions)

    def to_dict(self) -> dict[str, object]:
        """Return the numbers of buckets and rows as JSON values."""
        return {"buckets": len(self.bucket_rows), "rows": sum(self.bucket_rows)}

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"delete {self.loss}",
            nothing="no rows: nothing was committed",
            asks=bool(self),
            undo=KEPT_ROWS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalResult(StepOutcome):
    """The snapshot without the rows, or None if there were none, and the number of rows."""

    snapshot_id: int | None = None
    rows: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot | None) -> "RemovalResult":
        """Return the result of a commit."""
        if snapshot is None:
            return cls()
        return cls(snapshot_id=snapshot.id, rows=-snapshot.delta_record_count)

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {"snapshot_id": self.snapshot_id, "rows": self.rows}

    def describe(self) -> list[str]:
        """Return how many rows were deleted."""
        if self.snapshot_id is None:
            return []
        return [f"snapshot {self.snapshot_id}: {format_count(self.rows, 'row')} deleted"]
