"""Candidate actions of maintenance, and the decisions about them."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class ActionKind(StrEnum):
    """What the maintenance of a table may do."""

    MINOR_COMPACTION = "minor compaction"
    FULL_COMPACTION = "full compaction"
    CLUSTERING = "clustering"
    """A compaction that sorts the rows of an append table; a full one if the partition is idle."""
    SNAPSHOT_EXPIRATION = "snapshot expiration"
    MANIFEST_COMPACTION = "manifest compaction"
    FILE_INDEX_REWRITE = "file index rewrite"
    MATERIALIZATION = "deletion vector materialization"
    """Removes the deleted rows of a table with data evolution, whose compactions keep them."""


class DecisionState(StrEnum):
    """What a plan decides about an action."""

    CHOSEN = "chosen"
    SKIPPED = "skipped"
    """There is work, which the plan leaves for later."""
    NOTHING_TO_DO = "nothing to do"
    REFUSED = "refused"
    """The table cannot be read, or its options forbid the action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDecision:
    """The decision about one action on a table or partition; sizes are in bytes."""

    table: str
    state: DecisionState
    reason: str
    action: ActionKind | None = None
    """None if the whole table was skipped."""
    partition: str = ""
    """``k1=v1/k2=v2``, or an empty string for the whole table."""
    is_full: bool = False
    """Whether a compaction rewrites all files of the partition."""
    up_to_level: int | None = None
    """A minor compaction merges the sorted runs up to this level; None follows the options."""
    saved_requests: int = 0
    """About how many files fewer one scan opens after the action."""
    saved_bytes: int = 0
    """About how many bytes fewer one scan reads after the action."""
    rewrite_bytes: int = 0
    """The estimated size of the files that the action reads and writes again."""
    score: float = 0.0
    """The read cost saved for a rewritten byte; infinite for actions that are due in any case."""
    unseen_since: int | None = None
    """The creation time of the oldest file that readers do not see, if the action is due for it.

    In epoch milliseconds of local time.
    """

    @property
    def is_due(self) -> bool:
        """Return whether the action is due whatever a read saves."""
        return self.score == float("inf")

    def to_dict(self) -> dict[str, object]:
        """Return the decision as JSON values; the score is null if it is infinite."""
        score = None if self.is_due else round(self.score, 3)
        action = None if self.action is None else self.action.value
        values = asdict(self) | {"state": self.state.value, "action": action, "score": score}
        del values["unseen_since"]
        return values

    def __str__(self) -> str:
        name = f"{self.table} {self.partition}".rstrip()
        return f"{name}: {self.action or 'maintenance'}: {self.reason}"
