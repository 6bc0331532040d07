"""Methods of a table that run steps in this process, and its history."""

from pathlib import Path

import pytest
from support.tables import catalog_of, levels_of, new_table, rows_of, table_of

from paimon_orch import AddColumn, CommitId, InputError, SetOption, col
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path)
    for text in "ab":
        created.upsert(table_of("k v", [(1, text), (2, text), (3, None)]))
    return created


def test_compact_merges_the_files_of_a_table(table: Table) -> None:
    result = table.compact(strategy="full")

    assert result.snapshot_id == 3
    assert levels_of(table) == [5]


def test_compact_takes_partitions_and_a_filter(tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, k INT", key=("p", "k"), partition_by=["p"])
    for _ in range(2):
        table.upsert(table_of("p k", [(1, 1), (2, 1), (3, 1)]))

    table.compact(partitions=["p=1"], strategy="full")
    table.compact(where="p = 2", strategy="full")

    assert sorted(levels_of(table)) == [0, 0, 5, 5]


def test_delete_takes_a_filter(table: Table) -> None:
    snapshot = table.delete("v = 'b' AND k > 1")

    assert snapshot == table.snapshot()
    assert rows_of(table) == [(1, "b"), (3, None)]
    assert table.delete(col("k") == 99) is None
    table.delete(col("v").is_null())
    assert rows_of(table) == [(1, "b")]


def test_delete_by_a_filter_works_without_a_primary_key(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(1, "a"), (2, "b")]))

    table.delete("k = 1")

    assert rows_of(table) == [(2, "b")]
    with pytest.raises(InputError, match=r'by a filter: table\.delete\("id = 3"\)'):
        table.delete(table_of("k", [(2,)]))


def test_delete_by_a_filter_takes_no_commit_id(table: Table) -> None:
    with pytest.raises(InputError, match="takes no commit_id"):
        table.delete("k = 1", commit_id=CommitId("job", 1))

    assert len(rows_of(table)) == 3


def test_the_history_is_newest_first_and_snapshots_are_oldest_first(table: Table) -> None:
    assert [snapshot.id for snapshot in table.history()] == [2, 1]
    assert [snapshot.id for snapshot in table.history(1)] == [2]
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2]


def test_a_table_without_snapshots_has_no_history(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    assert table.history() == table.snapshots() == []


def test_schema_changes_are_public(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    options = SetOption("snapshot.num-retained.max", "50")
    schema = catalog_of(table).alter_table("db.t", [AddColumn(column="n", type="INT"), options])

    assert schema.names == ["k", "v", "n"]
