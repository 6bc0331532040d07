"""If a committer is killed, also while it holds the lock, the next one goes on and nothing is lost.

``tests/steps/test_kill.py`` kills processes before each change of other files.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from support.catalogs.kinds import HIVE, NAME, ROOT, SQLITE, CatalogUnderTest
from support.catalogs.rest_server import JAVA_2_0
from support.catalogs.round_trips import count_round_trips, watch_requests
from support.histories import read_versions, select_retained
from support.kill import MARKS, remove_orphans_of_killed, run_killed
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import LockTimeoutError
from paimon_orch.table.table import Table

pytestmark = MARKS

MIN_MOMENTS = {SQLITE: 8, HIVE: 8, JAVA_2_0: 6}
ROWS = table_of("k v", [(1, "new"), (2, "new")])
TIMEOUT_VARIABLE = f"PAIMON_ORCH_CATALOG__{NAME.upper().replace('-', '_')}__LOCK_ACQUIRE_TIMEOUT"


def upsert(table: Table) -> bool:
    """Commit; return whether the lock was not free, so that taking it needed more requests."""
    with count_round_trips() as trips:
        for _ in range(4):
            with suppress(LockTimeoutError):
                table.upsert(ROWS)
                return len(trips.requests) > len(["lock", "unlock"])
    raise AssertionError("the lock of the killed process does not expire")


@pytest.mark.slow
@pytest.mark.parametrize("catalog_under_test", MIN_MOMENTS, indirect=True)
def test_a_killed_commit_is_visible_completely_or_not_at_all(
    catalog_under_test: CatalogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not catalog_under_test.is_rest:
        # The age at which other committers remove the lock of a JDBC catalog.
        monkeypatch.setenv(TIMEOUT_VARIABLE, "1 s" if catalog_under_test.kind != HIVE else "8 s")
    outcomes, was_held = [], []
    for moment in count(1):
        catalog_under_test.clear()
        new_table(ROOT).upsert(table_of("k v", [(0, "old"), (1, "old")]))
        table = catalog_under_test.open().table("db.t")
        before = read_versions(table)

        ended = run_killed(
            lambda: catalog_under_test.open().table("db.t").upsert(ROWS),
            moment,
            table.stores.snapshots.paths.snapshot_dir,
            watch_requests,
        )

        table = catalog_under_test.open().table("db.t")
        after = read_versions(table)
        assert select_retained(after, before) == before
        committed = sorted(set(after) - set(before))
        assert committed in ([], ["2"])
        was_held.append(upsert(table))
        latest = table.snapshot()
        assert latest is not None
        assert latest.id == 2 + len(committed)
        assert rows_of(table) == [(0, "old"), (1, "new"), (2, "new")]
        remove_orphans_of_killed(table)
        outcomes.append(len(committed))
        if ended:
            break
    if not catalog_under_test.is_rest:
        assert sum(was_held) >= 3
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {0, 1}
    assert len(outcomes) >= MIN_MOMENTS[catalog_under_test.kind]
