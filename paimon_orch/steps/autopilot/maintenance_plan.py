"""Plans the maintenance of many tables: one queue of actions within budgets; changes nothing.

The actions of all tables are ranked by the read cost that they save for a byte that they rewrite,
and chosen in this order as long as the budgets last.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CancelledError, describe_error, is_temporary, raise_if_temporary
from paimon_orch.steps.autopilot.budgets import SkipReason, choose_actions
from paimon_orch.steps.autopilot.decisions import DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.maintenance_history import read_bytes_of_last_hour
from paimon_orch.steps.autopilot.maintenance_request import MaintenanceRequest
from paimon_orch.steps.autopilot.table_actions import find_actions
from paimon_orch.steps.common.executor import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """The actions to execute, and all other decisions. It is falsy if there are no actions."""

    request: MaintenanceRequest
    tables: tuple[str, ...] = ()
    """The selected tables."""
    actions: tuple[MaintenanceDecision, ...] = ()
    """The chosen actions, best first."""
    skips: tuple[MaintenanceDecision, ...] = ()
    """Actions that are not executed, with the reason, best first."""
    available_bytes: int | None = None
    """The bytes that the actions may rewrite; None means any number."""

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.actions)

    @property
    def rewrite_bytes(self) -> int:
        """Return the estimated size of the files that all actions rewrite."""
        return sum(action.rewrite_bytes for action in self.actions)

    def count_states(self) -> dict[str, int]:
        """Return the number of decisions by state."""
        counts = Counter(decision.state for decision in (*self.actions, *self.skips))
        return {state.value: counts[state] for state in DecisionState}

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return {
            "tables": len(self.tables),
            "rewrite_bytes": self.rewrite_bytes,
            "available_bytes": self.available_bytes,
            "actions": [action.to_dict() for action in self.actions],
            "skips": [skip.to_dict() for skip in self.skips],
        }


def plan_maintenance(
    catalog: Catalog,
    request: MaintenanceRequest,
    executor: Executor | None = None,
    *,
    advance: Callable[[int, int], object] = lambda _completed, _total: None,
) -> MaintenancePlan:
    """Examine the selected tables, and choose actions within the budgets; reads only metadata.

    A table that cannot be read is skipped with its error. Raises the error if it is temporary and
    no table can be reached.

    :param executor: reads the manifests of very large tables; by default this process
    :param advance: called with the number of examined tables and of all tables
    """
    tables = tuple(filter(request.selects, catalog.find_tables()))
    decisions = _examine_all(catalog, tables, request, executor, advance)
    used = 0
    if request.budgets.hour_bytes is not None:
        used = read_bytes_of_last_hour(catalog, request.history_table, request.now)
    available = request.budgets.compute_available_bytes(used)
    is_open = request.budgets.is_open((request.now or datetime.now()).astimezone().hour)
    planned = MaintenancePlan(request=request, tables=tables, available_bytes=available)
    if not is_open:
        reason = f"outside of the hours {request.budgets.hours}"
        skips = [
            skip_action(each, reason) if each.state is DecisionState.CHOSEN else each
            for each in decisions
        ]
        return replace(planned, skips=tuple(order_skips(skips)))
    actions, skips = rank_actions(decisions, request, available)
    return replace(planned, actions=tuple(actions), skips=tuple(skips))


def rank_actions(
    decisions: Sequence[MaintenanceDecision], request: MaintenanceRequest, max_bytes: int | None
) -> tuple[list[MaintenanceDecision], list[MaintenanceDecision]]:
    """Return the actions to execute, best first, and the other decisions with their reasons."""
    candidates = [each for each in decisions if each.state is DecisionState.CHOSEN]
    # Of the actions that are due, the one that has waited longest comes first.
    candidates.sort(key=lambda each: math.inf if each.unseen_since is None else each.unseen_since)
    skips = [each for each in decisions if each.state is not DecisionState.CHOSEN]
    scores = np.array([each.score for each in candidates], np.float64)
    sizes = np.array([each.rewrite_bytes for each in candidates], np.int64)
    chosen, reasons = choose_actions(
        scores, sizes, min_score=request.budgets.min_score, max_bytes=max_bytes
    )
    for number, reason in reasons.items():
        text = str(reason)
        if reason is SkipReason.SCORE:
            score = f"{candidates[number].score:.2f}"
            text = f"{reason} for a rewritten byte: {score} (limit {request.budgets.min_score:g})"
        skips.append(skip_action(candidates[number], text))
    return [candidates[number] for number in chosen.tolist()], order_skips(skips)


def skip_action(action: MaintenanceDecision, reason: str) -> MaintenanceDecision:
    """Return an action as skipped, with the reason before that of the candidate."""
    return replace(action, state=DecisionState.SKIPPED, reason=f"{reason}; {action.reason}")


def order_skips(skips: Iterable[MaintenanceDecision]) -> list[MaintenanceDecision]:
    """Return refused actions first, then those with the highest score."""
    order = [
        DecisionState.REFUSED,
        DecisionState.SKIPPED,
        DecisionState.NOTHING_TO_DO,
        DecisionState.CHOSEN,
    ]
    return sorted(skips, key=lambda each: (order.index(each.state), -each.score))


def _examine_all(
    catalog: Catalog,
    tables: Sequence[str],
    request: MaintenanceRequest,
    executor: Executor | None,
    advance: Callable[[int, int], object],
) -> list[MaintenanceDecision]:
    """Return the decisions about all tables."""
    decisions: list[MaintenanceDecision] = []
    outages: list[Exception] = []

    def decide(table: str) -> list[MaintenanceDecision]:
        try:
            return find_actions(catalog.table(table), request, executor)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is stored in it, the others are maintained
            if is_temporary(error):
                outages.append(error)
            refused = DecisionState.REFUSED
            return [MaintenanceDecision(table=table, state=refused, reason=describe_error(error))]

    for number, found in enumerate(catalog.examine_each(decide, tables), 1):
        decisions += found
        advance(number, len(tables))
    if outages and len(outages) == len(tables):
        raise_if_temporary(outages[0])
    return decisions
