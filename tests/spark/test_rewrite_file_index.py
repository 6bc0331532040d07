"""Units that rewrite file indexes run on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.steps.maintenance.rewrite_file_index import (
    RewriteFileIndexRequest,
    plan,
    rewrite_file_index,
)
from paimon_orch.table.schema_change.schema_changes import SetOption


@pytest.mark.slow
def test_spark_builds_the_indexes_of_all_partitions(tmp_path: Path, spark: SparkSession) -> None:
    table = new_table(tmp_path, "day STRING, k BIGINT", key=(), partition_by=["day"], bucket="-1")
    for day in "abc":
        table.append(table_of("day k", [(day, n) for n in range(30)]))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SetOption("file-index.bitmap.columns", "k")])
    table = catalog.table("db.t")

    result = rewrite_file_index(table, SparkExecutor(spark))

    assert (result.files, result.snapshots) == (3, 1)
    assert not plan(table, RewriteFileIndexRequest())
    assert rows_of(table, filter="k = 7") == [("a", 7), ("b", 7), ("c", 7)]
