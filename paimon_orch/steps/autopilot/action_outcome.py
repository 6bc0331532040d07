"""The outcome of an executed action, and what it cost."""

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from paimon_orch.errors import InputError
from paimon_orch.steps.autopilot.decisions import MaintenanceDecision
from paimon_orch.steps.common.argument import Argument

_GB, _SECONDS_PER_HOUR = 1e9, 3600


class OutcomeKind(StrEnum):
    """How an action ended."""

    DONE = "done"
    NOTHING_TO_DO = "nothing to do"
    """The table has changed since the plan, so that there is no work left."""
    SKIPPED = "skipped"
    """The plan leaves the action for later, or the budget that remains is too small."""
    REFUSED = "refused"
    """The table cannot be read, or its options forbid the action."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePrices:
    """Prices in any currency."""

    per_gb: Annotated[
        float,
        Argument("Price of 10^9 bytes read or written.", option="--price-per-gb", minimum=0),
    ] = 0.0
    per_core_hour: Annotated[
        float, Argument("Price of an hour of a core.", option="--price-per-core-hour", minimum=0)
    ] = 0.0
    cores: Annotated[
        int, Argument("Cores that are in use while an action is executed.", minimum=0)
    ] = 1

    def __post_init__(self) -> None:
        for name in ("per_gb", "per_core_hour", "cores"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} is {getattr(self, name)}, but must be at least 0")

    def compute_cost(self, size: int, seconds: float) -> float:
        """Return the price of an action that reads and writes ``size`` bytes."""
        hours = self.cores * seconds / _SECONDS_PER_HOUR
        return self.per_gb * size / _GB + self.per_core_hour * hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEffect:
    """What an action changed; sizes are in bytes."""

    bytes_read: int = 0
    bytes_written: int = 0
    bytes_deleted: int = 0
    rows: int = 0
    """The number of rows that were written or indexed."""
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """The outcome of one action of a plan."""

    decision: MaintenanceDecision
    kind: OutcomeKind
    started_at: datetime
    seconds: float = 0.0
    effect: ActionEffect = ActionEffect()
    error: str | None = None
    """Why the action failed, or was skipped when it started."""
    cost: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the outcome and its decision as JSON values."""
        return {
            **self.decision.to_dict(),
            "outcome": self.kind.value,
            "started_at": self.started_at.isoformat(),
            "seconds": round(self.seconds, 3),
            **asdict(self.effect),
            "error": self.error,
            "cost": self.cost,
        }

    def __str__(self) -> str:
        text = f"{self.decision.table} {self.decision.partition}".rstrip()
        text = f"{text}: {self.decision.action}: {self.kind}"
        return text if self.error is None else f"{text}: {self.error}"
