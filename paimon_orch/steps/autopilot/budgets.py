"""Budgets of maintenance: bytes of a run and of an hour, tables at once, hours of the day."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from threading import Lock
from typing import Annotated

import numpy as np

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import Float64Array, Indices, Int64Array, Mask
from paimon_orch.format.display import format_size
from paimon_orch.format.options.value_type import parse_memory
from paimon_orch.steps.common.argument import Argument

_HOURS = re.compile(r"\s*(\d{1,2})\s*-\s*(\d{1,2})\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceBudgets:
    """Limits of one run; None means no limit."""

    max_bytes: Annotated[
        str | None, Argument("Bytes that one run rewrites, e.g. '50 gb'.", metavar="SIZE")
    ] = None
    """The bytes that the actions of a run rewrite, as text.

    While bytes remain, the first compaction of rows that readers do not see may need more: a
    partition that is larger than the budget would otherwise never become visible.
    """
    max_bytes_per_hour: Annotated[
        str | None,
        Argument(
            "Bytes that this run and those of the last hour rewrite, by the history table.",
            metavar="SIZE",
        ),
    ] = None
    max_concurrent: Annotated[int, Argument("Tables to maintain at once.", minimum=1)] = 1
    hours: Annotated[
        str | None, Argument("Local hours in which actions start.", metavar="22-6", default="all")
    ] = None
    """From the first hour to before the second one."""
    min_score: Annotated[
        float,
        Argument(
            "Bytes that a read must save for a rewritten byte; other actions are skipped.",
            minimum=0,
        ),
    ] = 1.0

    def __post_init__(self) -> None:
        # Invalid values raise an error here, not in a later run.
        _ = self.run_bytes, self.hour_bytes, self.is_open(0)
        if self.max_concurrent < 1:
            raise InputError(f"max_concurrent is {self.max_concurrent}, but must be at least 1")
        if not self.min_score >= 0:
            raise InputError(f"min_score is {self.min_score}, but must be at least 0")

    @property
    def run_bytes(self) -> int | None:
        """Return :attr:`max_bytes` in bytes."""
        return None if self.max_bytes is None else parse_memory("max_bytes", self.max_bytes)

    @property
    def hour_bytes(self) -> int | None:
        """Return :attr:`max_bytes_per_hour` in bytes."""
        limit = self.max_bytes_per_hour
        return None if limit is None else parse_memory("max_bytes_per_hour", limit)

    def compute_available_bytes(self, used_in_last_hour: int) -> int | None:
        """Return the bytes that a run may rewrite; None means any number."""
        limits = [] if self.run_bytes is None else [self.run_bytes]
        if self.hour_bytes is not None:
            limits.append(max(0, self.hour_bytes - used_in_last_hour))
        return min(limits, default=None)

    def is_open(self, hour: int) -> bool:
        """Return whether actions may start in an hour of the day."""
        if self.hours is None:
            return True
        match = _HOURS.fullmatch(str(self.hours))
        start, end = (-1, -1) if match is None else (int(match[1]), int(match[2]))
        if not (0 <= start <= 24 and 0 <= end <= 24) or start == end:
            raise InputError(f"hours are {self.hours!r}; write for example 22-6")
        return start <= hour < end if start < end else hour >= start or hour < end


class SkipReason(StrEnum):
    """Why a candidate is not chosen."""

    SCORE = "saves too little"
    BYTES = "the budget of bytes is used up"


def choose_actions(
    scores: Float64Array, sizes: Int64Array, *, min_score: float, max_bytes: int | None
) -> tuple[Indices, dict[int, SkipReason]]:
    """Return the chosen candidates, best first, and why the others are not chosen.

    An action that does not fit into the remaining bytes does not stop smaller ones. The first one
    with an infinite score is chosen while any bytes remain.
    """
    order = np.argsort(-scores, kind="stable")
    is_worth = scores[order] >= min_score
    reasons = dict.fromkeys(order[~is_worth].tolist(), SkipReason.SCORE)
    order = order[is_worth]
    fits = _select_fitting(sizes[order], np.isinf(scores[order]), max_bytes)
    reasons |= dict.fromkeys(order[~fits].tolist(), SkipReason.BYTES)
    return order[fits], reasons


def _select_fitting(sizes: Int64Array, is_due: Mask, limit: int | None) -> Mask:
    """Return a mask of the items that fit if they are added in their order, the first due one too."""
    if limit is None:
        return np.ones(len(sizes), bool)
    fits = np.zeros(len(sizes), bool)
    first = np.flatnonzero(is_due & (sizes > 0))[: int(limit > 0)]
    fits[first] = True
    limit = max(0, limit - int(sizes[first].sum()))
    items = np.flatnonzero(~fits)
    while len(items):
        items = items[sizes[items] <= limit]  # the others never fit again
        totals = np.cumsum(sizes[items])
        count = int(np.searchsorted(totals, limit, side="right"))
        fits[items[:count]] = True
        limit -= int(totals[count - 1]) if count else 0
        items = items[count:]
    return fits


class RemainingBudget:
    """What remains of the budgets of a run while its actions are executed."""

    def __init__(self, budgets: MaintenanceBudgets, max_bytes: int | None) -> None:
        self._budgets = budgets
        self._bytes = max_bytes
        self._lock = Lock()

    def find_refusal(self, size: int, now: datetime, *, is_due: bool) -> str | None:
        """Take the bytes of an action from the budget; return why it must not start, or None.

        An action that is due in any case only needs that bytes remain.
        """
        if not self._budgets.is_open(now.hour):
            return f"outside of the hours {self._budgets.hours}"
        with self._lock:
            if self._bytes is None:
                return None
            if size > self._bytes and not (is_due and self._bytes):
                return (
                    f"{SkipReason.BYTES}: the action now needs {format_size(size)}, and "
                    f"{format_size(self._bytes)} remain"
                )
            self._bytes = max(0, self._bytes - size)
        return None
