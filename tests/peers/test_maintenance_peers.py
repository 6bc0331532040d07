"""After our maintenance other implementations read the same rows of every retained version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.golden import GOLDEN, canonical_rows, copy_warehouse
from support.histories import (
    backdate_files,
    branch_of,
    make_table,
    read_all_branches,
    select_retained,
    unreferenced_files,
)
from support.peers.peers import Peer, Record

from paimon_orch import Catalog
from paimon_orch.steps.cleanup import remove_orphan_files as orphan_step
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.table.table import Table

SCENARIOS = ["java-0.9/tags", "java-0.9/branches", "java-0.9/expired", "java-0.9/many_snapshots", "pypaimon-2.1/tags_branches"]  # fmt: skip


def warehouse_of(table: Table) -> Path:
    return Path(table.paths.root).parents[1]


def texts(records: list[Record]) -> list[str]:
    return sorted(json.dumps(record, ensure_ascii=False) for record in records)


def records(table: Table, **scan: object) -> list[str]:
    rows = table.scan(**scan).to_arrow()  # type: ignore[arg-type]
    return texts([dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)])


def tables_of(warehouse: Path) -> list[Table]:
    catalog = Catalog(str(warehouse))
    return [catalog.table(f"db.{name}") for name in catalog.tables("db")]


def run_maintenance(table: Table) -> None:
    """Expire all snapshots but the newest of each branch, remove orphans, and check the rest."""
    before = read_all_branches(table)
    for name in table.branches.names():
        expire_snapshots(branch_of(table, name), retain_max=1, max_deletes=1000)
    expire_snapshots(table, retain_max=1, max_deletes=1000)
    backdate_files(table)
    remove_orphan_files(table)
    after = read_all_branches(table)
    assert after == select_retained(before, after)
    assert unreferenced_files(table) == set()
    assert check(table, deep=True).findings == ()
    backdate_files(table)
    assert remove_orphan_files(table).files == 0


def assert_agrees(peer: Peer, table: Table) -> None:
    warehouse, name = warehouse_of(table), table.identifier
    newest = table.stores.snapshots.latest_id()
    if newest is not None:
        assert texts(peer.read(warehouse, name)) == records(table)
        rows_at_newest = peer.read(warehouse, name, scan__snapshot_id=str(newest))
        assert texts(rows_at_newest) == records(table, snapshot_id=newest)
    for tag in table.tags.names():
        assert texts(peer.read(warehouse, name, scan__tag_name=tag)) == records(table, tag=tag)


@pytest.mark.parametrize("peer", ["java-0.9", "java-1.4"], indirect=True)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_reads_every_retained_version(
    tmp_path: Path, scenario: str, peer: Peer, referee: Peer
) -> None:
    warehouse = copy_warehouse(GOLDEN / scenario, tmp_path / "w")
    for table in tables_of(warehouse):
        run_maintenance(table)
        for branch in (table, *(branch_of(table, name) for name in table.branches.names())):
            assert_agrees(peer, branch)
        assert referee.check(warehouse, table.identifier) == []
        assert referee._oracle("orphans", warehouse, table.identifier) == []


@pytest.mark.parametrize(
    ("peer", "scenario"),
    [
        ("pypaimon", "pypaimon-2.1/tags_branches"),  # pypaimon does not read manifests of Java 0.9
        ("pypaimon-rust", "pypaimon-2.1/tags_branches"),
        ("pypaimon-rust", "java-0.9/tags"),
    ],
    indirect=["peer"],
)
def test_python_and_rust_read_every_retained_version(
    tmp_path: Path, scenario: str, peer: Peer
) -> None:
    for table in tables_of(copy_warehouse(GOLDEN / scenario, tmp_path / "w")):
        run_maintenance(table)
        assert_agrees(peer, table)


HISTORY = [("tag", 0), ("full", 0), ("upsert", 1), ("minor", 0), ("upsert", 2), ("upsert", 3), ("full", 0)]  # fmt: skip


@pytest.mark.parametrize("kind", ["vectors", "changelog"])
def test_java_and_we_expire_snapshots_alternately(tmp_path: Path, kind: str, referee: Peer) -> None:
    table = make_table(tmp_path, kind, HISTORY)
    before = read_all_branches(table)

    expire_snapshots(table, retain_max=6)
    referee.expire(tmp_path, 4)
    assert len(table.stores.snapshots.ids()) == 4
    assert check(table, deep=True).findings == ()
    expire_snapshots(table, retain_max=2)

    after = read_all_branches(table)
    assert after == select_retained(before, after)
    assert check(table, deep=True).findings == ()
    assert referee.check(tmp_path, "db.t") == []
    assert_agrees(referee, table)
    assert unreferenced_files(table) == set()


def test_java_and_we_retain_the_same_files(tmp_path: Path, referee: Peer) -> None:
    tables = [make_table(tmp_path / name, "vectors", HISTORY) for name in "ab"]

    expire_snapshots(tables[0], retain_max=2)
    referee.expire(tmp_path / "b", 2)

    remaining_files = [
        sorted((path.parent.name, path.name.split("-")[0]) for path in Path(table.paths.root).rglob("*") if path.is_file())
        for table in tables
    ]  # fmt: skip
    assert remaining_files[0] == remaining_files[1]
    assert read_all_branches(tables[0]) == read_all_branches(tables[1])


def test_java_and_we_find_the_same_orphans(tmp_path: Path, referee: Peer) -> None:
    history = [("tag", 0), ("branch", 0), ("on branch", 1), *HISTORY]
    table = make_table(tmp_path, "vectors", history)
    table.rollback(4, delete_tags=True)
    table.branches.delete("dev")
    backdate_files(table)

    our_orphans = {
        str(Path(f.path).relative_to(table.paths.root))
        for f in orphan_step.plan(table, orphan_step.RemoveOrphanFilesRequest()).files
    }

    assert len(our_orphans) > 10
    assert our_orphans == set(referee._oracle("orphans", tmp_path, "db.t"))
