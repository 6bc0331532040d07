"""The request of a maintenance of many tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.format.times import parse_duration
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.compaction.policy import CompactionPolicy

HISTORY_TABLE = "paimon_orch.maintenance_history"
"""The default history table. ``sys`` is reserved for the catalog's own, computed tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRequest:
    """Selects the tables of a catalog, and how they are maintained."""

    include: tuple[str, ...] = ("*",)
    """Shell patterns of ``database.table``."""
    exclude: tuple[str, ...] = ()
    budgets: MaintenanceBudgets = field(default_factory=MaintenanceBudgets)
    policy: CompactionPolicy = field(default_factory=CompactionPolicy)
    """Its ``deleted_ratio`` and ``max_rewrite`` apply; its thresholds only appear in reasons."""
    idle_for: Annotated[
        str | timedelta,
        Argument(
            "A partition without a new file for so long gets a full compaction, or is sorted.",
            metavar="DURATION",
        ),
    ] = "6 h"
    visible_within: Annotated[
        str | timedelta,
        Argument(
            "Rows that batch readers do not see are compacted after this time.",
            metavar="DURATION",
        ),
    ] = "1 h"
    """Applies whatever the score is; see docs/format/merge-tree-reads.md#visibility-of-level-0."""
    expiring_within: Annotated[
        str | timedelta,
        Argument("Partitions that expire within this time are not compacted.", metavar="DURATION"),
    ] = "1 d"
    reads: Mapping[str, float] = field(default_factory=dict)
    """How often tables are read in comparison with others, by pattern; the default is 1."""
    history_table: str | None = HISTORY_TABLE
    """Where executed and skipped actions are recorded; None disables this."""
    now: datetime | None = None
    """The time of the plan; None means the current time."""

    def __post_init__(self) -> None:
        # Invalid values raise an error here, not in a later run.
        _ = self.idle_time, self.visibility_wait, self.expiration_margin
        for pattern, reads in self.reads.items():
            if not reads >= 0:
                raise InputError(f"reads of {pattern!r} are {reads}, but must be at least 0")
        if self.history_table is None and self.budgets.max_bytes_per_hour is not None:
            raise InputError("max_bytes_per_hour needs a history table")

    @property
    def idle_time(self) -> timedelta:
        """Return :attr:`idle_for`."""
        return parse_duration("idle_for", self.idle_for)

    @property
    def visibility_wait(self) -> timedelta:
        """Return :attr:`visible_within`."""
        return parse_duration("visible_within", self.visible_within)

    @property
    def expiration_margin(self) -> timedelta:
        """Return :attr:`expiring_within`."""
        return parse_duration("expiring_within", self.expiring_within)

    def selects(self, table: str) -> bool:
        """Return whether the patterns select a table."""
        is_included = any(fnmatchcase(table, pattern) for pattern in self.include)
        return is_included and not any(fnmatchcase(table, pattern) for pattern in self.exclude)

    def find_reads(self, table: str) -> float:
        """Return how often a table is read; the first pattern that matches counts."""
        matches = (reads for name, reads in self.reads.items() if fnmatchcase(table, name))
        return next(matches, 1.0)
