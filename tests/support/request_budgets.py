"""The largest numbers of requests that are allowed, and those that are wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests, those that repeat another one, and the longest chain of requests that waited."""

    requests: int
    repeated: int
    depth: int | None = None
    """None if requests are not sent at the same time anyway, as on a local disk."""
    wanted: tuple[int, int, int | None] | None = None
    """The numbers to reach, if they are not reached yet."""

    def limits(self) -> dict[str, int]:
        """Return the limits by name."""
        limits = {"requests": self.requests, "repeated": self.repeated, "depth": self.depth}
        return {name: limit for name, limit in limits.items() if limit is not None}


BUDGETS = {
    "read one partition with a filter": Budget(27, 5, 21, wanted=(15, 0, 7)),
    "read all": Budget(206, 49, 174, wanted=(105, 0, 8)),
    "count": Budget(206, 49, 174, wanted=(105, 0, 8)),
    "plan of a compaction": Budget(38, 1, 6, wanted=(40, 0, 6)),
    "compact one partition": Budget(66, 9, 34, wanted=(55, 2, 20)),
    "ingest of 1,000 rows": Budget(51, 6, 19, wanted=(22, 1, 14)),
    "upsert, second in a process": Budget(19, 4, 14, wanted=(16, 1, 10)),
    "commit of this upsert": Budget(9, 0, 8, wanted=(9, 1, 6)),
    "sensor tick, nothing new": Budget(4, 0, 4, wanted=(2, 0, 2)),
    "sensor tick, new snapshot": Budget(27, 16, 23, wanted=(15, 0, 8)),
    "inspect": Budget(43, 0, 6, wanted=(16, 0, 8)),
    # both read the hint LATEST again that has found the table, to verify it
    "doctor": Budget(109, 1, 15, wanted=(115, 0, 20)),
    "check": Budget(153, 1, 15, wanted=(185, 0, 20)),
    "expire 10 snapshots": Budget(114, 10, 20, wanted=(115, 2, 20)),
    "orphan files, dry run": Budget(132, 1, 15, wanted=(60, 2, 15)),
}
DAGSTER_RUN_BUDGET = Budget(49, 24, wanted=(60, 4, None))
