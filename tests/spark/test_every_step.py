"""Every step on a session of this process.

`make oldest` runs these tests on the oldest supported PySpark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.spark.step_cases import STEP_CASES, assert_step_done

from paimon_orch import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", STEP_CASES)
def test_every_step_has_the_expected_result(spark: SparkSession, tmp_path: Path, name: str) -> None:
    def run() -> object:
        return STEP_CASES[name].run(spark, Catalog(str(tmp_path)).table("db.t"))

    assert_step_done(name, tmp_path, run)
