"""Budgets of maintenance are never exceeded, and the best actions are chosen first."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_orch.errors import InputError
from paimon_orch.steps.autopilot.budgets import (
    MaintenanceBudgets,
    RemainingBudget,
    SkipReason,
    choose_actions,
)

CANDIDATES = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 50)), max_size=30)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(candidates=CANDIDATES, limit=st.none() | st.integers(0, 200), min_score=st.floats(0, 3))
def test_the_best_actions_that_fit_are_chosen_and_each_other_one_has_a_reason(
    candidates: list[tuple[float, int]], limit: int | None, min_score: float
) -> None:
    scores = np.array([score for score, _ in candidates], np.float64)
    sizes = np.array([size for _, size in candidates], np.int64)

    chosen, reasons = choose_actions(scores, sizes, min_score=min_score, max_bytes=limit)

    expected, remaining = [], limit
    for number in sorted(range(len(candidates)), key=lambda n: -candidates[n][0]):
        size = candidates[number][1]
        if candidates[number][0] < min_score:
            assert reasons[number] is SkipReason.SCORE
        elif remaining is not None and size > remaining:
            assert reasons[number] is SkipReason.BYTES
        else:
            expected.append(number)
            remaining = None if remaining is None else remaining - size
    assert chosen.tolist() == expected
    assert len(reasons) + len(expected) == len(candidates)


def test_the_smaller_limit_of_the_run_and_the_hour_counts() -> None:
    budgets = MaintenanceBudgets(max_bytes="10 mb", max_bytes_per_hour="12 mb")

    assert budgets.compute_available_bytes(0) == 10 << 20
    assert budgets.compute_available_bytes(5 << 20) == 7 << 20
    assert budgets.compute_available_bytes(20 << 20) == 0
    assert MaintenanceBudgets().compute_available_bytes(1) is None


@pytest.mark.parametrize(
    ("hours", "open_hours"),
    [("22-2", {22, 23, 0, 1}), ("3 - 5", {3, 4}), ("0-24", set(range(24))), (None, set(range(24)))],
)
def test_hours_may_include_midnight(hours: str | None, open_hours: set[int]) -> None:
    budgets = MaintenanceBudgets(hours=hours)

    assert {hour for hour in range(24) if budgets.is_open(hour)} == open_hours


@pytest.mark.parametrize(
    "limits",
    [
        {"hours": "22"},
        {"hours": "3-3"},
        {"hours": "3-25"},
        {"max_bytes": "many"},
        {"max_bytes_per_hour": "-1"},
        {"max_concurrent": 0},
        {"min_score": -1.0},
        {"min_score": float("nan")},
    ],
)
def test_invalid_budgets_are_refused_when_they_are_set(limits: dict[str, object]) -> None:
    with pytest.raises(InputError):
        MaintenanceBudgets(**limits)  # type: ignore[arg-type]


def test_an_action_that_does_not_fit_leaves_the_rest_of_the_budget_to_others() -> None:
    budget, now = RemainingBudget(MaintenanceBudgets(), 100), datetime(2026, 1, 1)

    assert budget.find_refusal(60, now, is_due=False) is None
    refusal = budget.find_refusal(60, now, is_due=False)
    assert refusal is not None
    assert refusal.startswith("the budget of bytes is used up")
    assert budget.find_refusal(40, now, is_due=False) is None


def test_one_action_that_is_due_may_need_more_than_the_remaining_bytes() -> None:
    scores, sizes = np.array([2.0, np.inf, np.inf, np.inf]), np.array([5, 0, 90, 80])
    budget, now = RemainingBudget(MaintenanceBudgets(), 10), datetime(2026, 1, 1)

    def choose(limit: int) -> list[int]:
        chosen, _ = choose_actions(scores, sizes, min_score=1.0, max_bytes=limit)
        return [*map(int, chosen)]

    assert (choose(0), choose(10), choose(95), choose(200)) == (
        [1],
        [1, 2],
        [1, 2, 0],
        [1, 2, 3, 0],
    )
    assert budget.find_refusal(90, now, is_due=True) is None
    assert budget.find_refusal(1, now, is_due=True) is not None
    assert budget.find_refusal(0, now, is_due=False) is None


def test_no_action_starts_after_the_hours() -> None:
    budget = RemainingBudget(MaintenanceBudgets(hours="1-2"), None)

    assert budget.find_refusal(1, datetime(2026, 1, 1, 1, 59), is_due=False) is None
    for is_due in (False, True):
        refusal = budget.find_refusal(1, datetime(2026, 1, 1, 2), is_due=is_due)
        assert refusal == "outside of the hours 1-2"
