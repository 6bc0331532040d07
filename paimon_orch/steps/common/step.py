"""The protocol of a maintenance step: plan, run, commit.

Each step module defines a frozen request and three functions of the same shape, and one
:class:`Step` that names them:

- ``plan(table, request) -> Plan`` reads metadata, decides what to do, and writes nothing, so a plan
  is also the dry run. A plan keeps its request, and is falsy if there is nothing to do. Call it as
  :meth:`Step.plan`, which plans again if the snapshot expires meanwhile.
- ``run(shared, unit) -> bytes`` does one independent unit of work, in any process, perhaps more
  than once. A unit names its files; data for all units (file system, schemas) is in ``shared``,
  which is sent once per job.
- ``commit(table, plan, results) -> Outcome`` commits the results of all units, in the order of the
  units. It does nothing for a falsy plan.

:func:`run_step` executes the plan of the caller, which is the plan that was shown to the user. It
makes a new plan, from the plan's request, only if another commit was faster: ``attempts`` of the
outcome is the number of executed plans.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from tenacity import AttemptManager

from paimon_orch.errors import CommitConflictError, MissingFileError
from paimon_orch.format.display import Displayable
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.common.conflict_retry import MAX_ATTEMPTS, retry_on_conflict
from paimon_orch.steps.common.executor import Executor, InProcessExecutor, Progress
from paimon_orch.steps.common.step_metrics import StepIo, StepMetrics
from paimon_orch.steps.common.step_report import PlanReport, format_figures
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.metadata.snapshot_store import EARLIEST
from paimon_orch.table.table import Table

logger = get_logger(__name__)

TextTable = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The header and the rows of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyRequest:
    """The request of a step that takes no arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome(Displayable):
    """Base class of the outcomes of steps."""

    duration_seconds: float = 0.0
    attempts: int = 0
    """The number of executed plans; more than 1 after a conflict with another commit."""

    def count_io(self) -> StepIo:
        """Return the rows and files that the step processed, as far as they are known."""
        return StepIo()

    def tabulate(self) -> TextTable:
        """Return the header and the rows of a table that belongs to the description."""
        return (), ()

    def list_notes(self) -> Sequence[str]:
        """Return what a user should know of the outcome."""
        return ()

    def describe(self) -> list[str]:
        """Return what the step did, in one or more lines; none if it changed nothing."""
        values: dict[str, object] = self.to_dict()  # type: ignore[attr-defined]
        return [] if values["snapshot_id"] is None else [format_figures(values)]


class StepPlan(Protocol):
    """A plan of a step. It keeps its request, and is falsy if there is nothing to do."""

    @property
    def request(self) -> Any:
        """Return the request of the plan."""
        ...

    def __bool__(self) -> bool: ...


class DescribedPlan(StepPlan, Protocol):
    """A plan as JSON and as text."""

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        ...

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        ...


RequestT = TypeVar("RequestT")
PlanT = TypeVar("PlanT", bound=StepPlan)
DescribedPlanT = TypeVar("DescribedPlanT", bound=DescribedPlan)
SharedT = TypeVar("SharedT")
UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")
OutcomeT = TypeVar("OutcomeT", bound=StepOutcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome(StepOutcome, Generic[DescribedPlanT]):
    """The outcome of a step that did what its plan says."""

    plan: DescribedPlanT
    """The executed plan."""

    def to_dict(self) -> dict[str, object]:
        """Return the executed plan as JSON values."""
        return self.plan.to_dict()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPlan(PlanOutcome[DescribedPlanT]):
    """The outcome of a step that commits its plan in one snapshot."""

    snapshot: Snapshot | None = None
    """The new snapshot; None if there was nothing to do."""

    @property
    def snapshot_id(self) -> int | None:
        """Return the id of the new snapshot, or None if there was nothing to do."""
        return None if self.snapshot is None else self.snapshot.id

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the id of the snapshot as JSON values."""
        return self.plan.to_dict() | {"snapshot_id": self.snapshot_id}

    def describe_snapshot(self) -> str:
        """Return the new snapshot as text."""
        return "nothing was changed" if self.snapshot is None else f"snapshot {self.snapshot.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresOutcome(StepOutcome):
    """An outcome whose JSON values are its fields, except those without a place in its text."""

    def to_dict(self) -> dict[str, object]:
        """Return the figures and the duration as JSON values."""
        shared = {each.name for each in fields(StepOutcome)}
        own = [each.name for each in fields(self) if each.repr and each.name not in shared]
        values = {name: getattr(self, name) for name in own}
        values |= {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        return values | {"duration_seconds": round(self.duration_seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkUnits(Generic[SharedT, UnitT]):
    """The independent work units of a plan."""

    shared: SharedT
    """The data that all units need; it is serialized once per job."""
    units: Sequence[UnitT]
    bytes: int | None = None
    """The size of the files that all units read, or None if it is unknown."""


def _build_no_units(_table: Table, _plan: StepPlan) -> WorkUnits[None, None]:
    return WorkUnits(shared=None, units=())


def _run_no_unit(_shared: None, _unit: None) -> bytes:
    raise AssertionError("this step has no work units")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[RequestT, PlanT, SharedT, UnitT, ResultT, OutcomeT]):
    """A maintenance step; see the module's documentation for ``plan``, ``run`` and ``commit``.

    ``planner`` is its function ``plan``.
    """

    title: str
    """A verb phrase to put before the table's name: ``compact``, ``expire snapshots of``."""
    planner: Callable[[Table, RequestT], PlanT]
    work: Callable[[Table, PlanT], WorkUnits[SharedT, UnitT]]
    run: Callable[[SharedT, UnitT], bytes]
    decode: Callable[[bytes], ResultT]
    commit: Callable[[Table, PlanT, Sequence[ResultT]], OutcomeT]
    discard: Callable[[Table, Sequence[ResultT]], None] | None = None
    """Deletes the files of finished units if another unit failed."""
    prepare: Callable[[Table, PlanT], PlanT] = lambda _, plan: plan
    """Checks the plan before its units run; raises CommitConflictError if it is outdated."""
    split: Callable[[PlanT], Iterable[PlanT]] = lambda plan: (plan,)
    """Splits a plan into parts; each part is run and committed before the next one."""
    merge: Callable[[OutcomeT, OutcomeT], OutcomeT] = lambda _, after: after
    """Combines the outcomes of two parts."""
    replan: Callable[[Table, RequestT, Executor], PlanT] | None = None
    """Plans again after a conflict, on an executor if the table is large; by default ``plan``."""
    max_attempts: int = MAX_ATTEMPTS

    def plan(self, table: Table, request: RequestT) -> PlanT:
        """Plan a request; again, if the snapshot expires before the plan is complete."""
        return repeat_if_expired(self.planner)(table, request)

    @property
    def has_units(self) -> bool:
        """Return whether the step has work units."""
        return self.work is not _build_no_units

    def label(self, table: Table) -> str:
        """Return the label of the step in the Spark UI, in logs and in errors."""
        return _build_label(self.title, table)


def _build_label(title: str, table: Table) -> str:
    return f"{title} {table.identifier}"


def build_metadata_step(
    title: str,
    plan: Callable[[Table, RequestT], PlanT],
    commit: Callable[[Table, PlanT], OutcomeT],
    *,
    max_attempts: int = MAX_ATTEMPTS,
) -> Step[RequestT, PlanT, None, None, bytes, OutcomeT]:
    """Return a step without work units, whose ``commit`` has no results of units."""
    return Step(
        title=title,
        planner=plan,
        work=_build_no_units,
        run=_run_no_unit,
        decode=bytes,
        commit=lambda table, plan, _results: commit(table, plan),
        max_attempts=max_attempts,
    )


class PlanAttempts(Generic[PlanT]):
    """The attempts to execute a plan: after a conflict with another commit, a new plan is made.

    >>> attempts = PlanAttempts("compact", table, plan, replan=replan)
    >>> for attempt in attempts:
    ...     with attempt:
    ...         outcome = execute(attempts.next_plan())
    >>> attempts.complete(outcome)

    Iterating raises the last :class:`CommitConflictError` after ``max_attempts`` conflicts. The end
    is recorded as metrics of the step.
    """

    def __init__(
        self,
        title: str,
        table: Table,
        plan: PlanT,
        *,
        replan: Callable[[PlanT], PlanT],
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._label, self._plan, self._replan = _build_label(title, table), plan, replan
        self._retrying = retry_on_conflict(
            self._label, max_attempts=max_attempts, has_expired=self._has_expired
        )
        self._metrics, self._number = StepMetrics(title, table), 0
        self._snapshots = table.stores.snapshots

    def __iter__(self) -> Iterator[AttemptManager]:
        with self._metrics.record_errors():
            try:
                for attempt in self._retrying:
                    self._number += 1
                    yield attempt
            except MissingFileError as error:
                if not self._has_expired():
                    raise
                raise CommitConflictError(
                    f"{self._label}: the snapshot that was planned has expired meanwhile, and "
                    f"{error.path} with it. Run the step again."
                ) from error

    def next_plan(self) -> PlanT:
        """Return the given plan in the first attempt, and a new plan in each later attempt."""
        if self._number > 1:
            self._plan = self._replan(self._plan)
        if not self._plan:
            logger.info("%s: nothing to do", self._label)
        return self._plan

    def _has_expired(self) -> bool:
        """Return whether the snapshot of the plan expires or has expired, and its files with it."""
        snapshot = getattr(getattr(self._plan, "state", None), "snapshot", None)
        number = getattr(self._plan, "snapshot_id", None) if snapshot is None else snapshot.id
        if number is None:
            return False
        if (self._snapshots.hint(EARLIEST) or 0) > number:
            return True
        ids = self._snapshots.ids()
        return number not in ids and max(ids, default=0) > number  # the newest one does not expire

    def complete(self, outcome: OutcomeT) -> OutcomeT:
        """Return the outcome with the duration and the number of all attempts."""
        self._metrics.record_success(
            outcome.count_io(),
            is_committed=bool(self._plan),
            snapshot_id=getattr(outcome, "snapshot_id", None),
        )
        return replace(outcome, duration_seconds=self._metrics.seconds, attempts=self._number)


def run_step(
    step: Step[RequestT, PlanT, SharedT, UnitT, ResultT, OutcomeT],
    table: Table,
    plan: PlanT,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
) -> OutcomeT:
    """Run the units of a plan and commit their results; the default executor is this process.

    Raises :class:`CommitConflictError` if ``max_attempts`` plans conflicted with other commits.
    """
    runner = executor or InProcessExecutor()

    def replan(outdated: PlanT) -> PlanT:
        if step.replan is None:
            return step.plan(table, outdated.request)
        return repeat_if_expired(step.replan)(table, outdated.request, runner)

    attempts = PlanAttempts(step.title, table, plan, replan=replan, max_attempts=step.max_attempts)
    # The outcome includes the parts that were committed before a conflict.
    outcome: OutcomeT | None = None
    for attempt in attempts:
        with attempt:
            for part in step.split(attempts.next_plan()):
                part_outcome = _run_part(step, table, part, runner, progress)
                outcome = part_outcome if outcome is None else step.merge(outcome, part_outcome)
    assert outcome is not None
    return attempts.complete(outcome)


def plan_and_run(
    step: Step[RequestT, PlanT, SharedT, UnitT, ResultT, OutcomeT],
    table: Table,
    request: RequestT,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
) -> OutcomeT:
    """Plan a request, and run the plan as :func:`run_step` does."""
    return run_step(step, table, step.plan(table, request), executor, progress=progress)


def _run_part(
    step: Step[RequestT, PlanT, SharedT, UnitT, ResultT, OutcomeT],
    table: Table,
    plan: PlanT,
    executor: Executor,
    progress: Progress | None,
) -> OutcomeT:
    current = step.prepare(table, plan) if plan else plan
    work = step.work(table, current)

    def undo(results: list[bytes]) -> None:
        if step.discard is not None:
            step.discard(table, [step.decode(result) for result in results])

    results: list[bytes] = []
    if work.units:
        run, label = partial(step.run, work.shared), step.label(table)
        results = executor.map(
            run,
            work.units,
            label=label,
            progress=progress,
            undo=undo,
            work_bytes=work.bytes,
        )
    return step.commit(table, current, [step.decode(result) for result in results])
