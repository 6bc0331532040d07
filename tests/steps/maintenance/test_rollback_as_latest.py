"""The state of an older snapshot becomes the newest one, in a new snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tables import assert_healthy, levels_of, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import (
    CommitOutcomeUnknownError,
    InputError,
    NotFoundError,
    PaimonError,
    StorageError,
)
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.steps.inspection.check_table import check
from paimon_orch.steps.maintenance import rollback_as_latest as step
from paimon_orch.steps.maintenance.rollback_as_latest import rollback_as_latest
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

KINDS: list[dict[str, Any]] = [
    {},
    {"deletion_vectors__enabled": "true"},
    {"bucket": "-1"},
    {"key": (), "bucket": "-1"},
    {"key": (), "bucket": "-1", "row_tracking__enabled": "true"},
    {"manifest__merge_min_count": "2"},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_an_older_snapshot_is_committed(tmp_path: Path, kind: dict[str, Any]) -> None:
    table = new_table(tmp_path, **kind)
    for text in ("a", "b"):
        table.append(table_of("k v", [(k, text) for k in range(9)]))
        table.append(table_of("k v", [(k, text) for k in range(5, 12)]))
        compact(table, InProcessExecutor(), strategy="full")
    table.append(table_of("k v", [(99, "c")]))
    versions = {
        number: rows_of(table, snapshot_id=number) for number in table.stores.snapshots.ids()
    }

    for target in (2, 7, 1, 3, 6):
        result = rollback_as_latest(table, target)

        assert rows_of(table) == versions[target]
        assert result.snapshot.id == table.stores.snapshots.latest_id()
        assert (
            result.snapshot.total_record_count
            == table.stores.snapshots.get(target).total_record_count
        )
        assert table.tags.get(result.tag).id == target
    for number, rows in versions.items():
        assert rows_of(table, snapshot_id=number) == rows
    assert_healthy(table)
    table.append(table_of("k v", [(100, "d")]))
    compact(table, InProcessExecutor(), strategy="full")
    assert len(rows_of(table)) == len(versions[6]) + 1
    assert check(table, deep=True).findings == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_kept_when_older_snapshots_expire(
    tmp_path: Path, kind: dict[str, Any]
) -> None:
    table = new_table(tmp_path, **kind)
    for text in ("a", "b"):
        table.append(table_of("k v", [(k, text) for k in range(9)]))
        table.append(table_of("k v", [(k, text) for k in range(5, 12)]))
        compact(table, InProcessExecutor(), strategy="full")
    rows = rows_of(table, snapshot_id=1)
    result = rollback_as_latest(table, 1)
    expire_snapshots(table, retain_max=1)
    assert (rows_of(table), table.stores.snapshots.ids()) == (rows, [result.snapshot.id])
    table.tags.delete(result.tag)
    assert rows_of(table) == rows
    assert check(table, deep=True).findings == ()


def test_a_tag_of_an_expired_snapshot_is_a_target(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.tags.create("first")
    table.overwrite(table_of("k v", [(2, "b")]))
    expire_snapshots(table, retain_max=1)

    result = rollback_as_latest(table, tag="first")

    assert (rows_of(table), result.tag, table.tags.names()) == ([(1, "a")], "first", ["first"])
    assert check(table, deep=True).findings == ()


def test_the_schema_of_the_target_is_used(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    Catalog(str(tmp_path)).alter_table("db.t", [AddColumn(column="late", type="INT")])
    table.upsert(table_of("k v late", [(2, "b", 3)]))
    result = rollback_as_latest(table, 1)
    assert result.snapshot.schema_id == 0
    assert rows_of(table) == [(1, "a", None)]


def test_row_ids_are_not_used_again(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", row_tracking__enabled="true")
    table.append(table_of("k v", [(1, "a")]))
    table.append(table_of("k v", [(2, "b")]))
    rollback_as_latest(table, 1)
    table.append(table_of("k v", [(3, "c")]))
    assert rows_of(table, columns=["k", "_ROW_ID"]) == [(1, 0), (3, 2)]


def test_a_failed_commit_leaves_no_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    with pytest.raises(InputError, match="no snapshot to roll back from"):
        rollback_as_latest(table, 1)
    table.upsert(table_of("k v", [(1, "a")]))
    for wrong in ({"snapshot_id": 9}, {"tag": "gone"}):
        with pytest.raises(NotFoundError):
            rollback_as_latest(table, **wrong)
    with pytest.raises(InputError, match="a rollback needs"):
        rollback_as_latest(table)

    def refuse(*_: object) -> None:
        raise PaimonError("refused")

    monkeypatch.setattr(TableCommit, "_attempt", refuse)
    with pytest.raises(PaimonError, match="refused"):
        rollback_as_latest(table, 1)
    assert table.tags.names() == []


@pytest.mark.parametrize("place", ["_attempt", "_report"])
def test_a_failed_commit_keeps_a_tag_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The tag belongs to the user, or the error came after the snapshot."""
    table = new_table(tmp_path)
    for key in (1, 2):
        table.upsert(table_of("k v", [(key, "a")]))
    table.tags.create("mine", 1)

    def refuse(*_: object) -> None:
        raise PaimonError("refused")

    monkeypatch.setattr(TableCommit, place, refuse)
    with pytest.raises(PaimonError, match="refused"):
        rollback_as_latest(
            table, **({"tag": "mine"} if place == "_attempt" else {"snapshot_id": 1})
        )

    assert len(table.tags.names()) == (1 if place == "_attempt" else 2)
    assert table.tags.get("mine").id == 1


def test_a_commit_with_an_unknown_outcome_keeps_its_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot may exist, and then the tag protects its files."""
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(2, "b")]))

    def lose_answer(*_: object) -> None:
        raise CommitOutcomeUnknownError("no answer")

    monkeypatch.setattr(TableCommit, "_attempt", lose_answer)
    with pytest.raises(CommitOutcomeUnknownError, match="no answer"):
        rollback_as_latest(table, 1)

    [tag] = table.tags.names()
    assert table.tags.get(tag).id == 1


def test_a_commit_meanwhile_is_rolled_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(2, "b")]))
    interrupt_first_commit(table, monkeypatch)
    result = rollback_as_latest(table, 1)
    assert (result.snapshot.id, rows_of(table)) == (4, [(1, "a")])


def interrupt_first_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another commit win the first attempt."""
    original, calls = TableCommit._create_snapshot_file, list[int]()

    def create(self: TableCommit, *arguments: Any) -> bool:
        if not calls:
            calls.append(1)
            table.upsert(table_of("k v", [(3, "c")]))
        return original(self, *arguments)

    monkeypatch.setattr(TableCommit, "_create_snapshot_file", create)


def moved_table(root: Path) -> Table:
    """Return a table whose only file is on level 5, and was on level 0 in snapshot 1."""
    table = new_table(root)
    table.append(table_of("k v", [(k, "a") for k in range(9)]))
    compact(table, strategy="full")
    return table


def delete_entries_of(table: Table) -> int:
    snapshot = table.snapshot()
    assert snapshot is not None
    return sum(meta.num_deleted_files for meta in table.stores.manifests.manifests(snapshot))


def test_a_compaction_keeps_the_files_that_a_rollback_has_moved(tmp_path: Path) -> None:
    table = moved_table(tmp_path)
    expected = rows_of(table)

    for number in range(3):  # a compaction moves the file to level 5 again
        rollback_as_latest(table, 1)
        assert levels_of(table) == [0], number
        assert delete_entries_of(table) == 0  # else Java would lose the file in its compaction
        compact(table, strategy="full")
        assert levels_of(table) == [5]
        assert rows_of(table) == expected
    assert check(table, deep=True).findings == ()


def test_a_compaction_keeps_the_files_after_a_rollback_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java Paimon leaves DELETE entries of the files that it moves."""
    table = moved_table(tmp_path)
    expected = rows_of(table)
    monkeypatch.setattr(step, "_drop_deleted_entries", lambda _table: None)
    rollback_as_latest(table, 1)
    assert delete_entries_of(table) == 1

    compact(table, strategy="full")

    assert rows_of(table) == expected
    assert check(table, deep=True).findings == ()


def test_a_rollback_remains_if_the_merge_of_manifests_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = moved_table(tmp_path)

    def fail(_table: Table) -> None:
        raise StorageError("no space")

    monkeypatch.setattr(step, "compact_manifests", fail)
    result = rollback_as_latest(table, 1)

    assert result.snapshot.id == table.stores.snapshots.latest_id() == 3
    assert "compact its manifests" in caplog.text
