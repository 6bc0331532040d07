"""Attributes of the maintenance of many tables in the YAML of a component."""

from typing import Annotated, Any

from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import SIZE_RULE, Attributes
from paimon_orch.steps.autopilot.action_outcome import MaintenancePrices
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.common.argument import list_arguments


def declare_field(request: type[Any], name: str) -> Any:
    """Return the field that a request declares."""
    declared = list_arguments(request)[name]
    argument = declared.argument
    return Field(default=declared.default, ge=argument.minimum, description=argument.help)


class BudgetAttributes(Attributes):
    """Limits of the maintenance of many tables."""

    max_bytes: Annotated[str | None, SIZE_RULE] = declare_field(MaintenanceBudgets, "max_bytes")
    max_bytes_per_hour: Annotated[str | None, SIZE_RULE] = declare_field(
        MaintenanceBudgets, "max_bytes_per_hour"
    )
    max_concurrent: int = declare_field(MaintenanceBudgets, "max_concurrent")
    hours: str | None = declare_field(MaintenanceBudgets, "hours")
    min_score: float = declare_field(MaintenanceBudgets, "min_score")

    def build_budgets(self) -> MaintenanceBudgets:
        """Return the budgets; raises :class:`InputError` for invalid values."""
        return MaintenanceBudgets(**self.model_dump())


class PriceAttributes(Attributes):
    """Prices from which the cost of each action is computed, in any currency."""

    per_gb: float = declare_field(MaintenancePrices, "per_gb")
    per_core_hour: float = declare_field(MaintenancePrices, "per_core_hour")
    cores: int = declare_field(MaintenancePrices, "cores")

    def build_prices(self) -> MaintenancePrices:
        """Return the prices."""
        return MaintenancePrices(**self.model_dump())
