"""The numbers of requests of today, which must not grow, and those that were wanted."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from support.request_log import RequestCounts

_FIGURES = ("requests", "repeated", "depth")


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests, those that repeat another one, and the longest chain of requests that waited."""

    wanted: tuple[int, int, int] | None = None
    _: KW_ONLY
    today: tuple[int, int, int]
    """The limits."""

    def find_exceeded(self, counts: RequestCounts) -> list[str]:
        """Return the figures that exceed their limits."""
        measured = (counts.total, counts.repeated, counts.depth)
        return [
            f"{name}: {number} instead of {limit}"
            for name, number, limit in zip(_FIGURES, measured, self.today, strict=True)
            if number > limit
        ]

    def __str__(self) -> str:
        return " / ".join(map(str, self.wanted or ()))


BUDGETS = {
    # The hint and the next snapshot, the listing and the file of the schema, and 11 others: none
    # can be left out, because the hint can be stale.
    "read one partition with a filter": Budget((15, 0, 7), today=(16, 0, 5)),
    # 3 levels until the manifest lists. The other 90 requests, for 30 manifests and 60 files, cannot
    # be sent in less than 6 levels with 16 at a time.
    "read all": Budget((105, 0, 8), today=(97, 0, 9)),
    "count": Budget((105, 0, 8), today=(97, 0, 9)),
    "plan of a compaction": Budget((40, 0, 6), today=(37, 0, 5)),
    # Each commit asks two things again at once: for the snapshot of its plan, whose id may belong to
    # another one after a rollback, and for the next snapshot, without which a commit beside other
    # writers would write its lists in vain. It also asks for the next schema.
    "compact one partition": Budget((55, 2, 20), today=(54, 2, 14)),
    "ingest of 1,000 rows": Budget((22, 1, 14), today=(20, 2, 11)),
    "ingest that merges 30 manifests": Budget(today=(48, 2, 12)),
    "upsert, second in a process": Budget((16, 1, 10), today=(14, 2, 8)),
    "commit of this upsert": Budget((9, 1, 6), today=(8, 0, 4)),
    "sensor tick, nothing new": Budget((2, 0, 2), today=(2, 0, 1)),
    "sensor tick, new snapshot": Budget((15, 0, 8), today=(10, 0, 7)),
    "inspect": Budget((16, 0, 8), today=(16, 0, 5)),
    "inspect of 30 manifests": Budget(today=(41, 0, 6)),
    "doctor": Budget((115, 0, 20), today=(108, 0, 14)),
    # It verifies the hint LATEST, which the catalog has read to find the table.
    "check": Budget((185, 0, 20), today=(152, 1, 15)),
    # Before it deletes, it checks again what could have changed since the plan: it lists snapshots,
    # changelogs, tags and branches, and reads the hint LATEST, which can name a lost snapshot.
    "expire 10 snapshots": Budget((115, 2, 20), today=(110, 5, 18)),
    # One listing, 30 snapshots, and 30 manifests and 2 lists that name all files are 63 requests, none
    # of which can be left out. The others open the table; the newest snapshot is then read again,
    # because another one may have its id since.
    "orphan files, dry run": Budget((60, 2, 15), today=(68, 1, 9)),
}
NO_DEPTH = 1_000
"""On a local disk, one operation follows the other."""
DAGSTER_RUN_BUDGET = Budget((60, 4, NO_DEPTH), today=(23, 3, NO_DEPTH))
