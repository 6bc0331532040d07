"""Spark finds the same orphan files as the calling process; tasks return only orphan files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.histories import backdate_files, make_table, read_all_branches, unreferenced_files
from support.tables import new_table, table_of

from paimon_orch.spark import SparkExecutor
from paimon_orch.steps.cleanup import remove_orphan_files as step
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step import run_step
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SMALL_UNITS = step.RemoveOrphanFilesRequest(directories_per_unit=8, manifests_per_unit=2)
"""A request that splits a small table into several units and parts."""


@pytest.mark.slow
def test_spark_finds_and_removes_the_same_orphans(tmp_path: Path, spark: SparkSession) -> None:
    history = [("tag", 0), ("full", 0), ("upsert", 1), ("minor", 0), ("overwrite", 2), ("upsert", 3)]  # fmt: skip
    table = make_table(tmp_path, "vectors", history)
    table.rollback(3)
    for number in range(3):
        write_orphan(table, f"p={number + 7}/bucket-0/data-x.parquet", b"x" * number)
    backdate_files(table)
    before = read_all_branches(table)
    executor = SparkExecutor(spark)

    local, on_spark = (
        step.plan(table, SMALL_UNITS),
        step.plan(table, SMALL_UNITS, executor=executor),
    )

    assert local == on_spark
    assert len(local.files) > 6
    result = run_step(step.REMOVE_ORPHAN_FILES, table, on_spark, executor)
    assert (result.files, result.bytes) == (len(local.files), local.bytes)
    assert read_all_branches(table) == before
    assert unreferenced_files(table) == set()


@pytest.mark.slow
def test_many_directories_have_the_same_plan_on_spark_and_in_process(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = create_partitioned_table(tmp_path, 60, commits=7)
    orphans = {write_orphan(table, f"p={p}/bucket-0/data-{p}.parquet") for p in range(0, 90, 3)}
    orphans.add(write_orphan(table, os.fsdecode(b"p=1/bucket-0/no-text-\xff.parquet")))
    (Path(table.paths.root) / "p=99" / "bucket-0").mkdir(parents=True)
    backdate_files(table)

    local, on_spark = (
        step.plan(table, SMALL_UNITS),
        step.plan(table, SMALL_UNITS, executor=SparkExecutor(spark)),
    )

    assert local == on_spark
    assert {file.path for file in on_spark.files} == orphans
    assert [Path(path).parent.name for path in on_spark.directories] == ["p=99"]
    assert on_spark.scanned == 60 + len(orphans) + len(
        list(Path(table.paths.manifest_dir).iterdir())
    )


class MeasuringExecutor(InProcessExecutor):
    """Counts the bytes that the tasks return."""

    returned_bytes = 0

    def shuffle(self, split: Any, units: Any, join: Any, **given: Any) -> list[bytes]:
        results = super().shuffle(split, units, join, **given)
        self.returned_bytes += sum(map(len, results))
        return results


def test_task_results_do_not_grow_with_the_number_of_referenced_files(tmp_path: Path) -> None:
    sizes = []
    for files in (5, 200):
        table = create_partitioned_table(tmp_path / f"{files:03}", files, commits=1)
        orphan = write_orphan(table, "p=1/bucket-0/data-0.parquet")
        backdate_files(table)
        executor = MeasuringExecutor()

        planned = step.plan(table, SMALL_UNITS, executor=executor)

        assert [file.path for file in planned.files] == [orphan]
        assert planned.references is not None
        sizes.append((executor.returned_bytes, len(planned.references.names)))
    (few, names), (many, names_of_many) = sizes
    assert names == names_of_many, "only names of metadata files are in memory"
    assert many - few < 10, "only the digits of larger numbers"


def create_partitioned_table(root: Path, files: int, commits: int) -> Table:
    """Return an append table with one file per partition, written in a number of commits."""
    table = new_table(root, "p BIGINT, k BIGINT", key=(), partition_by=["p"], bucket="-1")
    for first in range(commits):
        table.append(table_of("p k", [(p, p) for p in range(first, files, commits)]))
    return table


def write_orphan(table: Table, name: str, content: bytes = b"orphan") -> str:
    """Write an unreferenced file; return its path."""
    path = Path(table.paths.root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)
