"""Attributes of freshness in the YAML of components."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, ClassVar

import dagster as dg
from pydantic import Field

from paimon_orch.dagster.components.attribute_rules import (
    CRON_RULE,
    DURATION_RULE,
    TIMEZONE_RULE,
    Attributes,
    JsonSchema,
    require_any_of,
)
from paimon_orch.errors import InputError
from paimon_orch.format.times import parse_duration


class FreshnessAttributes(Attributes):
    """How fresh data must be: a maximum age (``fail_after``) or a deadline (``deadline_cron``)."""

    object_schemas: ClassVar[Sequence[JsonSchema]] = (
        require_any_of("fail_after", "deadline_cron"),
    )

    fail_after: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="Age after which the freshness policy fails, for example 24 h."
    )
    warn_after: Annotated[str | None, DURATION_RULE] = Field(
        default=None, description="Age after which the freshness policy warns, for example 12 h."
    )
    deadline_cron: Annotated[str | None, CRON_RULE] = Field(
        default=None, description="Cron schedule of the deadline."
    )
    within: Annotated[str | None, DURATION_RULE] = Field(
        default=None,
        description="Time before the deadline in which new data is expected, for example 2 h.",
    )
    timezone: Annotated[str, TIMEZONE_RULE] = Field(
        default="UTC", description="Time zone of deadline_cron."
    )

    @property
    def window(self) -> timedelta:
        """The age above which a commit is not fresh when it is reported."""
        self.policy()  # refuses attributes without a window
        if self.fail_after is not None:
            return parse_duration("fail_after", self.fail_after)
        return parse_duration("within", self.within)

    def policy(self) -> dg.FreshnessPolicy:
        """Return Dagster's policy; raises :class:`InputError` unless exactly one kind is set."""
        if (self.fail_after is None) == (self.deadline_cron is None):
            raise InputError("freshness requires one of 'fail_after' and 'deadline_cron'")
        if self.fail_after is not None:
            return dg.FreshnessPolicy.time_window(
                fail_window=parse_duration("fail_after", self.fail_after),
                warn_window=parse_duration("warn_after", self.warn_after)
                if self.warn_after
                else None,
            )
        if self.within is None:
            raise InputError("freshness with 'deadline_cron' requires 'within'")
        return dg.FreshnessPolicy.cron(
            deadline_cron=str(self.deadline_cron),
            lower_bound_delta=parse_duration("within", self.within),
            timezone=self.timezone,
        )
