"""Rows packed into batches for a shuffle: each arrives at its task, unchanged and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as fn

from paimon_orch.format.arrays import Int64Array
from paimon_orch.spark import shuffle as packed
from paimon_orch.spark.shuffle import current_task_number, unpack_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, TASKS = 2_000, 3
COLUMNS = "id long, text string, seq long, number long, task int, batch int"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("numbers", [1, 5, 1_000])
@pytest.mark.parametrize("first", [-(2**31), -7, 0])
def test_each_row_is_sent_to_the_task_for_its_number(
    spark: SparkSession, numbers: int, first: int
) -> None:
    def number_of(rows: pa.Table) -> Int64Array:
        numbers_of_rows: Int64Array = rows.column("id").to_numpy() % numbers + first
        return numbers_of_rows

    def prepare(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.Table]:
        for batch in batches:
            order = np.arange(first_row, first_row + batch.num_rows)
            first_row += batch.num_rows
            yield pa.Table.from_batches([batch]).append_column("seq", pa.array(order))

    def number_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(unpack_rows(batches)):
            count = rows.num_rows
            extra = [number_of(rows), np.full(count, current_task_number()), np.full(count, number)]
            kinds = (pa.int64(), pa.int32(), pa.int32())
            columns = [pa.array(values, kind) for values, kind in zip(extra, kinds, strict=True)]
            names = ["id", "text", "seq", "number", "task", "batch"]
            yield from pa.table([*rows.columns, *columns], names).combine_chunks().to_batches()

    frame = spark.range(0, ROWS, 1, 4).select("id", fn.col("id").cast("string").alias("a.text"))
    moved = packed.shuffle_rows(frame, prepare, number_of, tasks=TASKS, attempts=1)

    received = moved.mapInArrow(number_rows, COLUMNS).toArrow().to_pylist()

    assert sorted(row["id"] for row in received) == list(range(ROWS))
    assert all(row["text"] == str(row["id"]) for row in received)
    assert all(row["task"] == row["number"] % TASKS for row in received)
    assert sorted(received, key=lambda row: row["seq"]) == sorted(
        received, key=lambda row: row["id"]
    )
    batches: dict[tuple[int, int], list[dict[str, int]]] = {}
    for row in received:
        batches.setdefault((row["task"], row["batch"]), []).append(row)
    for rows in batches.values():
        assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
        if numbers <= 5:
            assert len({row["number"] for row in rows}) == 1
    if numbers > 5:
        assert len(batches) == 4 * TASKS  # one batch per task and partition of the frame


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_every_task_number_has_an_address(spark: SparkSession, tasks: int) -> None:
    preimages = packed._find_hash_preimages(spark, tasks)
    frame = spark.createDataFrame([(value,) for value in preimages], "task int")
    placed = frame.repartition(tasks, "task").select("task", fn.spark_partition_id().alias("at"))

    assert [
        row.at for row in sorted(placed.collect(), key=lambda row: preimages.index(row.task))
    ] == list(range(tasks))
