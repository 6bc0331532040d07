"""Deletes and overwrites of whole tables and partitions, including the null partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.table.commit.commit_id import CommitId
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table

ROWS = [("a", 1, "x"), ("a", 2, "y"), ("b", 1, "z"), (None, 1, "n")]
NULL = "__DEFAULT_PARTITION__"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return an append table; a primary key would not allow the null partition."""
    table = new_table(
        tmp_path, "dt STRING, k INT, v STRING", key=(), partition_by=("dt",), bucket="-1"
    )
    table.append(table_of("dt k v", ROWS))
    return table


def remaining_rows(table: Table) -> set[tuple[Any, ...]]:
    return set(rows_of(table))


def test_truncate_deletes_all_rows_and_older_snapshots_keep_them(table: Table) -> None:
    files = stored_files(table)

    snapshot = table.truncate()

    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (0, -4)
    assert remaining_rows(table) == set()
    assert len(rows_of(table, snapshot_id=1)) == 4
    assert files <= stored_files(table)
    assert_healthy(table)


def test_truncating_an_empty_table_commits_nothing(table: Table) -> None:
    table.truncate()

    assert table.truncate() is None
    assert table.stores.snapshots.latest_id() == 2


@pytest.mark.parametrize(
    ("partitions", "dropped"),
    [
        (["dt=a"], {"a"}),
        ([{"dt": "a"}, "dt=b"], {"a", "b"}),
        ([f"dt={NULL}"], {None}),
        ([{"dt": None}], {None}),
        ([{"dt": NULL}, {"dt": "a"}], {None, "a"}),
    ],
)
def test_dropped_partitions_lose_their_rows_and_others_keep_them(
    table: Table, partitions: Iterable[Any], dropped: set[str | None]
) -> None:
    table.drop_partitions(partitions)

    assert remaining_rows(table) == {row for row in ROWS if row[0] not in dropped}
    assert_healthy(table)


def test_a_partial_spec_drops_every_matching_partition(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "a INT, b STRING, v INT", key=(), partition_by=("a", "b"), bucket="-1"
    )
    table.append(table_of("a b v", [(1, "x", 1), (1, "y", 2), (2, "x", 3)]))

    table.drop_partitions(["a=1"])

    assert remaining_rows(table) == {(2, "x", 3)}


@pytest.mark.parametrize(
    ("partitions", "error", "message"),
    [
        (["dt=a", "dt=nope"], NotFoundError, "has no partition dt=nope"),
        (["dt=a,dt=b"], InputError, "has two values of 'dt'"),
        (["dt=a;dt=b"], NotFoundError, "has no partition dt=a;dt=b"),
        ([], InputError, "must name at least one partition"),
        ([{}], InputError, "must name at least one partition"),
        ([{"dt": "a"}, {}], InputError, "must name at least one partition"),
        ([{"k": 1}], NotFoundError, "'k' is not a partition column"),
        ([""], InputError, "must look like"),
    ],
)
def test_partitions_that_are_misspelled_or_missing_are_refused_by_every_call(
    table: Table, partitions: list[Any], error: type[Exception], message: str
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: table.drop_partitions(partitions),
        lambda: compact(table, partitions=partitions),
    ]
    if partitions[1:] != ["dt=nope"] and partitions != ["dt=a;dt=b"]:  # an overwrite creates them
        calls.append(lambda: table.overwrite(table_of("dt k v", ROWS[:1]), partitions))
    for call in calls:
        with pytest.raises(error, match=message):
            call()
    assert table.stores.snapshots.latest_id() == 1


def test_a_drop_of_partitions_can_be_repeated_with_its_commit_id(table: Table) -> None:
    commit_id = CommitId("cleanup", 7)
    snapshot = table.drop_partitions(["dt=a"], commit_id=commit_id)

    assert table.drop_partitions(["dt=a"], commit_id=commit_id) == snapshot
    with pytest.raises(NotFoundError, match="has no partition dt=a"):
        table.drop_partitions(["dt=a"])

    assert table.stores.snapshots.latest_id() == 2


def test_no_partition_is_dropped_from_a_table_without_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    with pytest.raises(NotFoundError, match="'dt' is not a partition column"):
        table.drop_partitions(["dt=a"])
    assert len(rows_of(table)) == 1


@pytest.mark.parametrize("spec", [{"dt": None}, {"dt": NULL}])
def test_only_the_null_partition_is_overwritten(table: Table, spec: dict[str, Any]) -> None:
    table.overwrite(table_of("dt k v", [(None, 9, "new")]), spec)

    assert remaining_rows(table) == {*ROWS[:3], (None, 9, "new")}


def test_an_overwrite_of_a_table_without_partitions_replaces_all_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT", key=(), bucket="-1")
    for keys, expected in (((1, 2), [(1,), (2,)]), ((3,), [(3,)]), ((), [])):
        table.overwrite(table_of("k", [(key,) for key in keys]))
        assert rows_of(table) == expected


@pytest.mark.parametrize(
    ("dynamic", "spec", "expected"),
    [
        ("true", None, {("a", 9, "new"), ("b", 1, "z"), (None, 1, "n")}),
        ("true", {}, {("a", 9, "new")}),
        ("false", None, {("a", 9, "new")}),
        ("false", {}, {("a", 9, "new")}),
        ("false", {"dt": "a"}, {("a", 9, "new"), ("b", 1, "z"), (None, 1, "n")}),
    ],
)
def test_an_overwrite_replaces_the_partitions_of_its_rows_or_all(
    table: Table, tmp_path: Path, dynamic: str, spec: Any, expected: set[tuple[Any, ...]]
) -> None:
    option = SetOption("dynamic-partition-overwrite", dynamic)
    Catalog(str(tmp_path)).alter_table("db.t", [option])
    rows = table_of("dt k v", [("a", 9, "new")])

    Catalog(str(tmp_path)).table("db.t").overwrite(rows, spec)

    assert remaining_rows(table) == expected


def test_a_static_overwrite_without_rows_empties_its_partition(table: Table) -> None:
    empty = table_of("dt k v", ROWS).slice(0, 0)

    snapshot = table.overwrite(empty, {"dt": "a"})

    assert snapshot is not None
    assert remaining_rows(table) == {*ROWS[2:]}


@pytest.mark.parametrize("partition_by", [[], ["k"]])
def test_an_overwrite_of_another_column_is_refused(tmp_path: Path, partition_by: list[str]) -> None:
    table = new_table(tmp_path, "k INT, dt STRING", key=(), partition_by=partition_by, bucket="-1")
    table.append(table_of("k dt", [(1, "a"), (2, "b")]))
    files = stored_files(table)

    with pytest.raises(NotFoundError, match="'dt' is not a partition column"):
        table.overwrite(table_of("k dt", [(3, "a")]), {"dt": "a"})

    assert rows_of(table) == [(1, "a"), (2, "b")]
    assert stored_files(table) == files


def test_a_static_overwrite_refuses_rows_of_other_partitions(table: Table) -> None:
    files = stored_files(table)

    with pytest.raises(InputError, match="partition"):
        table.overwrite(table_of("dt k v", ROWS), {"dt": "a"})

    assert remaining_rows(table) == set(ROWS)
    assert stored_files(table) == files


def test_a_dropped_table_leaves_no_file_and_its_name_can_be_reused(
    table: Table, tmp_path: Path
) -> None:
    catalog = Catalog(str(tmp_path))

    catalog.drop_table("db.t")

    assert catalog.tables("db") == []
    assert not Path(table.paths.root).exists()
    with pytest.raises(NotFoundError, match=r"db\.t"):
        catalog.drop_table("db.t")
    catalog.drop_table("db.t", if_exists=True)
    assert remaining_rows(new_table(tmp_path)) == set()


def test_a_database_with_tables_is_dropped_only_on_request(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))

    with pytest.raises(InputError, match="t; drop them first"):
        catalog.drop_database("db")
    assert remaining_rows(table) == set(ROWS)
    catalog.drop_database("db", cascade=True)

    assert catalog.databases() == []
    with pytest.raises(NotFoundError, match="no database 'db'"):
        catalog.drop_database("db")
    catalog.drop_database("db", if_exists=True)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x"])
def test_a_database_name_cannot_leave_the_warehouse(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="database name"):
        Catalog(str(tmp_path)).drop_database(name, cascade=True, if_exists=True)
