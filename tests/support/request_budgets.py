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
    # The hint, the listing of schemas and snapshots, and the newest of both; 2 lists, 3 manifests
    # and 6 files.
    "read one partition with a filter": Budget((15, 0, 7), today=(15, 0, 5)),
    # 3 levels until the manifest lists. The other 90 requests, for 30 manifests and 60 files, cannot
    # be sent in less than 6 levels with 16 at a time; with 24, the depth is 8.
    "read all": Budget((105, 0, 8), today=(96, 0, 9)),
    "count": Budget((105, 0, 8), today=(96, 0, 9)),
    "plan of a compaction": Budget((40, 0, 6), today=(36, 0, 5)),
    # Each commit asks again for the snapshot of its plan, whose id may belong to another one after a
    # rollback. At the same time, it asks for the next snapshot, without which a commit beside other
    # writers would write its lists in vain, and for the next schema. After it has created the
    # snapshot, it lists the snapshots: another one may have had the id, and have expired.
    "compact one partition": Budget((55, 2, 20), today=(54, 1, 15)),
    "ingest of 1,000 rows": Budget((22, 1, 14), today=(20, 1, 12)),
    "ingest that merges 30 manifests": Budget(today=(48, 1, 13)),
    "upsert, second in a process": Budget((16, 1, 10), today=(14, 1, 9)),
    "commit of this upsert": Budget((9, 1, 6), today=(9, 0, 5)),
    "sensor tick, nothing new": Budget((2, 0, 2), today=(2, 0, 1)),
    "sensor tick, new snapshot": Budget((15, 0, 8), today=(10, 0, 7)),
    "inspect": Budget((16, 0, 8), today=(15, 0, 5)),
    "inspect of 30 manifests": Budget(today=(40, 0, 6)),
    "doctor": Budget((115, 0, 20), today=(108, 0, 14)),
    # It reads the hint LATEST, which the catalog has read to find the table, when it has listed the
    # snapshots: it could be of a snapshot that is lost since.
    "check": Budget((185, 0, 20), today=(150, 1, 15)),
    # Before it deletes, it lists again the folders of the table, among which those of new tags,
    # branches or changelogs would be, and reads the hint LATEST, which can name a lost snapshot. The
    # depth is 17, and in one of 20 runs 18, because threads take results in another order.
    "expire 10 snapshots": Budget((115, 2, 20), today=(105, 2, 18)),
    # The hint, one listing, the schema, 30 snapshots, and 30 manifests and 2 lists that name all
    # files: none can be left out, as each snapshot names lists, and each manifest names files.
    "orphan files, dry run": Budget((60, 2, 15), today=(65, 0, 8)),
    # It plans, then asks before it loses values, and loads the table again. The schema that it
    # changes, and whether there are rows, are read under the lock of the catalog.
    "alter": Budget(today=(12, 4, 9)),
    # Most walks end after a few snapshots, so the first ones are read alone.
    "history": Budget(today=(35, 1, 10)),
    # Each repair is planned from a state of its own: it must not rely on what was read before.
    "repair, dry run": Budget(today=(434, 296, 71)),
}
NO_DEPTH = 1_000
"""On a local disk, one operation follows the other."""
DAGSTER_RUN_BUDGET = Budget((60, 4, NO_DEPTH), today=(24, 3, NO_DEPTH))
