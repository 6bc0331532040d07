"""Writes of frames: rows are routed to buckets, one task per bucket; the last row of a key wins."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn
from support.tables import assert_healthy, levels_of, new_table, rows_of, stored_files

from paimon_orch import Catalog
from paimon_orch.errors import InputError, PaimonError, StorageError
from paimon_orch.files.data_file_reader import BucketFile
from paimon_orch.format.bucket.bucket_function import compute_buckets
from paimon_orch.spark import frame_writer
from paimon_orch.spark.update_and_merge import update
from paimon_orch.table.schema_change.schema_changes import UpdateDefault
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.table_write import write_rows
from paimon_orch.table.write.write_plan import WritePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
    return spark.createDataFrame(rows, schema)


KEYED = "k bigint, v string"


def test_rows_are_written_to_their_hash_bucket_in_one_file_per_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, bucket="5")
    frame = spark.range(0, 500, 1, 4).selectExpr("id AS k", "CAST(id AS STRING) AS v")

    result = frame_writer.write(frame, table)

    splits = table.files()
    assert {split.bucket for split in splits} == set(range(5))
    assert result.files == 5
    for split in splits:
        (file,) = split.files
        bucket_file = BucketFile(split.partition, split.bucket, file)
        for batch in table.stores.reader().read(bucket_file, [table.load().schema.field("k")]):
            types = [table.load().schema.field("k").type]
            assert set(compute_buckets([batch["k"]], types, 5)) == {split.bucket}
    assert rows_of(table) == [(k, str(k)) for k in range(500)]
    assert (result.snapshot_id, result.rows) == (1, 500)
    assert_healthy(table)


@pytest.mark.slow
def test_the_last_row_of_a_key_in_the_frame_wins(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="3")
    rows = [
        (k % 40, f"{number:04}")
        for number, k in enumerate(np.random.default_rng(5).permutation(400))
    ]
    frame = frame_of(spark, [(int(k), v) for k, v in rows], KEYED)

    frame_writer.write(frame, table)

    assert rows_of(table) == sorted({int(k): v for k, v in rows}.items())
    assert_healthy(table)


def test_column_names_and_timestamps_are_stored_as_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "`k.x` INT NOT NULL, `n.` TIMESTAMP(3) NOT NULL, `with blank` TIMESTAMP_LTZ(6)"
    table = new_table(tmp_path, columns, key=["k.x", "n."], bucket="2")
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "America/New_York")
    try:
        moment, clock = "timestamp'2026-07-01 12:00:00'", "timestamp_ntz'2026-07-01 12:00:00'"
        frame = spark.sql(f"SELECT 1 AS `k.x`, {moment} AS `n.`, {clock} AS `with blank`")
        frame_writer.write(frame, table)
    finally:
        spark.conf.set(zone, str(before))

    noon = datetime(2026, 7, 1, 12)
    assert rows_of(table) == [(1, noon, datetime(2026, 7, 1, 16, tzinfo=ZoneInfo("UTC")))]


def test_nested_timestamps_are_cast_in_the_time_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    nested = "ROW<l TIMESTAMP(6) WITH LOCAL TIME ZONE, n TIMESTAMP(6), v INT>"
    columns = f"k INT NOT NULL, a ARRAY<{nested}>, m MAP<STRING, TIMESTAMP(6)>"
    table = new_table(tmp_path, columns, key=["k"], bucket="1")
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "America/New_York")
    try:
        moment, clock = "timestamp'2026-07-01 12:00:00'", "timestamp_ntz'2026-07-01 12:00:00'"
        row = f"named_struct('l', {clock}, 'n', {moment}, 'v', 1)"
        frame = spark.sql(f"SELECT 1 AS k, array({row}, NULL) AS a, map('x', {moment}) AS m")
        frame_writer.write(frame, table)
    finally:
        spark.conf.set(zone, str(before))

    noon, instant = datetime(2026, 7, 1, 12), datetime(2026, 7, 1, 16, tzinfo=ZoneInfo("UTC"))
    assert rows_of(table) == [(1, [{"l": instant, "n": noon, "v": 1}, None], [("x", noon)])]


@pytest.mark.slow
def test_a_later_write_wins_over_an_earlier_one(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    frame_writer.write(frame_of(spark, [(1, "a"), (2, "b")], KEYED).repartition(3), table)
    frame_writer.write(frame_of(spark, [(1, "c")], KEYED), table)

    assert rows_of(table) == [(1, "c"), (2, "b")]
    low = [file.min_sequence_number for split in table.files() for file in split.files]
    assert len(set(low)) == len(low)


@pytest.mark.slow
def test_rows_of_kind_delete_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    frame_writer.write(frame_of(spark, [(1, "a"), (2, "b")], KEYED), table)

    rows = [(1, None, "-D"), (3, "c", "+I")]
    frame_writer.write(frame_of(spark, rows, f"{KEYED}, op string"), table, row_kind="op")

    assert rows_of(table) == [(2, "b"), (3, "c")]


def test_each_bucket_of_a_partition_is_written_by_one_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(
        tmp_path, "p STRING, k BIGINT, v STRING", key=("p", "k"), partition_by=["p"], bucket="2"
    )
    rows = [(p, k, "x") for p in ("a", "b/c", "") for k in range(30)]

    result = frame_writer.write(frame_of(spark, rows, f"p string, {KEYED}").repartition(3), table)

    assert result.files == len(table.files()) == 6
    assert rows_of(table) == sorted(rows)
    assert_healthy(table)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bucket", ["-1", "3"])
def test_tables_without_key_keep_every_row(
    spark: SparkSession, tmp_path: Path, bucket: str
) -> None:
    options = {"bucket_key": "k"} if bucket == "3" else {}
    table = new_table(tmp_path, key=(), bucket=bucket, **options)
    rows = [(k % 10, "x") for k in range(100)]

    frame_writer.write(frame_of(spark, rows, KEYED).repartition(3), table)
    frame_writer.write(frame_of(spark, [(None, None)], KEYED), table)

    assert sorted(rows_of(table), key=str) == sorted([*rows, (None, None)], key=str)
    assert_healthy(table)


def partitioned(root: Path, **options: str) -> Table:
    return new_table(
        root, "p INT, k BIGINT, v STRING", key=("p", "k"), partition_by=["p"], **options
    )


PARTITIONED = "p int, k bigint, v string"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("dynamic", "expected"), [("true", [(1, 9, "new"), (2, 2, "old")]), ("false", [(1, 9, "new")])]
)
def test_an_overwrite_replaces_partitions_or_the_whole_table(
    spark: SparkSession, tmp_path: Path, dynamic: str, expected: list[tuple[int, int, str]]
) -> None:
    table = partitioned(tmp_path, dynamic_partition_overwrite=dynamic)
    frame_writer.write(frame_of(spark, [(1, 1, "old"), (2, 2, "old")], PARTITIONED), table)

    frame_writer.write(frame_of(spark, [(1, 9, "new")], PARTITIONED), table, mode="overwrite")

    assert rows_of(table) == expected
    assert_healthy(table)


def test_a_frame_without_rows_creates_no_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)

    result = frame_writer.write(frame_of(spark, [], KEYED), table)

    assert (result.snapshot_id, result.rows, table.snapshot()) == (None, 0, None)


def test_a_row_that_does_not_fit_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, v INT", bucket="4")
    before = stored_files(table)
    rows = [(k, "7" if k != 77 else "seven") for k in range(100)]

    with pytest.raises(
        InputError, match=r"column 'v' is string and cannot be stored as INT.*seven"
    ):
        frame_writer.write(frame_of(spark, rows, KEYED).repartition(3), table)

    assert stored_files(table) == before


def test_wrong_columns_are_refused_before_spark_runs(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(InputError, match="missing v; unknown x"):
        frame_writer.write(frame_of(spark, [(1, "a")], "k bigint, x string"), table)


def test_a_retried_task_adds_no_row_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The first attempt writes its file and then exits, as after a crash of its machine."""
    table = new_table(tmp_path)
    mark = tmp_path / "tried"

    def exit_after_the_first_write(plan: WritePlan, parts: Iterable[pa.Table]) -> CommitMessage:
        message = write_rows(plan, parts)
        if not mark.exists():
            mark.touch()
            raise StorageError("the machine went away")
        return message

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_writer, "write_rows", exit_after_the_first_write)
        frame_writer.write(frame_of(spark, [(1, "a"), (2, "b")], KEYED), table)

    assert mark.exists()
    assert levels_of(table) == [0]
    assert rows_of(table) == [(1, "a"), (2, "b")]


def test_frames_from_pandas_are_written(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, "k BIGINT, at TIMESTAMP(3), n INT", bucket="2")
    frame = pd.DataFrame({"k": [1, 2], "at": [pd.Timestamp("2026-01-01"), pd.NaT], "n": [1, 2]})

    frame_writer.write(spark.createDataFrame(frame), table)

    assert rows_of(table, filter="at is not null") == [(1, pd.Timestamp("2026-01-01"), 1)]


@pytest.mark.slow
def test_an_error_of_the_frame_is_raised(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    before = stored_files(table)
    frame = spark.range(5).selectExpr("id AS k", "CAST(raise_error('no luck') AS STRING) AS v")

    with pytest.raises((PaimonError, PySparkException), match="no luck"):
        frame_writer.write(frame, table)

    assert stored_files(table) == before


@pytest.mark.slow
def test_keys_keep_their_dynamic_bucket(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "p INT, k BIGINT, v STRING",
        key=("p", "k"),
        partition_by=["p"],
        bucket="-1",
        dynamic_bucket__target_row_num="10",
    )
    frame = spark.range(0, 90, 1, 4).selectExpr(
        # A partition has two notations, such as "1" and "01".
        "CASE WHEN id % 2 = 0 THEN CAST(id % 3 AS STRING) ELSE '0' || CAST(id % 3 AS STRING) END AS p",
        "id AS k",
        "'a' AS v",
    )

    frame_writer.write(frame, table)
    frame_writer.write(frame.withColumn("v", fn.lit("b")), table)

    assert sorted(split.bucket for split in table.files()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert rows_of(table) == sorted((k % 3, k, "b") for k in range(90))
    assert_healthy(table)


@pytest.mark.slow
def test_rows_with_the_default_partition_are_sent_to_the_task_of_that_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(
        tmp_path, "p STRING, k BIGINT", key=("p", "k"), partition_by=["p"], bucket="-1"
    )
    # With this default, null and "z" are one partition, although they are different values.
    Catalog(str(tmp_path)).alter_table("db.t", [UpdateDefault("p", "z")])

    frame_writer.write(frame_of(spark, [("z", 1), (None, 2)], "p string, k bigint"), table)

    assert rows_of(table) == [("z", 1), ("z", 2)]
    assert_healthy(table)


@pytest.mark.slow
def test_one_task_assigns_the_dynamic_buckets_of_a_table_without_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, bucket="-1", dynamic_bucket__target_row_num="20")
    frame = spark.range(0, 50, 1, 4).selectExpr("id AS k", "CAST(id AS STRING) AS v")

    frame_writer.write(frame, table)
    frame_writer.write(frame, table, mode="overwrite")

    assert sorted(split.bucket for split in table.files()) == [0, 1, 2]
    assert len(rows_of(table)) == 50
    assert_healthy(table)


def test_a_static_overwrite_replaces_only_its_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "p STRING, k BIGINT", key=(), partition_by=["p"], bucket="-1")
    frame_writer.write(
        frame_of(spark, [("a", 1), ("b", 2), (None, 3)], "p string, k bigint"), table
    )
    new = frame_of(spark, [(None, 9)], "p string, k bigint")
    null = {"p": "__DEFAULT_PARTITION__"}

    frame_writer.write(new, table, mode="overwrite", partitions=null)

    assert rows_of(table) == [(None, 9), ("a", 1), ("b", 2)]
    files = stored_files(table)
    with pytest.raises(InputError, match="not all rows are in the partition"):
        frame_writer.write(new, table, mode="overwrite", partitions={"p": "a"})
    with pytest.raises(InputError, match="can only be set for an overwrite"):
        frame_writer.write(new, table, partitions=null)
    with pytest.raises(InputError, match="'k' is not a partition column"):
        frame_writer.write(new, table, mode="overwrite", partitions={"k": 1})
    assert stored_files(table) == files


def save(frame: DataFrame, table: Table) -> None:
    """Write a frame with the data source."""
    address = {"warehouse": table.paths.root.removesuffix("/db.db/t"), "table": "db.t"}
    frame.write.format("paimon").mode("append").options(**address).save()


def test_integers_of_spark_are_stored_as_times(spark: SparkSession, tmp_path: Path) -> None:
    nested = new_table(tmp_path / "nested", "t TIME(3), a ARRAY<TIME(3)>", key=(), bucket="-1")
    frame = spark.sql("SELECT 3723004 AS t, array(5) AS a")

    frame_writer.write(frame, nested)
    save(frame, nested)

    assert rows_of(nested) == [(time(1, 2, 3, 4000), [time(0, 0, 0, 5000)])] * 2

    table = new_table(tmp_path, "t TIME(3), n INT, l BIGINT, at TIMESTAMP(9)", key=(), bucket="-1")
    frame_writer.write(frame.select("t"), table)
    update(spark, table, {"t": "t + 1", "at": "1L", "l": "n"})

    assert rows_of(table)[0][0] == time(1, 2, 3, 5000)
    assert table.scan(["at"]).to_arrow()["at"].cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("n", "date'2024-01-01'"),
        ("l", "timestamp'2024-01-01'"),
        ("n", "true"),
        ("b", "1"),
        ("at", "timestamp'2024-01-01'"),
    ],
)
def test_updates_of_spark_refuse_kinds_of_values_that_a_column_does_not_store(
    spark: SparkSession, tmp_path: Path, column: str, value: str
) -> None:
    table = new_table(tmp_path, "n INT, l BIGINT, b BOOLEAN, at TIMESTAMP(9)", key=(), bucket="-1")

    with pytest.raises(InputError, match=rf"column '{column}' is .* is not stored as"):
        update(spark, table, {column: value})


def test_writes_of_spark_refuse_kinds_of_values_that_a_column_does_not_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "n INT", key=(), bucket="-1")
    frame = spark.sql("SELECT date'2024-01-01' AS n")

    with pytest.raises(InputError, match=r"column 'n' is .* is not stored as"):
        frame_writer.write(frame, table)
    with pytest.raises(PySparkException, match=r"column 'n' is .* is not stored as"):
        save(frame, table)
    assert table.snapshot() is None
