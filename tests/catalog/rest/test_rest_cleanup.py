"""No file is deleted if a server has a newer snapshot than the files of the table show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.catalogs.rest_proxy import RestProxy, answer_before
from support.histories import backdate_files
from support.tables import rows_of, stored_files, table_of

from paimon_orch import AccessDeniedError, Catalog, UnsupportedError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_changelogs import expire_changelogs
from paimon_orch.steps.expiration.expire_snapshots import SnapshotExpirationResult, expire_snapshots
from paimon_orch.steps.repairs.unreadable_snapshots import plan_newest
from paimon_orch.table.table import Table


def expire_oldest(table: Table) -> SnapshotExpirationResult:
    return expire_snapshots(table, retain_min=2, retain_max=3)


STEPS = [remove_orphan_files, expire_oldest]


@pytest.fixture
def table(proxy: RestProxy) -> Table:
    """`db.t` with a tag, a branch that is ahead of it, and four snapshots."""
    table = Catalog(**proxy.options).create_table(
        "db.t", "k INT NOT NULL, v STRING", primary_key=["k"], options={"bucket": "1"}
    )
    table.upsert(table_of("k v", [(1, "old")]))
    table.tags.create("first")
    table.branches.create("dev", tag="first")
    get_branch(proxy).upsert(table_of("k v", [(2, "branch")]))
    table.upsert(table_of("k v", [(1, "v1")]))
    compact(table, strategy="full")
    table.upsert(table_of("k v", [(3, "v3")]))
    backdate_files(table)
    return table


def get_branch(proxy: RestProxy) -> Table:
    return Catalog(**proxy.options).table("db.t$branch_dev")


@pytest.mark.parametrize("step", STEPS)
def test_no_file_is_deleted_while_the_newest_snapshot_has_no_file(
    proxy: RestProxy, table: Table, step: Callable[[Table], object]
) -> None:
    newest = Path(table.stores.snapshots.path(4))
    newest.rename(newest.with_name("hidden"))
    before, earliest = stored_files(table), table.stores.snapshots.earliest_id()

    with pytest.raises(UnsupportedError, match=r"snapshot-4 does not exist, although the catalog"):
        step(table)

    assert stored_files(table) == before
    assert table.stores.snapshots.earliest_id() == earliest
    newest.with_name("hidden").rename(newest)
    step(table)
    assert rows_of(table) == [(1, "v1"), (3, "v3")]
    assert rows_of(get_branch(proxy)) == [(1, "old"), (2, "branch")]


def test_no_orphan_is_deleted_while_the_newest_snapshot_of_a_branch_has_no_file(
    proxy: RestProxy, table: Table
) -> None:
    branch = get_branch(proxy)
    latest = branch.snapshot()
    assert latest is not None
    newest = Path(branch.stores.snapshots.path(latest.id))
    newest.rename(newest.with_name("hidden"))
    before = stored_files(table)

    with pytest.raises(UnsupportedError, match=r"branch-dev/.* does not exist, although the cat"):
        remove_orphan_files(table)

    assert stored_files(table) == before
    newest.with_name("hidden").rename(newest)
    remove_orphan_files(table)
    assert rows_of(branch) == [(1, "old"), (2, "branch")]


@pytest.mark.parametrize("step", STEPS)
def test_no_file_is_deleted_while_the_server_refuses_to_name_the_newest_snapshot(
    proxy: RestProxy, table: Table, step: Callable[[Table], object]
) -> None:
    before = stored_files(table)
    proxy.inject("GET snapshot", answer_before(403))
    with pytest.raises(AccessDeniedError):
        step(table)
    assert stored_files(table) == before


def test_no_changelog_is_deleted_while_the_newest_snapshot_has_no_file(proxy: RestProxy) -> None:
    options = {
        "bucket": "1",
        "changelog-producer": "input",
        "changelog.num-retained.min": "1",
        "changelog.num-retained.max": "100",
    }
    table = Catalog(**proxy.options).create_table(
        "db.t", "k INT NOT NULL, v STRING", primary_key=["k"], options=options
    )
    for number in range(5):
        table.upsert(table_of("k v", [(number, "v")]))
    assert expire_oldest(table).snapshots == 2
    newest = Path(table.stores.snapshots.path(5))
    newest.rename(newest.with_name("hidden"))
    before = stored_files(table)

    with pytest.raises(UnsupportedError, match=r"snapshot-5 does not exist, although the catalog"):
        expire_changelogs(table, retain_max=1, retain_min=1)

    assert stored_files(table) == before
    newest.with_name("hidden").rename(newest)
    assert expire_changelogs(table, retain_max=1, retain_min=1).changelogs == (1,)


def test_a_repair_does_not_roll_back_what_a_server_committed(
    proxy: RestProxy, table: Table
) -> None:
    """The server keeps the newest snapshot, and clients must not move its file."""
    newest = table.stores.snapshots.latest()
    assert newest is not None
    (Path(table.paths.manifest_dir) / newest.base_manifest_list).unlink()
    opened = Catalog(**proxy.options).table("db.t")

    assert plan_newest(opened) is None
