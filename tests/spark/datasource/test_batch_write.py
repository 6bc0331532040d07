"""The data source writes each row once, and warns if another function is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn
from support.tables import assert_healthy, new_table, rows_of, stored_files, table_of

from paimon_orch.errors import InputError
from paimon_orch.format.types.data_types import Field, parse_type
from paimon_orch.spark import write
from paimon_orch.spark.column_types import cast_timestamps_as_spark
from paimon_orch.spark.datasource.batch_write import PaimonWriter, build_writer
from paimon_orch.spark.datasource.task_write import TaskCommitMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from paimon_orch.table.table import Table


def path_options(table: Table) -> dict[str, str]:
    return {"warehouse": table.paths.root.removesuffix("/db.db/t"), "table": "db.t"}


def data_files(table: Table) -> list[str]:
    return [path for path in stored_files(table) if "/data-" in path]


def save(frame: DataFrame, table: Table, mode: str = "append", **options: str) -> None:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    frame.write.format("paimon").mode(mode).options(**path_options(table) | named).save()


def test_rows_are_written_and_the_last_row_of_a_key_wins(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, bucket="2")
    rows = spark.range(0, 40, 1, 4).selectExpr("id % 7 AS k", "CAST(id AS STRING) AS v")

    save(rows, table, commit_user="etl", commit_identifier="7")
    save(rows, table, commit_user="etl", commit_identifier="7")

    assert rows_of(table) == sorted({k % 7: str(k) for k in range(40)}.items())
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.id == 1
    assert_healthy(table)


def test_timestamps_use_the_time_zone_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(
        tmp_path, "n TIMESTAMP(3), l TIMESTAMP_LTZ(6), d TIMESTAMP_LTZ(3)", key=(), bucket="-1"
    )
    moments = "timestamp'2026-07-01 12:00:00' AS n, timestamp_ntz'2026-07-01 12:00:00' AS l"
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "America/New_York")
    try:
        save(spark.sql(f"SELECT {moments}, date'2026-01-01' AS d"), table)
    finally:
        spark.conf.set(zone, str(before))

    utc = ZoneInfo("UTC")
    noon = datetime(2026, 7, 1, 12)
    assert rows_of(table) == [
        (noon, datetime(2026, 7, 1, 16, tzinfo=utc), datetime(2026, 1, 1, 5, tzinfo=utc))
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "PST", "GMT+05:30", "UTC+1", "Z", "+08"])
def test_times_are_stored_as_spark_casts_them_in_any_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    columns = "i BIGINT, n TIMESTAMP(6), l TIMESTAMP_LTZ(6), local STRING, micros BIGINT"
    table = new_table(tmp_path, columns, key=(), bucket="-1")
    # a quarter of an hour each, around both changes of the clocks
    changes = [start + 900 * n for start in (1710054000, 1730610000) for n in range(24)]
    setting = "spark.sql.session.timeZone"
    before = spark.conf.get(setting)
    spark.conf.set(setting, zone)
    try:
        frame = (
            spark.createDataFrame([(second,) for second in changes], "i BIGINT")
            .withColumn("n", fn.timestamp_seconds("i"))
            .withColumn("l", fn.col("n").cast("timestamp_ntz"))
            .withColumn("local", fn.col("l").cast("string"))
            .withColumn("micros", fn.unix_micros(fn.col("l").cast("timestamp")))
        )
        save(frame, table)
        write(frame, table)
    finally:
        spark.conf.set(setting, str(before))

    stored = table.scan().to_arrow().to_pylist()
    assert len(stored) == 2 * len(changes)
    for row in stored:
        assert str(row["n"]) == row["local"]
        assert row["l"] == datetime.fromtimestamp(row["micros"] / 10**6, ZoneInfo("UTC"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", [str, "ARRAY<{}>".format, "MAP<INT, {}>".format, "ROW<x {}>".format,
                                    "ARRAY<ROW<x MAP<{0}, {0}>>>".format])  # fmt: skip
def test_nested_times_are_stored_as_spark_casts_them(
    spark: SparkSession, tmp_path: Path, change: Callable[[str], str]
) -> None:
    kinds = {"n": "TIMESTAMP(6)", "l": "TIMESTAMP_LTZ(6)", "d": "TIMESTAMP_LTZ(6)"}
    columns = ", ".join(f"{name} {change(kind)}" for name, kind in kinds.items())
    table = new_table(tmp_path, columns, key=(), bucket="-1")
    sources = {"n": "timestamp", "l": "timestamp_ntz", "d": "date"}
    targets = {"n": "timestamp_ntz", "l": "timestamp", "d": "timestamp"}
    moments = {
        "n": "timestamp'2026-07-01 12:00:00'",
        "l": "timestamp_ntz'2026-07-01 12:00:00'",
        "d": "date'2026-01-01'",
    }

    def build_value(moment: str) -> str:
        kind = change("?")
        value = moment
        if "MAP<?" in kind:
            value = f"map({value}, {value})"
        elif "MAP" in kind:
            value = f"map(1, {value})"
        if "ROW" in kind:
            value = f"named_struct('x', {value})"
        return f"array({value}, NULL)" if "ARRAY" in kind else value

    def build_type(kind: str) -> str:
        return change(kind).replace("ROW<x ", "STRUCT<x: ")

    setting = "spark.sql.session.timeZone"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "America/New_York")
    try:
        values = {
            name: f"CAST({build_value(moment)} AS {build_type(sources[name])})"
            for name, moment in moments.items()
        }
        rows = ", ".join(f"{value} AS {name}" for name, value in values.items())
        save(spark.sql(f"SELECT {rows} UNION ALL SELECT NULL, NULL, NULL"), table)
        casts = ", ".join(
            f"CAST(CAST({value} AS {build_type(targets[name])}) AS STRING) AS {name}"
            for name, value in values.items()
        )
        expected = [*spark.sql(f"SELECT {casts}").collect(), (None, None, None)]
        read = spark.read.format("paimon").options(**path_options(table)).load()
        actual = read.selectExpr(*(f"CAST({name} AS STRING)" for name in kinds)).collect()
    finally:
        spark.conf.set(setting, str(before))

    assert sorted(map(tuple, actual), key=str) == sorted(map(tuple, expected), key=str)


def test_a_timestamp_in_an_unknown_time_zone_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"l": pa.array([0], pa.timestamp("us"))})
    fields = [Field(id=0, name="l", type=parse_type("TIMESTAMP(6) WITH LOCAL TIME ZONE"))]

    with pytest.raises(
        InputError, match=r"'l' .* the time zone of the session is unknown; cast it"
    ):
        cast_timestamps_as_spark(batch, fields, None)


def test_a_table_without_key_refuses_deletes(tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    rows = table_of("k v op", [(1, "a", "+I"), (2, "b", "-D")]).to_batches()
    writer = build_writer(
        path_options(table) | {"row-kind": "op"}, ["k", "v", "op"], overwrite=False
    )
    assert isinstance(writer, PaimonWriter)

    with pytest.raises(InputError, match="without a primary key does not accept"):
        writer.write(iter(rows))
    assert data_files(table) == []


def test_a_key_to_delete_is_not_rounded(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k DECIMAL(5, 1), v INT")
    table.upsert(table_of("k v", [(1, 1)]))
    writer = build_writer(
        path_options(table) | {"row-kind": "op"}, ["k", "v", "op"], overwrite=False
    )
    assert isinstance(writer, PaimonWriter)

    with pytest.raises(InputError, match=r"'k' is double .*: the value 1\.04 would become 1\.0"):
        writer.write(iter(table_of("k v op", [(1.04, 1, "-D")]).to_batches()))
    assert rows_of(table) == [(Decimal(1), 1)]


def test_overwrite_replaces_the_partitions_that_receive_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "p INT, v INT", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("p v", [(1, 1), (2, 2)]))

    save(spark.createDataFrame([(2, 3), (3, 3)], "p int, v int"), table, "overwrite")

    assert rows_of(table) == [(1, 1), (2, 3), (3, 3)]


@pytest.mark.slow
def test_an_overwrite_replaces_the_named_partition(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, "p INT, v INT", key=(), partition_by=["p"], bucket="-1")
    table.append(table_of("p v", [(1, 1), (2, 2), (3, 3)]))
    no_rows = spark.createDataFrame([], "p int, v int")
    first = spark.createDataFrame([(1, 9)], "p int, v int")

    save(no_rows, table, "overwrite", overwrite_partition="p=2")
    assert rows_of(table) == [(1, 1), (3, 3)]
    with pytest.raises(PySparkException, match="not all rows are in the partition"):
        save(first, table, "overwrite", overwrite_partition="p=3")
    assert rows_of(table) == [(1, 1), (3, 3)]
    save(no_rows, table, "overwrite", overwrite_partition="")
    assert rows_of(table) == []


def test_a_retried_task_writes_its_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    table, mark = new_table(tmp_path), tmp_path / "tried"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not mark.exists():
                mark.touch()
                raise OSError("the machine went away")

    rows = spark.range(0, 40, 1, 2).selectExpr("id AS k", "CAST(id AS STRING) AS v")

    save(rows.mapInArrow(fail_once, rows.schema), table)

    assert mark.exists()
    assert rows_of(table) == [(k, str(k)) for k in range(40)]
    assert len(data_files(table)) == len([f for split in table.files() for f in split.files])


@pytest.mark.slow
def test_after_an_invalid_row_no_row_is_visible_and_no_file_remains(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, "k INT", key=(), bucket="-1")
    rows = spark.range(0, 4, 1, 4).selectExpr("CAST(if(id = 3, 'x', '1') AS STRING) AS k")

    with pytest.raises(PySparkException, match="cannot"):
        save(rows, table)

    assert table.snapshot() is None
    assert data_files(table) == []


def batches_of(*keys: int) -> Iterator[pa.RecordBatch]:
    yield from table_of("k v", [(k, "x") for k in keys]).to_batches()


def test_only_the_successful_attempt_is_committed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    writer = build_writer(path_options(table), ["k", "v"], overwrite=False)
    assert isinstance(writer, PaimonWriter)

    writer.write(batches_of(1, 2))
    second = writer.write(batches_of(1, 2))
    cloudpickle.loads(cloudpickle.dumps(writer)).commit([second])

    assert rows_of(table) == [(1, "x"), (2, "x")]
    assert len(data_files(table)) == 2  # the file of the first attempt is an orphan


def test_an_aborted_job_removes_its_files_but_never_those_of_a_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    writer = build_writer(path_options(table), ["k", "v"], overwrite=False)
    assert isinstance(writer, PaimonWriter)
    message: TaskCommitMessage = writer.write(batches_of(1))

    writer.abort([message, None])
    assert data_files(table) == []

    message = writer.write(batches_of(2))
    writer.commit([message])
    writer.abort([message])  # Spark does this if the response to a commit is lost
    assert rows_of(table) == [(2, "x")]


def test_a_write_of_small_files_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path)
    writer = build_writer(path_options(table), ["k", "v"], overwrite=False)
    assert isinstance(writer, PaimonWriter)

    writer.commit([writer.write(batches_of(1)), writer.write(batches_of(2))])

    (record,) = caplog.records
    assert "2 tasks wrote at least 2 files to 1 buckets" in record.message
    assert "paimon_orch.spark.write" in record.message


def test_tables_that_need_clustered_rows_are_refused_with_an_alternative(tmp_path: Path) -> None:
    dynamic = new_table(tmp_path, bucket="-1")

    with pytest.raises(InputError, match=r"paimon_orch\.spark\.write"):
        build_writer(path_options(dynamic), ["k", "v"], overwrite=False)
    with pytest.raises(InputError, match="read-only"):
        build_writer(path_options(dynamic) | {"table": "db.t$files"}, ["k"], overwrite=False)
    with pytest.raises(InputError, match="set both options"):
        build_writer(
            path_options(new_table(tmp_path / "b")) | {"commit-user": "u"},
            ["k", "v"],
            overwrite=False,
        )
