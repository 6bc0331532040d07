"""What the ops of some steps have in addition to the declarations of these steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from paimon_orch.format.times import parse_duration
from paimon_orch.steps.cleanup import remove_orphan_files
from paimon_orch.steps.common.argument import Argument


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDetails:
    """What an op has in addition to the declaration of its step."""

    defaults: Mapping[str, object] = field(default_factory=dict)
    """Defaults of arguments that differ from those of the command; the launchpad shows them."""
    aliases: Mapping[str, tuple[str, Argument]] = field(default_factory=dict)
    """Other names of arguments, with what they accept."""
    plan: Callable[..., Any] | None = None
    """Plans the step in place of the function of the declaration."""
    uncounted: frozenset[str] = frozenset()
    """Lists in the plan or the outcome whose lengths are not metrics."""
    count_outcome: Callable[[Mapping[str, Any]], Mapping[str, object]] | None = None
    """Returns the metrics of an outcome, which are otherwise its JSON values."""


def _count_manifests(outcome: Mapping[str, Any]) -> Mapping[str, object]:
    manifests, size = outcome["manifests"], outcome["bytes"]
    return {
        "manifests_before": manifests,
        "manifests_after": manifests - outcome["merged_files"] + outcome["written_files"],
        "bytes_before": size,
        "bytes_after": size - outcome["merged_bytes"] + outcome["written_bytes"],
    }


NO_DETAILS = OpDetails()
OP_DETAILS: Mapping[str, OpDetails] = MappingProxyType(
    {
        "compact-manifests": OpDetails(count_outcome=_count_manifests),
        "expire-snapshots": OpDetails(
            aliases={
                "retain_for": (
                    "older_than",
                    Argument(
                        "Retain snapshots younger than this, for example '24 h'.",
                        parse=parse_duration,
                    ),
                )
            },
            uncounted=frozenset({"held_by"}),
        ),
        "mark-done": OpDetails(uncounted=frozenset({"actions"})),
        "remove-orphan-files": OpDetails(
            defaults={"older_than": "3 d"},  # the slowest writers commit within this time
            plan=remove_orphan_files.plan,  # executor: spark is for small work too
            uncounted=frozenset({"paths", "skipped_external_paths"}),
        ),
    }
)
"""The details by the names of steps."""
