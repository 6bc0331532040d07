"""Chain tables: delta partitions are merged with the snapshot partition before them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.chains import DELTA, FULL, chain_table
from support.golden import GOLDEN, copy_warehouse
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError, NotFoundError, UnsupportedError
from paimon_orch.table.schema_change.schema_changes import AddColumn, MoveColumn


def test_a_delta_partition_is_merged_with_the_last_snapshot_partition_before_it(
    tmp_path: Path,
) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    assert rows_of(table) == [
        *FULL[:2],
        ("20250102", 1, 1, "a"),
        ("20250102", 2, 2, "b"),
        ("20250103", 1, 1, "a"),
        ("20250103", 2, 2, "b"),
        ("20250103", 3, 3, "c"),
        FULL[2],  # the snapshot branch has this partition, so its delta is not read
        ("20250105", 5, 5, "e"),
        ("20250105", 9, 9, "z"),
    ]
    catalog = Catalog(str(tmp_path))
    assert rows_of(catalog.table("db.t$branch_full")) == FULL
    assert rows_of(catalog.table("db.t$branch_delta")) == DELTA


def test_the_table_itself_has_precedence_over_its_branches(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA, [("20250103", 7, 7, "main")])
    assert rows_of(table, filter="dt = '20250103'") == [("20250103", 7, 7, "main")]
    assert rows_of(table, filter="dt = '20250102'") == [
        ("20250102", 1, 1, "a"),
        ("20250102", 2, 2, "b"),
    ]


def test_delta_partitions_without_a_snapshot_partition_are_merged_with_all_before_them(
    tmp_path: Path,
) -> None:
    table = chain_table(tmp_path, [], [("20250102", 1, 1, "a"), ("20250109", 1, 2, "b")])
    assert rows_of(table) == [("20250102", 1, 1, "a"), ("20250109", 1, 2, "b")]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("dt = '20250103'", 3),
        ("k = 1", 3),
        ("v = 'a' AND k = 2", 1),
        ("v = 'b'", 2),
        ("dt > '20250101' AND k = 2", 2),
    ],
)
def test_filters_apply_to_merged_rows(condition: str, expected: int, tmp_path: Path) -> None:
    assert len(rows_of(chain_table(tmp_path, FULL, DELTA), filter=condition)) == expected


@pytest.mark.parametrize("limit", [0, 1, 4, 10, 11])
def test_a_limit_counts_merged_rows(limit: int, tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA)
    assert len(rows_of(table, limit=limit)) == min(limit, 10)
    assert rows_of(table, columns=["k"], order_by="k desc", limit=2) == [(9,), (9,)]


def test_each_group_of_partitions_is_a_chain_of_its_own(tmp_path: Path) -> None:
    table = chain_table(
        tmp_path,
        [("x", "20250101", 1, 1, "x"), ("y", "20250102", 1, 1, "y")],
        [("x", "20250103", 2, 2, "x"), ("y", "20250101", 3, 3, "y"), ("y", "20250103", 4, 4, "y")],
        options={"chain-table.chain-partition-keys": "dt"},
        columns="g dt k seq v",
        types="g STRING, dt STRING, k INT, seq INT, v STRING",
    )
    assert [row[:3] for row in rows_of(table)] == [
        ("x", "20250101", 1),
        ("x", "20250103", 1),
        ("x", "20250103", 2),
        ("y", "20250101", 3),
        ("y", "20250102", 1),
        ("y", "20250103", 1),
        ("y", "20250103", 4),
    ]


@pytest.mark.parametrize("value", ["2025010212", "tomorrow"])
def test_partitions_that_java_would_miss_are_refused(value: str, tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, [(value, 1, 1, "a")])
    with pytest.raises(UnsupportedError, match="not the start of a day"):
        table.scan().to_arrow()


def test_chain_partition_keys_that_are_not_the_last_columns_are_refused(tmp_path: Path) -> None:
    table = chain_table(tmp_path, FULL, DELTA, options={"chain-table.chain-partition-keys": "k"})
    with pytest.raises(InputError, match=r"must name the last partition columns, .*: dt"):
        table.scan().to_arrow()


def test_a_missing_branch_is_an_error(tmp_path: Path) -> None:
    options = {"scan.fallback-delta-branch": "gone"}
    table = chain_table(tmp_path, FULL, DELTA, options=options)
    with pytest.raises(NotFoundError, match="'gone' of this chain table does not exist"):
        table.scan()


def test_branches_whose_columns_have_other_ids_are_refused(tmp_path: Path) -> None:
    table, catalog = chain_table(tmp_path, FULL, DELTA), Catalog(str(tmp_path))
    a, b = AddColumn(column="a", type="INT"), AddColumn(column="b", type="INT")
    catalog.alter_table("db.t", [a, b])
    catalog.alter_table("db.t$branch_full", [a, b])
    catalog.alter_table("db.t$branch_delta", [b, a, MoveColumn("b", "last")])

    with pytest.raises(UnsupportedError, match="the same columns with other field ids"):
        rows_of(table)
    assert len(rows_of(catalog.table("db.t$branch_full"))) == len(FULL)


def test_incremental_reads_of_the_whole_table_are_refused(tmp_path: Path) -> None:
    warehouse = copy_warehouse(GOLDEN / "java-2.0" / "chain_table", tmp_path / "w")
    catalog = Catalog(str(warehouse))
    with pytest.raises(UnsupportedError, match="read the changes of the delta branch"):
        catalog.table("db.t").incremental(1, 1)
    changes = catalog.table("db.t$branch_delta").incremental(1, 2).to_arrow()
    assert isinstance(changes, pa.Table)
    assert changes.column("rowkind").to_pylist().count("+I") == 10
