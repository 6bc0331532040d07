"""A job sorts the rows of a table on the Spark session of its resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.tables import new_table, table_of

from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource, build_step_job

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_job_sorts_by_the_columns_of_its_run_config(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, key=(), bucket="-1")
    for number in (2, 1):
        table.append(table_of("k v", [(number, "a")]))
    resources = {
        "paimon": PaimonCatalogResource(warehouse=str(tmp_path)),
        "spark": SparkSessionResource(),
    }

    job = build_step_job("compact", "db.t")
    config = {"dry_run": False, "order_by": ["k"], "order_strategy": "zorder"}
    result = job.execute_in_process(
        run_config={"ops": {"compact": {"config": config}}}, resources=resources
    )

    assert result.success
    assert table.scan().to_arrow()["k"].to_pylist() == [1, 2]
