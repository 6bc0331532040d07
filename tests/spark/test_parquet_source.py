"""Parquet files that tasks read with Arrow: the table equals one that was written in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables import assert_healthy, new_table, rows_of, stored_files

from paimon_orch.errors import InputError
from paimon_orch.spark import parquet_source
from paimon_orch.spark.frame_writer import preview, run_ingest
from paimon_orch.spark.parquet_source import can_read_local_files, open_parquet_files
from paimon_orch.steps import ingest, parquet_parts
from paimon_orch.steps.ingest import IngestRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "p STRING, k BIGINT, v STRING"
TABLES = {
    "fixed buckets": {"key": ["p", "k"], "bucket": "3"},
    "partitions": {"key": ["p", "k"], "partition_by": ["p"], "bucket": "2"},
    "dynamic buckets": {"key": ["p", "k"], "bucket": "-1"},
    "append": {"key": (), "bucket": "-1"},
    "append with buckets": {"key": (), "bucket": "3", "bucket-key": "k"},
}


def write_files(folder: Path) -> tuple[list[str], pa.Table]:
    """Write files with repeated keys; return the rows in the order of the files."""
    random, tables, paths = np.random.default_rng(1), [], []
    for index in range(3):
        count = int(random.integers(200, 900))
        keys = random.integers(0, 300, count)
        values = [f"{index}.{number:04}" for number in range(count)]
        table = pa.table({"v": values, "p": [f"p{k % 3}" for k in keys], "k": keys.astype("i4")})
        paths.append(str(folder / f"{index}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=100)
        tables.append(table)
    return paths, pa.concat_tables(tables)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
def test_tasks_write_the_rows_of_their_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(parquet_parts, "_MIN_PART_BYTES", 1)
    monkeypatch.setattr(parquet_source, "measure_parallelism", lambda _: 7)
    paths, rows = write_files(tmp_path)
    table = new_table(tmp_path / "tasks", COLUMNS, **options)
    expected = new_table(tmp_path / "process", COLUMNS, **options)
    write = expected.upsert if expected.load().schema.primary_keys else expected.append
    write(rows)
    plan = ingest.plan(table, IngestRequest(columns=["v", "p", "k"]))
    source = open_parquet_files(spark, paths, plan)
    assert source.task_count is not None
    assert source.task_count >= 7

    before = stored_files(table)
    assert preview(source, table, plan).rows == rows.num_rows
    assert stored_files(table) == before
    result = run_ingest(source, table, plan)

    assert result.snapshot_id == 1
    assert sorted(rows_of(table)) == sorted(rows_of(expected))
    assert_healthy(table)


def test_an_error_in_a_file_names_it_and_leaves_no_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert can_read_local_files(spark)
    paths, _ = write_files(tmp_path)
    table = new_table(tmp_path / "table", COLUMNS, key=["p", "k"], bucket="2")
    plan = ingest.plan(table, IngestRequest(columns=["v", "p", "k"]))
    source = open_parquet_files(spark, paths, plan)
    before = stored_files(table)
    Path(paths[1]).write_bytes(b"PAR1")

    with pytest.raises(InputError, match=r"1\.parquet cannot be read as parquet"):
        run_ingest(source, table, plan)

    assert stored_files(table) == before


def test_files_without_rows_create_no_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(write_files(tmp_path)[1].slice(0, 0), tmp_path / "empty.parquet")
    table = new_table(tmp_path / "table", COLUMNS, key=["p", "k"], bucket="2")
    plan = ingest.plan(table, IngestRequest(columns=["v", "p", "k"]))

    result = run_ingest(
        open_parquet_files(spark, [str(tmp_path / "empty.parquet")], plan), table, plan
    )

    assert (result.snapshot_id, result.rows) == (None, 0)
