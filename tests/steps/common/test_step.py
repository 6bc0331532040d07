"""The protocol of steps: the plan that was shown is executed, and units are small."""

from __future__ import annotations

import inspect
import pickle
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.damage import data_files
from support.histories import HISTORY, make_table
from support.tables import new_table, rows_of, table_of

from paimon_orch import steps
from paimon_orch.errors import CommitConflictError, CommitOutcomeUnknownError, MissingFileError
from paimon_orch.steps.common.step import (
    EmptyRequest,
    Step,
    StepOutcome,
    build_metadata_step,
    run_step,
)
from paimon_orch.steps.compaction.compact import COMPACT, CompactRequest
from paimon_orch.steps.ingest import IngestRequest
from paimon_orch.steps.maintenance import rescale
from paimon_orch.steps.maintenance.compact_manifests import COMPACT_MANIFESTS
from paimon_orch.steps.maintenance.rescale import RESCALE, RescaleRequest
from paimon_orch.steps.row_level.row_level_write import DELETE_ROWS
from paimon_orch.steps.row_level.update import UPDATE_ROWS
from paimon_orch.table.table import Table

MAX_UNIT_BYTES = 3_000
STEPS: list[Step[Any, Any, Any, Any, Any, Any]] = [
    getattr(steps, name) for name in steps.__all__ if isinstance(getattr(steps, name), Step)
]
REQUESTS = [
    steps.CompactRequest(),
    steps.DeleteTagRequest(name="t"),
    steps.ExpireChangelogsRequest(),
    steps.ExpirePartitionsRequest(),
    steps.ExpireSnapshotsRequest(),
    steps.ExpireTagsRequest(),
    steps.RemoveOrphanFilesRequest(),
    steps.RescaleRequest(),
    IngestRequest(columns=["k"]),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(tmp_path / "w", "vectors", HISTORY)


def test_units_do_not_contain_shared_objects(table: Table) -> None:
    plan = COMPACT.plan(table, CompactRequest(strategy="full"))
    work = COMPACT.work(table, plan)

    sizes = [len(pickle.dumps(unit)) for unit in work.units]

    assert len(sizes) > 1
    assert max(sizes) < MAX_UNIT_BYTES


def test_without_a_conflict_a_step_executes_the_plan_of_the_caller(table: Table) -> None:
    plan = COMPACT_MANIFESTS.plan(table, EmptyRequest())

    result = run_step(COMPACT_MANIFESTS, table, plan)

    assert result.plan is plan
    assert result.attempts == 1


def test_a_plan_with_nothing_to_do_commits_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="2")
    table.upsert(table_of("k v", [(1, "a")]))
    snapshot = table.snapshot()

    result = run_step(RESCALE, table, RESCALE.plan(table, RescaleRequest()))

    assert result.snapshot is None
    assert table.snapshot() == snapshot


def test_a_step_without_retries_raises_the_conflict(tmp_path: Path) -> None:
    table = new_table(tmp_path, bucket="2")
    table.upsert(table_of("k v", [(1, "a")]))
    shown = RESCALE.plan(table, RescaleRequest(bucket_num=4))
    table.upsert(table_of("k v", [(1, "b")]))

    with pytest.raises(CommitConflictError):
        run_step(RESCALE, table, shown)

    assert rescale.rescale(table, 4) is not None
    assert rows_of(table) == [(1, "b")]


class RecordingStep:
    """A step whose commits raise the given errors, one each, and then succeed."""

    def __init__(self, *errors: Exception) -> None:
        self._errors, self.plans = list(errors), 0
        self.executed: list[CountingPlan] = []
        self.step = build_metadata_step("test", self.plan, self.commit)

    def plan(self, _table: Table, request: EmptyRequest) -> CountingPlan:
        self.plans += 1
        return CountingPlan(request=request, number=self.plans)

    def commit(self, _table: Table, plan: CountingPlan) -> StepOutcome:
        self.executed.append(plan)
        if self._errors:
            raise self._errors.pop(0)
        return StepOutcome()


@dataclass(frozen=True, kw_only=True)
class CountingPlan:
    request: EmptyRequest
    number: int

    def __bool__(self) -> bool:
        return True


def test_a_lost_race_makes_a_new_plan_and_is_logged(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    recording = RecordingStep(CommitConflictError("another commit was faster"))
    shown = recording.plan(table, EmptyRequest())

    result = run_step(recording.step, table, shown)

    assert [plan.number for plan in recording.executed] == [1, 2]
    assert recording.executed[0] is shown
    assert result.attempts == 2
    assert "attempt 1 conflicted: another commit was faster" in caplog.text


def test_conflicts_are_retried_a_limited_number_of_times(table: Table) -> None:
    recording = RecordingStep(*[CommitConflictError(str(n)) for n in range(1, 10)])

    with pytest.raises(CommitConflictError, match=r"^3$"):
        run_step(recording.step, table, recording.plan(table, EmptyRequest()))

    assert len(recording.executed) == 3


def test_a_step_whose_snapshot_expired_is_planned_again(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        table.upsert(table_of("k v", [(number, "x")]))
    planned = COMPACT.plan(table, CompactRequest(strategy="full"))
    steps.compact(table, strategy="full")
    table.upsert(table_of("k v", [(3, "x")]))
    steps.expire_snapshots(table, retain_max=1, retain_min=1, older_than=0)

    outcome = run_step(COMPACT, table, planned)

    assert outcome.attempts == 2
    assert rows_of(table) == [(number, "x") for number in range(4)]


def test_a_missing_file_of_a_snapshot_that_exists_is_an_error_at_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for text in ("x", "y"):
        table.upsert(table_of("k v", [(1, text)]))
    planned = COMPACT.plan(table, CompactRequest(strategy="full"))
    data_files(table)[0].unlink()

    with pytest.raises(MissingFileError):
        run_step(COMPACT, table, planned)


def test_a_commit_with_an_unknown_outcome_is_not_retried(table: Table) -> None:
    recording = RecordingStep(CommitOutcomeUnknownError("the connection was lost"))

    with pytest.raises(CommitOutcomeUnknownError):
        run_step(recording.step, table, recording.plan(table, EmptyRequest()))

    assert len(recording.executed) == 1


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_requests_are_frozen_and_accept_only_keywords(request_: object) -> None:
    parameters = inspect.signature(type(request_)).parameters
    name = next(iter(parameters))
    by_position = [each for each in parameters.values() if each.kind is not each.KEYWORD_ONLY]

    with pytest.raises(AttributeError):
        setattr(request_, name, None)
    with pytest.raises(TypeError, match="positional"):
        type(request_)("value", *by_position)  # type: ignore[call-arg]


def test_all_maintenance_steps_are_exported() -> None:
    modules = [
        import_module(module.name)
        for module in pkgutil.walk_packages(steps.__path__, prefix=f"{steps.__name__}.")
        # the function `repair` runs the steps of the other modules
        if ".repairs." not in module.name
        or module.name.endswith(".repair")
        or hasattr(import_module(module.name), "DECLARATION")
    ]
    defined = {
        value.title
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Step)
    }
    # the functions `delete` and `update` run the steps that change rows
    row_level = {DELETE_ROWS.title, UPDATE_ROWS.title}
    assert {step.title for step in STEPS} == defined - row_level


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_all_steps_have_the_same_signature(step: Step[Any, Any, Any, Any, Any, Any]) -> None:
    assert required_parameters(step.plan) == ["table", "request"]
    assert required_parameters(step.commit)[:2] == ["table", "plan"]
    assert len(inspect.signature(step.run).parameters) == 2


def required_parameters(function: Any) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name.lstrip("_") for p in parameters if p.default is inspect.Parameter.empty]
