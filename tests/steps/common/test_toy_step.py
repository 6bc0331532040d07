"""A step is one file: all front ends find a module with a declaration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tables import new_table, table_of

TOY = '''"""Count the columns of a table."""

from dataclasses import dataclass, field
from typing import Annotated

from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.step import PlanOutcome, build_metadata_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRequest:
    """Selects columns."""

    at_most: Annotated[int, Argument("Columns to count.", minimum=1)] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPlan:
    """The columns."""

    request: CountRequest
    columns: tuple[str, ...] = field(default=())

    def __bool__(self):
        return bool(self.columns)

    def to_dict(self):
        return {"columns": list(self.columns)}

    def describe(self):
        return PlanReport(action=f"count {len(self.columns)} columns", asks=True, undo="Really.")


class CountOutcome(PlanOutcome[CountPlan]):
    """The columns that were counted."""

    def describe(self):
        return [f"counted {len(self.plan.columns)} columns"]


def plan(table, request):
    names = table.load().schema.names
    return CountPlan(request=request, columns=tuple(names[: request.at_most]))


def commit(table, plan):
    return CountOutcome(plan=plan)


COUNT_COLUMNS = build_metadata_step("count columns of", plan, commit)
DECLARATION = declare_step(
    COUNT_COLUMNS,
    CountRequest,
    help="Only in tests.",
    examples=["/lake db.orders --at-most 3"],
    asks=True,
)
'''


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A copy of the package with one file more, in a folder for ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("product")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(repository / "paimon_orch", folder / "paimon_orch", ignore=ignored)
    toy = folder / "paimon_orch" / "steps" / "maintenance" / "count_columns.py"
    toy.write_text(TOY, encoding="utf-8")
    return folder


@pytest.fixture
def run_module(product: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=product,
            env=os.environ | {"PYTHONPATH": str(product)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.slow
def test_a_new_file_is_a_command_with_help_a_dry_run_a_question_and_json(
    tmp_path: Path, run_module: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    new_table(tmp_path).upsert(table_of("k v", [(1, "a")]))

    def run(*arguments: object) -> Any:
        return run_module("paimon_orch", "count-columns", tmp_path, "db.t", *arguments)

    overview = run_module("paimon_orch", "--help").stdout
    page = run_module("paimon_orch", "count-columns", "--help").stdout
    assert "count-columns            Count the columns of a table." in overview
    assert "Only in tests." in page
    assert "--at-most N" in page
    assert "paimon-orch count-columns /lake db.orders --at-most 3" in page
    assert run("--dry-run").stdout == "would count 2 columns of db.t; nothing was changed\n"
    assert "count 2 columns of db.t? Really. There is no terminal" in run().stderr
    assert run("--yes").stdout == "counted 2 columns\n"
    assert json.loads(run("--yes", "--json", "--at-most", 1).stdout) == {"columns": ["k"]}


DAGSTER = """
import json, sys
import dagster as dg
from paimon_orch.dagster import PaimonTableComponent

attributes = {"table": "db.t", "warehouse": sys.argv[1]}
attributes["steps"] = {"count-columns": {"cron": "0 3 * * *", "arguments": {"at_most": 1}}}
defs = PaimonTableComponent.from_attributes_dict(attributes=attributes).definitions()
job = defs.resolve_job_def("count_columns__db__t")
assert "count_columns__db__t_schedule" in {each.name for each in defs.schedules}
config = job.run_config["ops"]["count_columns"]["config"]
result = job.execute_in_process({"ops": {"count_columns": {"config": config | {"dry_run": False}}}})
[event] = result.get_asset_observation_events()
metadata = event.asset_observation_data.asset_observation.metadata
print(json.dumps([config, metadata["paimon/count_columns_columns"].value]))
"""


@pytest.mark.slow
def test_a_new_file_is_a_job_with_a_launchpad_and_a_schedule_of_a_component(
    tmp_path: Path, product: Path
) -> None:
    new_table(tmp_path)
    script = product / "toy_in_dagster.py"
    script.write_text(DAGSTER, encoding="utf-8")

    finished = subprocess.run(
        [sys.executable, script, tmp_path],
        cwd=product,
        env=os.environ | {"PYTHONPATH": str(product)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == [{"dry_run": True, "at_most": 1}, 1]


@pytest.mark.slow
def test_a_new_file_is_a_step_of_any_process(
    tmp_path: Path, run_module: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    new_table(tmp_path)
    request = {"step": "count-columns", "catalog": str(tmp_path), "table": "db.t"}

    def run(**more: object) -> Any:
        return json.loads(run_module("paimon_orch.run_step", json.dumps(request | more)).stdout)

    assert "needs a decision" in run()["error"]["message"]
    assert run(dry_run=False)["outcome"] == {"columns": ["k", "v"]}
    refused = run(dry_run=True, arguments={"at_most": 0})
    assert refused["error"]["message"] == "at_most is 0; the minimum is 1"
