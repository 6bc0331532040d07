"""Attributes of the maintenance of many tables in the YAML of a component."""

from typing import Annotated

from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import SIZE_RULE, Attributes
from paimon_orch.steps.autopilot.action_outcome import MaintenancePrices
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets


class BudgetAttributes(Attributes):
    """Limits of the maintenance of many tables."""

    max_bytes: Annotated[str | None, SIZE_RULE] = Field(
        default=None, description="Bytes that one run rewrites, for example 50 gb."
    )
    max_bytes_per_hour: Annotated[str | None, SIZE_RULE] = Field(
        default=None, description="Bytes that the runs of one hour rewrite, by the history table."
    )
    max_concurrent: int = Field(
        default=1, ge=1, description="Maximum number of tables that are maintained at once."
    )
    hours: str | None = Field(
        default=None,
        description="Hours of the day in which actions start, such as 22-6, in the local time of "
        "the run.",
    )
    min_score: float = Field(
        default=1.0,
        ge=0,
        description="Bytes that a read must save for a rewritten byte; other actions are skipped.",
    )

    def build_budgets(self) -> MaintenanceBudgets:
        """Return the budgets; raises :class:`InputError` for invalid values."""
        return MaintenanceBudgets(**self.model_dump())


class PriceAttributes(Attributes):
    """Prices from which the cost of each action is computed, in any currency."""

    per_gb: float = Field(default=0.0, ge=0, description="Price of 10^9 bytes read or written.")
    per_core_hour: float = Field(default=0.0, ge=0, description="Price of an hour of a core.")
    cores: int = Field(
        default=1, ge=0, description="Cores that are in use while an action is executed."
    )

    def build_prices(self) -> MaintenancePrices:
        """Return the prices."""
        return MaintenancePrices(**self.model_dump())
