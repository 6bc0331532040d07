"""Executes the actions of a maintenance plan, and records them and its skips in the history table.

A failed action does not stop the others, except an interruption by the user.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Lock

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CancelledError, PaimonError, describe_error
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.autopilot.action_outcome import (
    ActionEffect,
    ActionOutcome,
    MaintenancePrices,
    OutcomeKind,
)
from paimon_orch.steps.autopilot.budgets import RemainingBudget
from paimon_orch.steps.autopilot.decisions import ActionKind, DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.execute_action import ActionContext, BudgetError, execute_action
from paimon_orch.steps.autopilot.maintenance_history import append_history
from paimon_orch.steps.autopilot.maintenance_plan import MaintenancePlan
from paimon_orch.steps.common.executor import Executor, InProcessExecutor

logger = get_logger(__name__)

_KINDS_OF_SKIPS = {
    DecisionState.SKIPPED: OutcomeKind.SKIPPED,
    DecisionState.REFUSED: OutcomeKind.REFUSED,
}
Report = Callable[[ActionOutcome], object]
"""Called after each action, in the thread that executed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """The outcomes of a run, in the order of their starts."""

    plan: MaintenancePlan
    outcomes: tuple[ActionOutcome, ...] = ()
    run_id: str | None = None
    """The id of the run in the history table; None if nothing was recorded."""

    def count(self, kind: OutcomeKind) -> int:
        """Return the number of actions that ended in a given way, with the skips of the plan."""
        skips = (_KINDS_OF_SKIPS.get(skip.state) for skip in self.plan.skips)
        return sum(each is kind for each in (*(o.kind for o in self.outcomes), *skips))

    @property
    def bytes_read(self) -> int:
        """Return the size of the files that the actions read."""
        return sum(outcome.effect.bytes_read for outcome in self.outcomes)

    @property
    def bytes_written(self) -> int:
        """Return the size of the files that the actions wrote."""
        return sum(outcome.effect.bytes_written for outcome in self.outcomes)

    @property
    def cost(self) -> float:
        """Return the price of all actions."""
        return sum(outcome.cost for outcome in self.outcomes)

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values, with the skips of the plan."""
        return {
            "tables": len(self.plan.tables),
            "run_id": self.run_id,
            **{kind.name.lower(): self.count(kind) for kind in OutcomeKind},
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "cost": self.cost,
            "actions": [outcome.to_dict() for outcome in self.outcomes],
            "skips": [skip.to_dict() for skip in self.plan.skips],
        }


def run_maintenance(
    catalog: Catalog,
    plan: MaintenancePlan,
    executor: Executor | None = None,
    *,
    prices: MaintenancePrices | None = None,
    report: Report = lambda _outcome: None,
) -> MaintenanceResult:
    """Execute exactly the actions of a plan, within the bytes and hours of its budgets.

    The actions of a table are executed one after the other, in the order of their ranks, and the
    expiration of snapshots last, because the others replace files that it deletes. Each step is planned when its action starts, because commits may have changed the table since the plan; an
    action that has become too large for the remaining bytes is skipped.
    """
    runner = _MaintenanceRunner(
        catalog=catalog,
        budget=RemainingBudget(plan.request.budgets, plan.available_bytes),
        executor=executor or InProcessExecutor(),
        now=plan.request.now,
        prices=prices or MaintenancePrices(),
        report=report,
    )
    run_id = None
    try:
        runner.run(_group_by_table(plan.actions), plan.request.budgets.max_concurrent)
    finally:
        # An interrupted run also records what it has done.
        outcomes = runner.list_outcomes()
        if plan.request.history_table is not None:
            run_id = _record(catalog, plan.request.history_table, outcomes, plan.skips)
    return MaintenanceResult(plan=plan, outcomes=outcomes, run_id=run_id)


def _record(
    catalog: Catalog,
    name: str,
    outcomes: Sequence[ActionOutcome],
    skips: Iterable[MaintenanceDecision],
) -> str | None:
    now = datetime.now(UTC)
    skipped = [
        ActionOutcome(decision=skip, kind=_KINDS_OF_SKIPS[skip.state], started_at=now)
        for skip in skips
        if skip.state in _KINDS_OF_SKIPS
    ]
    if not outcomes and not skipped:
        return None
    try:
        return append_history(catalog, name, [*outcomes, *skipped])
    except (PaimonError, OSError) as error:
        error.add_note(f"{len(outcomes)} actions were executed, and are not recorded in {name}")
        raise


def _group_by_table(
    actions: Iterable[MaintenanceDecision],
) -> list[list[MaintenanceDecision]]:
    groups: dict[str, list[MaintenanceDecision]] = {}
    for action in actions:
        groups.setdefault(action.table, []).append(action)
    expiration = ActionKind.SNAPSHOT_EXPIRATION
    return [sorted(group, key=lambda each: each.action is expiration) for group in groups.values()]


class _MaintenanceRunner:
    def __init__(
        self,
        *,
        catalog: Catalog,
        budget: RemainingBudget,
        executor: Executor,
        now: datetime | None,
        prices: MaintenancePrices,
        report: Report,
    ) -> None:
        self._catalog, self._budget = catalog, budget
        self._context = ActionContext(executor=executor, reserve=self._reserve, now=now)
        self._prices, self._report = prices, report
        self._outcomes: list[ActionOutcome] = []
        self._lock, self._stopped = Lock(), Event()

    def list_outcomes(self) -> tuple[ActionOutcome, ...]:
        """Return the outcomes of the executed actions in the order of their starts."""
        with self._lock:
            return tuple(sorted(self._outcomes, key=lambda outcome: outcome.started_at))

    def run(self, groups: Sequence[Sequence[MaintenanceDecision]], max_concurrent: int) -> None:
        """Execute groups of actions, several groups at once."""
        if max_concurrent == 1 or len(groups) < 2:
            for group in groups:
                self._run_group(group)
            return
        with ThreadPoolExecutor(max_concurrent) as pool:
            futures = [pool.submit(self._run_group, group) for group in groups]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stopped.set()  # a thread completes only its current action
                raise

    def _run_group(self, actions: Sequence[MaintenanceDecision]) -> None:
        for action in actions:
            if self._stopped.is_set():
                return
            outcome = self._run_action(action)
            with self._lock:
                self._outcomes.append(outcome)
            logger.info("%s", outcome)
            self._report(outcome)

    def _run_action(self, action: MaintenanceDecision) -> ActionOutcome:
        started_at, start = datetime.now(UTC), time.monotonic()
        effect, error = ActionEffect(), None
        try:
            table = self._catalog.table(action.table)
            done = execute_action(table, action, self._context)
            kind = OutcomeKind.NOTHING_TO_DO if done is None else OutcomeKind.DONE
            effect = done or effect
        except BudgetError as refusal:
            kind, error = OutcomeKind.SKIPPED, str(refusal)
        except CancelledError:
            raise
        except Exception as failure:
            kind, error = OutcomeKind.FAILED, describe_error(failure)
            logger.warning("%s: %s failed", action.table, action.action, exc_info=True)
        seconds = time.monotonic() - start
        return ActionOutcome(
            decision=action,
            kind=kind,
            started_at=started_at,
            seconds=seconds,
            effect=effect,
            error=error,
            cost=self._prices.compute_cost(effect.bytes_read + effect.bytes_written, seconds),
        )

    def _reserve(self, action: MaintenanceDecision, size: int) -> None:
        refusal = self._budget.find_refusal(size, datetime.now(), is_due=action.is_due)
        if refusal is not None:
            raise BudgetError(refusal)
