"""What users set for the definitions of a table: ``op``, ``run_tags``, and other keywords.

A factory of definitions takes the fields of a class as its keywords. The class declares each of
them once, with its type and default, and passes them on as one object.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import dagster as dg
from dagster.components.resolved.core_models import OpSpec

from paimon_orch.dagster.partitions_definitions import PartitionsDef
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.orchestration.planned_runs import PlannedRun
from paimon_orch.signatures import with_parameters
from paimon_orch.steps.compaction.policy import CompactionPolicy

P = ParamSpec("P")
SettingsT = TypeVar("SettingsT")
DefinitionT = TypeVar("DefinitionT")

MAX_PARTITIONS_PER_RUN = 8

RunTags = Mapping[str, str] | Callable[[PlannedRun], Mapping[str, str]]
"""Tags of runs, or a function that returns them for a compaction from what it will read."""
DEFAULT_OP = OpSpec()


def describe_op(op: OpSpec, name: str, description: str | None = None) -> dict[str, Any]:
    """Return the attributes of the op of an asset or a check; the arguments are its defaults."""
    return {
        "name": op.name or name,
        "description": op.description or description,
        "op_tags": op.tags,
        "pool": op.pool,
    }


def build_run_tags(tags: RunTags | None, run: PlannedRun) -> dict[str, str]:
    """Return the tags of the user for a run."""
    return dict(tags(run) if callable(tags) else tags or {})


def get_backfill_policy(op: OpSpec, max_partitions: int) -> dg.BackfillPolicy:
    """Return the policy of an op, by default runs of several partitions."""
    return op.backfill_policy or dg.BackfillPolicy.multi_run(max_partitions)


def take_settings(
    settings: Callable[P, SettingsT],
) -> Callable[[Callable[[SettingsT], DefinitionT]], Callable[P, DefinitionT]]:
    """Let a factory take the fields of a class, in place of an object of it."""

    def decorate(factory: Callable[[SettingsT], DefinitionT]) -> Callable[P, DefinitionT]:
        return with_parameters(
            factory,
            inspect.signature(settings).parameters.values(),
            lambda **values: factory(settings(**values)),  # type: ignore[call-arg]
            returns=inspect.signature(factory).return_annotation,
        )

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """What all definitions of a table have in common."""

    table: str = field(kw_only=False)
    key_prefix: Sequence[str] = ()
    op: OpSpec = field(default_factory=OpSpec)
    """The name, tags, description, pool and backfill policy of the op."""
    resource_prefix: str = ""
    """What the names of the resources begin with, for a project with several catalogs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedSettings(TableSettings):
    """What the definitions of a table's maintenance assets have in common."""

    partitions_def: PartitionsDef | None = None
    max_partitions_per_run: int = MAX_PARTITIONS_PER_RUN
    allowances: Allowances = NO_ALLOWANCES


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings(PartitionedSettings):
    """What a sensor and a schedule that request compactions have in common."""

    policy: CompactionPolicy | None = None
    run_tags: RunTags | None = None
    """Tags of the requested runs, or a function that returns them from what the run will do."""
