"""Every step on tables of each kind of catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.catalogs.kinds import HIVE, POSTGRESQL, ROOT, CatalogUnderTest
from support.catalogs.rest_server import JAVA_2_0
from support.spark.step_cases import STEP_CASES, OnExecutor, assert_step_done

from paimon_orch.steps.common.executor import InProcessExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_EXECUTORS = [name for name, case in STEP_CASES.items() if isinstance(case.run, OnExecutor)]
# Steps with a session, and one of each kind of work that tasks do.
ON_SPARK = [
    *(name for name in STEP_CASES if name not in ON_EXECUTORS),
    "compact by lookup",
    "remove orphan files",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ON_EXECUTORS)
def test_every_step_has_the_expected_result(
    catalog_under_test: CatalogUnderTest, name: str
) -> None:
    def run() -> object:
        step = STEP_CASES[name].run
        assert isinstance(step, OnExecutor)
        return step.run(InProcessExecutor(), catalog_under_test.open().table("db.t"))

    assert_step_done(name, ROOT, run)


# The catalogs in SQLite and of pypaimon differ only in what the driver does.
@pytest.mark.parametrize("catalog_under_test", [POSTGRESQL, HIVE, JAVA_2_0], indirect=True)
@pytest.mark.parametrize("name", ON_SPARK)
def test_every_step_on_spark_has_the_expected_result(
    catalog_under_test: CatalogUnderTest, spark: SparkSession, name: str
) -> None:
    def run() -> object:
        return STEP_CASES[name].run(spark, catalog_under_test.open().table("db.t"))

    assert_step_done(name, ROOT, run)
