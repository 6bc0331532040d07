"""The largest numbers of requests that are wanted, and those of today where they are larger."""

from __future__ import annotations

from dataclasses import dataclass

from support.request_log import RequestCounts

_FIGURES = ("requests", "repeated", "depth")


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests, those that repeat another one, and the longest chain of requests that waited."""

    wanted: tuple[int, int, int]
    today: tuple[int, int, int] | None = None
    """The numbers of today if one of them is larger than the wanted one: it must not grow."""

    def limits(self) -> dict[str, int]:
        """Return the limits by name."""
        limits = map(max, self.wanted, self.today or self.wanted)
        return dict(zip(_FIGURES, limits, strict=True))

    def find_exceeded(self, counts: RequestCounts) -> list[str]:
        """Return the figures that exceed their limits."""
        measured = (counts.total, counts.repeated, counts.depth)
        limits = self.limits()
        return [
            f"{name}: {number} instead of {limits[name]}"
            for name, number in zip(_FIGURES, measured, strict=True)
            if number > limits[name]
        ]

    def __str__(self) -> str:
        return " / ".join(map(str, self.wanted))


BUDGETS = {
    "read one partition with a filter": Budget((15, 0, 7), today=(16, 0, 6)),
    "read all": Budget((105, 0, 8), today=(97, 0, 10)),
    "count": Budget((105, 0, 8), today=(97, 0, 10)),
    "plan of a compaction": Budget((40, 0, 6)),
    "compact one partition": Budget((55, 2, 20), today=(54, 3, 15)),
    # It merges the 30 manifests of the table, as the 31st commit does: 27 of the requests.
    "ingest of 1,000 rows": Budget((22, 1, 14), today=(48, 3, 13)),
    "upsert, second in a process": Budget((16, 1, 10), today=(14, 3, 8)),
    "commit of this upsert": Budget((9, 1, 6)),
    "sensor tick, nothing new": Budget((2, 0, 2)),
    "sensor tick, new snapshot": Budget((15, 0, 8)),
    # It reads all 30 manifests of the table.
    "inspect": Budget((16, 0, 8), today=(42, 0, 6)),
    "doctor": Budget((115, 0, 20), today=(109, 1, 15)),
    "check": Budget((185, 0, 20), today=(153, 1, 15)),
    "expire 10 snapshots": Budget((115, 2, 20), today=(113, 10, 20)),
    # It reads 30 snapshots, 60 manifest lists and 30 manifests.
    "orphan files, dry run": Budget((60, 2, 15), today=(131, 1, 15)),
}
NO_DEPTH = 1_000
"""On a local disk, one operation follows the other."""
DAGSTER_RUN_BUDGET = Budget((60, 4, NO_DEPTH), today=(19, 6, NO_DEPTH))
