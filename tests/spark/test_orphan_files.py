"""Orphan files are found alike in the calling process and on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from steps.histories import contents, loose_files, make_old, make_table

from paimon_orch.spark import SparkExecutor
from paimon_orch.steps import remove_orphan_files as step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_finds_and_removes_the_same_orphans(tmp_path: Path, spark: SparkSession) -> None:
    history = [("tag", 0), ("full", 0), ("upsert", 1), ("minor", 0), ("overwrite", 2), ("upsert", 3)]  # fmt: skip
    table = make_table(tmp_path, "vectors", history)
    table.rollback(3)
    for number in range(3):
        stray = Path(table.paths.root) / f"p={number + 7}" / "bucket-0" / "data-x.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"x" * number)
    make_old(table)
    before = contents(table)
    executor = SparkExecutor(spark)

    here, there = step.plan(table), step.plan(table, executor)

    assert here == there
    assert len(here.files) > 6
    result = step.run(table, there, executor)
    assert (result.files, result.bytes) == (len(here.files), here.bytes)
    assert contents(table) == before
    assert loose_files(table) == set()
