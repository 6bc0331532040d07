"""Sort compaction with Spark: rows are sorted or clustered, and races lose no rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support.tables import assert_healthy, new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import InputError
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.spark.frame_executor import SparkFrameExecutor
from paimon_orch.spark.sort_compact import run_sort, sort_table
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.compaction.policy import OrderStrategy
from paimon_orch.steps.compaction.sort_compact import SortOrder, SortRequest, plan
from paimon_orch.steps.row_level.row_level_write import delete
from paimon_orch.table.schema_change.schema_changes import AddColumn, DropColumn, UpdateDefault
from paimon_orch.table.table import Table


def grid(root: Path, **options: str) -> Table:
    """All points of a square in each of two partitions, in random order."""
    table = new_table(
        root,
        "p STRING, x INT, y INT",
        key=(),
        partition_by=["p"],
        **{"bucket": "-1", "target_file_size": "4 kb"} | options,
    )
    points = [(p, x, y) for p in ("a", "b") for x in range(40) for y in range(40)]
    shuffled = np.random.default_rng(1).permutation(len(points))
    for part in np.array_split(shuffled, 3):
        table.append(table_of("p x y", [points[position] for position in part]))
    return table


def widths(table: Table, column: str) -> list[int]:
    """The distance between the smallest and the largest value of each file of partition a."""
    (split,) = [split for split in table.files() if b"a" in split.partition]
    distances = []
    for file in split.files:
        rows = pa.Table.from_batches(
            table.stores.reader().read(
                bucket_file(split, file), table.load().schema.select([column])
            )
        )
        values = rows[column].to_numpy()
        distances.append(int(values.max() - values.min()))
    return distances


def bucket_file(split: Any, file: Any) -> Any:
    from paimon_orch.files.data_file_reader import BucketFile

    return BucketFile(split.partition, split.bucket, file)


@pytest.mark.slow
def test_rows_of_a_partition_are_sorted(spark: SparkSession, tmp_path: Path) -> None:
    table = grid(tmp_path)
    before = rows_of(table)

    result = sort_table(spark, table, SortOrder(("x", "y")), partitions=["p=a"])

    snapshot = table.snapshot()
    assert snapshot is not None
    assert (result.snapshot_id, snapshot.commit_kind) == (snapshot.id, CommitKind.OVERWRITE)
    assert result.rows_written == 1600
    assert rows_of(table) == before
    assert_healthy(table)
    (split,) = [split for split in table.files() if b"a" in split.partition]
    assert len(split.files) > 1
    assert max(widths(table, "x")) < 39


@pytest.mark.sampled(1)
@pytest.mark.parametrize("strategy", ["zorder", "hilbert"])
def test_neighboring_points_are_in_one_file(
    spark: SparkSession, tmp_path: Path, strategy: OrderStrategy
) -> None:
    table = grid(tmp_path, target_file_size="1 kb")
    before = rows_of(table)

    sort_table(spark, table, SortOrder(("x", "y"), strategy))

    assert rows_of(table) == before
    assert_healthy(table)
    for column in ("x", "y"):
        # Range bounds are estimated from a sample, so the files overlap a little.
        assert np.mean(widths(table, column)) < 39 * 0.9


@pytest.mark.slow
def test_rows_inserted_during_the_sort_are_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    table = grid(tmp_path)
    races = [lambda: table.append(table_of("p x y", [("a", 1000, 0)]))]

    def progress(done: int, total: int) -> None:
        if races and done == total:
            races.pop()()

    result = sort_table(spark, table, SortOrder(("x",)), progress=progress)

    assert result.attempts == 1
    assert len(rows_of(table)) == 3201


def test_rows_deleted_during_the_sort_remain_deleted(spark: SparkSession, tmp_path: Path) -> None:
    table = grid(tmp_path, deletion_vectors__enabled="true")
    races = [lambda: delete(table, InProcessExecutor(), "x = 7")]

    def progress(done: int, total: int) -> None:
        if races and done == total:
            races.pop()()

    result = sort_table(spark, table, SortOrder(("x",)), progress=progress)

    assert result.attempts == 2
    assert len(rows_of(table)) == 3120
    assert_healthy(table)


@pytest.mark.slow
def test_sorted_rows_keep_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    table = grid(tmp_path, row_tracking__enabled="true")
    columns = ["p", "x", "y", "_ROW_ID", "_SEQUENCE_NUMBER"]
    before = rows_of(table, columns=columns)

    sort_table(spark, table, SortOrder(("x", "y"), "hilbert"))

    assert rows_of(table, columns=columns) == before
    assert_healthy(table)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tracking", ["false", "true"])
def test_nulls_are_kept_if_the_column_received_a_default_later(
    spark: SparkSession, tmp_path: Path, tracking: str
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1", row_tracking__enabled=tracking)
    table.append(table_of("k v", [(2, None), (1, "a")]))
    Catalog(str(tmp_path)).alter_table("db.t", [UpdateDefault("v", "unknown")])

    sort_table(spark, table, SortOrder(("k",)))

    assert rows_of(table) == [(1, "a"), (2, None)]


def test_column_names_can_contain_dots(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, "`x.y` INT, z INT", key=(), bucket="-1")
    table.append(table_of("x.y z", [(2, 1), (1, 2)]))

    sort_table(spark, table, SortOrder(("x.y",)))

    assert table.scan().to_arrow().column("x.y").to_pylist() == [1, 2]


@pytest.mark.parametrize("strategy", ["order", "zorder"])
def test_column_names_can_differ_in_case_only(
    spark: SparkSession, tmp_path: Path, strategy: OrderStrategy
) -> None:
    table = new_table(tmp_path, "x INT, X INT", key=(), bucket="-1")
    table.append(table_of("x X", [(1, 2), (2, 1)]))

    sort_table(spark, table, SortOrder(("X",), strategy))

    assert table.scan().to_arrow().column("x").to_pylist() == [2, 1]


def test_rows_that_were_planned_before_a_schema_change_keep_their_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    table.append(table_of("k v", [(2, "b"), (1, "a")]))
    planned = plan(table, SortRequest(order=SortOrder(("k",))))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [DropColumn("v")])
    added = [AddColumn(column="v", type="STRING"), AddColumn(column="w", type="INT")]
    catalog.alter_table("db.t", added)

    run_sort(spark, table, planned)

    assert rows_of(catalog.table("db.t")) == [(1, None, None), (2, None, None)]


def test_an_empty_table_has_nothing_to_sort(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")

    assert sort_table(spark, table, SortOrder(("k",))).snapshot_id is None


def test_every_front_end_sorts_by_the_arguments_of_compact(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for number in (2, 1):
        table.append(table_of("k v", [(number, "a")]))
    arguments = {"order_by": ["k"], "order_strategy": "zorder"}

    report = run_declared_step(
        "compact", table, arguments, SparkFrameExecutor(spark), dry_run=False
    )

    assert report["outcome"]["files_after"] == 1  # type: ignore[index]
    assert table.scan().to_arrow()["k"].to_pylist() == [1, 2]
    with pytest.raises(InputError, match="order_by sorts on Spark: it cannot be used with"):
        compact(table, InProcessExecutor(), order_by=["k"])
    with pytest.raises(InputError, match="order_by cannot be combined with buckets; it sorts"):
        compact(table, SparkFrameExecutor(spark), order_by=["k"], buckets=[0])
