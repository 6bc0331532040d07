"""The names that ``paimon_orch.steps`` exports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paimon_orch import InputError, steps


def test_every_exported_name_can_be_imported() -> None:
    for name in steps.__all__:
        assert getattr(steps, name) is not None
        assert getattr(steps, name).__class__ is not type(steps), f"{name} is a module"


def test_exported_names_are_sorted_unique_and_belong_to_a_module() -> None:
    assert len(steps.__all__) == len(set(steps.__all__))
    assert steps.__all__ == sorted(steps.__all__)
    assert set(steps.__all__) <= set(dir(steps))


def test_the_package_imports_no_step_before_it_is_used() -> None:
    code = "import sys, paimon_orch.steps; print([m for m in sys.modules if 'steps.' in m])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_spark_exports_names_that_can_be_imported() -> None:
    from paimon_orch import spark

    for name in spark.__all__:
        assert getattr(spark, name) is not None
    assert set(spark.__all__) <= set(dir(spark))


@pytest.mark.parametrize("table", ["db.t", None])
def test_steps_refuse_the_name_of_a_table_in_place_of_the_table(table: object) -> None:
    for step in (steps.compact, steps.expire_snapshots, steps.remove_orphan_files):
        with pytest.raises(InputError, match=r"needs an opened table, such as catalog\.table"):
            step(table)  # type: ignore[arg-type]
