"""Missing manifests are removed from a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import run_command
from support.tables import new_table, rows_of, stored_files, table_of

from paimon_orch.errors import CommitConflictError, PaimonError
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.delete_tag import delete_tag
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.repairs.remove_unexisting_manifests import (
    commit,
    plan,
    remove_unexisting_manifests,
)
from paimon_orch.table.metadata.metadata_cache import clear_metadata_cache
from paimon_orch.table.table import Table


def manifest_of(table: Table, snapshot_id: int) -> Path:
    """Return the only manifest of the delta of a snapshot."""
    snapshot = table.stores.snapshots.get(snapshot_id)
    [meta] = table.stores.manifests.manifest_list(snapshot.delta_manifest_list)
    return Path(table.paths.manifest_dir) / meta.file_name


def test_the_files_of_the_other_manifests_can_be_read(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for number in range(3):
        table.append(table_of("k v", [(number, str(number))]))
    lost = manifest_of(table, 2)
    lost.unlink()
    clear_metadata_cache()
    with pytest.raises(PaimonError):
        rows_of(table)
    before = stored_files(table)

    shown = run_command("remove-unexisting-manifests", str(tmp_path), "db.t", "--dry-run")
    assert shown.splitlines() == [
        str(lost),
        (
            "would remove 1 missing manifest from the metadata of db.t; the files that they added (1) "
            "are lost, and those that they deleted (0) are read again if they exist; in a table with a "
            "primary key, older values of the keys become visible again; nothing was changed"
        ),
    ]
    assert stored_files(table) == before
    output = run_command("remove-unexisting-manifests", str(tmp_path), "db.t", "--yes", "--json")

    assert json.loads(output)["paths"] == [str(lost)]
    assert rows_of(table) == [(0, "0"), (2, "2")]
    newest = table.stores.snapshots.latest()
    assert newest is not None
    assert (newest.id, newest.commit_kind.value) == (4, "OVERWRITE")
    assert (newest.total_record_count, newest.delta_record_count) == (2, 0)
    assert not remove_unexisting_manifests(table)
    assert table.stores.snapshots.latest_id() == 4
    table.append(table_of("k v", [(9, "9")]))
    assert len(rows_of(table)) == 3
    newest_findings = [f for f in check(table, deep=True).findings if "snapshot 5" in f.where]
    assert newest_findings == []


def test_files_that_only_a_lost_manifest_added_stay_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(2, "b")]))
    compact(table, InProcessExecutor(), strategy="full")
    table.upsert(table_of("k v", [(3, "c")]))
    manifest_of(table, 1).unlink()

    found = remove_unexisting_manifests(table)

    assert (found.added_files, found.deleted_files, found.comparable_id) == (1, 0, None)
    assert rows_of(table) == [(1, "a"), (2, "b"), (3, "c")]
    newest = table.stores.snapshots.latest()
    assert newest is not None
    assert newest.total_record_count == 3


def test_values_that_become_visible_can_be_compared_with_an_older_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a"), (2, "a")]))
    table.upsert(table_of("k v", [(1, "b")]))
    table.upsert(table_of("k v", [(1, "c"), (3, "c")]))
    manifest_of(table, 3).unlink()

    found = remove_unexisting_manifests(table)

    assert found.comparable_id == 2
    assert table.incremental(2, 4, mode="diff").to_arrow().num_rows == 0
    [tag] = table.tags.names()
    assert table.tags.get(tag).id == 3
    delete_tag(table, tag)  # although its manifest is missing


def test_a_commit_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for number in range(2):
        table.append(table_of("k v", [(number, str(number))]))
    lost, data = manifest_of(table, 1), manifest_of(table, 1).read_bytes()
    lost.unlink()
    planned = plan(table, EmptyRequest())
    lost.write_bytes(data)
    table.append(table_of("k v", [(5, "5")]))
    lost.unlink()
    before = stored_files(table)
    with pytest.raises(CommitConflictError, match="the newest snapshot is 3, not 2"):
        commit(table, planned)
    assert stored_files(table) == before
    assert remove_unexisting_manifests(table)
    assert rows_of(table) == [(1, "1"), (5, "5")]


def test_nothing_is_missing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert not remove_unexisting_manifests(table)
    table.upsert(table_of("k v", [(1, "a")]))
    assert not remove_unexisting_manifests(table)
    assert table.stores.snapshots.latest_id() == 1
