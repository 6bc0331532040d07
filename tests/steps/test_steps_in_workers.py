"""Steps with work units in worker processes have the same results as on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.spark.step_cases import STEP_CASES, OnExecutor, assert_step_done

from paimon_orch import Catalog
from paimon_orch.steps.common.local_executor import LocalExecutor

# One of each kind of work that units do.
STEPS = [
    "compact, full",
    "compact by lookup",
    "compact an append table",
    "delete",
    "rewrite file indexes",
    "remove orphan files",
    "check",
    "rescale",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_the_expected_result(tmp_path: Path, name: str) -> None:
    def run() -> object:
        step = STEP_CASES[name].run
        assert isinstance(step, OnExecutor)
        return step.run(LocalExecutor(workers=1), Catalog(str(tmp_path)).table("db.t"))

    assert_step_done(name, tmp_path, run)
