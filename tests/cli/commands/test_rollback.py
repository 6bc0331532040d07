"""Rollback to older snapshots."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.commands import invoke, run_on
from support.tables import new_table, rows_of, table_of

from paimon_orch.errors import CommitConflictError, InputError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps import compact_manifests, expire_snapshots
from paimon_orch.steps.common.step import EmptyRequest
from paimon_orch.steps.maintenance import undo
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table


def test_an_older_state_is_committed_as_the_latest(partitioned: Table) -> None:
    output = run_on(partitioned, "rollback", "--snapshot", "1", "--as-latest", "--dry-run")
    changes = "(0 files added, 2 removed)"
    assert output == f"would commit the state of snapshot 1 of db.t {changes}; nothing was changed"
    assert (partitioned.stores.snapshots.latest_id(), partitioned.tags.names()) == (2, [])
    output = run_on(partitioned, "rollback", "--snapshot", "1", "--as-latest")
    [tag] = partitioned.tags.names()
    expected = (
        f"committed the state of snapshot 1 as snapshot 3 {changes}; tag {tag} keeps its files"
    )
    assert output == expected
    assert rows_of(partitioned) == [("a", 1, "x"), ("b", 2, "y")]
    values = json.loads(run_on(partitioned, "rollback", "--tag", tag, "--as-latest", "--json"))
    assert (values["snapshot_id"], values["tag"], values["added_files"]) == (4, tag, 0)


def test_a_dry_run_of_a_rollback_prints_both_snapshots(partitioned: Table) -> None:
    assert run_on(partitioned, "rollback", "--snapshot", "1", "--dry-run").startswith(
        "would roll back db.t from snapshot 2 to 1"
    )
    assert partitioned.stores.snapshots.latest_id() == 2

    assert (
        run_on(partitioned, "rollback", "--snapshot", "1", "--yes") == "rolled back to snapshot 1"
    )

    assert partitioned.stores.snapshots.latest_id() == 1
    with pytest.raises(InputError, match="needs"):
        run_on(partitioned, "rollback")


def test_a_rollback_is_refused_because_of_tags_before_it_asks(partitioned: Table) -> None:
    partitioned.tags.create("late", 2)
    command = ("rollback", "--snapshot", "1")
    with pytest.raises(InputError, match=r"deletes the tags late; .* add --delete-tags"):
        run_on(partitioned, *command)
    with pytest.raises(InputError, match=r"and delete 1 snapshot and 1 tag \(late\)\?.* add --yes"):
        run_on(partitioned, *command, "--delete-tags")
    assert run_on(partitioned, "rollback", "--snapshot", "2", "--delete-tags") == (
        "rolled back to snapshot 2"
    )
    run_on(partitioned, *command, "--delete-tags", "--yes")
    assert partitioned.tags.names() == []


def test_an_undo_takes_back_the_newest_snapshot(partitioned: Table) -> None:
    shown = run_on(partitioned, "undo", "--dry-run")
    newest = partitioned.history()[0]
    assert shown.startswith(
        f"would take back snapshot 2 of db.t (APPEND of +2 records by {newest.commit_user} at 2"
    )
    assert partitioned.snapshot() == newest
    with pytest.raises(InputError, match=r"take back snapshot 2 .* add --yes"):
        run_on(partitioned, "undo")

    shown = run_on(partitioned, "undo", "--yes")

    [tag] = partitioned.tags.names()
    assert shown == f"committed the state of snapshot 1 as snapshot 3; tag {tag} keeps its files"
    assert rows_of(partitioned) == [("a", 1, "x"), ("b", 2, "y")]


def test_a_second_undo_restores_the_change(partitioned: Table) -> None:
    rows = rows_of(partitioned)
    run_on(partitioned, "undo", "--yes")

    values = json.loads(run_on(partitioned, "undo", "--yes", "--json"))

    assert (values["undone_snapshot_id"], values["commit_kind"]) == (3, "OVERWRITE")
    assert rows_of(partitioned) == rows


def test_an_undo_takes_back_a_rollback_that_moved_files(tmp_path: Path) -> None:
    """Such a rollback is followed by a snapshot that merges the manifests."""
    table = new_table(tmp_path)
    table.append(table_of("k v", [(1, "a")]))
    table.compact(strategy="full")
    table.append(table_of("k v", [(2, "b")]))
    run_on(table, "rollback", "--snapshot", "1", "--as-latest")
    assert (table.history()[0].id, rows_of(table)) == (5, [(1, "a")])

    values = json.loads(run_on(table, "undo", "--yes", "--json"))

    assert values["undone_snapshot_id"] == 4
    assert rows_of(table) == [(1, "a"), (2, "b")]


def test_an_undo_takes_back_no_change_of_indexes_besides(tmp_path: Path) -> None:
    """Such a compaction has no entries of data files, as one that merges manifests."""
    table = new_table(tmp_path, bucket="-1")
    table.append(table_of("k v", [(1, "a")]))
    table.append(table_of("k v", [(2, "b")]))
    newest = table.snapshot()
    assert newest is not None
    [old, *_] = table.stores.manifests.read_index_entries(newest)
    changes = CommitChanges(kind=CommitKind.COMPACT, index=(old.deleted(),))
    table.load().new_commit(StepKind.COMPACT).commit(changes)

    with pytest.raises(InputError, match=r"snapshot 3 of db\.t is of the kind COMPACT"):
        run_on(table, "undo", "--yes")


def test_an_undo_skips_a_merge_of_manifests_if_there_is_a_change_before(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.append(table_of("k v", [(1, "a")]))
    table.append(table_of("k v", [(2, "b")]))
    compact_manifests(table)
    run_on(table, "undo", "--yes")
    assert rows_of(table) == [(1, "a")]

    table.append(table_of("k v", [(3, "c")]))
    compact_manifests(table)
    expire_snapshots(table, retain_max=1, retain_min=1, older_than=int(time.time() * 1000) + 1)
    [only] = table.history()
    with pytest.raises(InputError, match=rf"has no snapshot before {only.id}.*use truncate"):
        run_on(table, "undo", "--yes")


def test_an_undo_needs_an_older_snapshot_and_a_change_of_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(InputError, match=r"db\.t has no snapshot to take back"):
        run_on(table, "undo", "--yes")
    table.append(table_of("k v", [(1, "a")]))
    with pytest.raises(InputError, match=r"has no snapshot before 1.*use truncate"):
        run_on(table, "undo", "--yes")
    table.append(table_of("k v", [(1, "b")]))
    table.compact(strategy="full")
    with pytest.raises(InputError, match=r"snapshot 3 of db\.t is of the kind COMPACT"):
        run_on(table, "undo", "--yes")


def test_an_undo_does_not_take_back_a_later_commit(partitioned: Table) -> None:
    planned = undo.plan(partitioned, EmptyRequest())
    partitioned.append(table_of("dt k v", [("c", 5, "later")]))

    with pytest.raises(CommitConflictError, match="the newest snapshot is 3, not 2"):
        undo.DECLARATION.run(partitioned, planned)

    assert len(rows_of(partitioned)) == 5
    assert partitioned.tags.names() == []


def test_a_write_says_how_to_take_it_back(partitioned: Table) -> None:
    warehouse = Path(partitioned.paths.root).parents[1]
    command = ("delete", str(warehouse), "db.t", "--where")

    [note] = invoke(*command, "k = 1").stderr.splitlines()
    assert "to take this back" in invoke(*command, "k = 2", "--json").stderr
    assert invoke(*command, "k = 99").stderr == ""

    assert note == f"note: to take this back, run paimon-orch undo {warehouse} db.t"
