"""Maintenance ops: their configs, functions and metadata come from the declarations of steps.

An op makes a plan, reports the plan, and executes this plan; a dry run ends after the report.
:data:`OP_DETAILS` has what some ops have in addition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Literal, get_args, get_origin

import dagster as dg
from pydantic import Field, ValidationError, create_model

from paimon_orch.dagster.remote_runs import RemoteSteps
from paimon_orch.dagster.resources import (
    MAINTENANCE_EXECUTOR_HELP,
    ExecutorChoice,
    PaimonCatalogResource,
    SparkSessionResource,
)
from paimon_orch.dagster.run_config import AllowanceConfig, build_config_class, report_stale_options
from paimon_orch.dagster.run_metadata import Metadata, build_metadata_table
from paimon_orch.dagster.spark_links import (
    build_maintenance_executor,
    build_progress_logger,
    build_spark_link_metadata,
)
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.format.times import parse_duration
from paimon_orch.orchestration.run_reports import ReportTable
from paimon_orch.orchestration.step_runs import (
    NO_ACTION,
    is_snapshot_id,
    name_figures,
    tabulate_plan,
)
from paimon_orch.steps.cleanup import remove_orphan_files
from paimon_orch.steps.common.argument import Argument, DeclaredField
from paimon_orch.steps.common.step_declaration import StepDeclaration, StepTarget
from paimon_orch.steps.common.step_registry import find_steps, load_declaration
from paimon_orch.steps.definition.catalog_target import CatalogEntry
from paimon_orch.table.table import Table

DRY_RUN_HELP = "Report what the run would do, without changing the table."


class MaintenanceConfig(AllowanceConfig):
    """Run config of all maintenance ops."""

    dry_run: bool = Field(default=True, description=DRY_RUN_HELP)


class WorkUnitsConfig(MaintenanceConfig):
    """Run config of maintenance ops with work units."""

    executor: ExecutorChoice = Field(
        default=ExecutorChoice.auto, description=MAINTENANCE_EXECUTOR_HELP
    )


DAMAGE_REMAINS = "paimon/damage_remains"
"""The metadata of a run that leaves damage, and fails."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOp:
    """A declared step as an op with a run config."""

    action: str
    """The name of the op."""
    description: str
    """The description of the op: a template with the field ``table``, a table or several."""
    config: type[MaintenanceConfig]
    """The class of the op's config; its defaults are the policy of the job."""
    declaration: StepDeclaration[Any, Any, Any]
    details: OpDetails

    @property
    def shown(self) -> tuple[str, ...]:
        """The fields that the launchpad shows even if the policy does not set them."""
        required = (name for name, each in self.declaration.arguments.items() if each.is_required)
        return ("dry_run", *required, *self.details.defaults)

    def with_policy(self, policy: Mapping[str, Any]) -> "MaintenanceOp":
        """Return the op with the values of ``policy`` as config defaults.

        Raises :class:`InputError` for an unknown config field and for an invalid value.
        """
        config = self.check_config(policy)
        defaults = {name: getattr(config, name) for name in policy}
        return replace(self, config=build_config_class(self.config, defaults))

    def check_config(self, config: Mapping[str, Any]) -> MaintenanceConfig:
        """Return the config, with defaults for the other fields.

        Raises :class:`InputError` for an unknown config field and for an invalid value, when
        definitions load and not in a scheduled run.
        """
        fields = self.config.model_fields
        unknown = sorted(config.keys() - fields.keys())
        if unknown:
            raise InputError(
                f"{self.action} has no config field {', '.join(unknown)}; "
                f"its fields are {', '.join(fields)}"
            )
        try:
            checked = self.config(**config)
        except ValidationError as error:
            arguments = self.declaration.arguments
            for name in config.keys() & arguments.keys():  # the sentence of the other front ends
                arguments[name].convert(config[name], name)
            details = "; ".join(
                f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}"
                for e in error.errors()
            )
            raise InputError(f"invalid config of {self.action}: {details}") from error
        for name, value in self._list_arguments(checked).items():
            self.declaration.arguments[name].convert(value, name)
        return checked

    def open_target(
        self, config: MaintenanceConfig, paimon: PaimonCatalogResource, name: str
    ) -> Table | CatalogEntry:
        """Open the table of a run, or the entry of the catalog that the step changes."""
        if self.declaration.target is StepTarget.TABLE:
            return config.load_table(paimon, name)
        return self.declaration.open_target(config.open_catalog(paimon), name)

    def execute(
        self,
        context: dg.OpExecutionContext,
        config: MaintenanceConfig,
        target: Table | CatalogEntry,
        spark: SparkSessionResource,
        remote: RemoteSteps | None = None,
    ) -> Metadata:
        """Plan the step, log the plan, and, unless this is a dry run, execute it.

        ``remote`` does this in another process. Returns the metadata of the observation.
        """
        if remote is not None:
            return self._execute_elsewhere(context, config, target, remote)
        name, declaration = f"{self.action} of {target.identifier}", self.declaration
        executor = build_maintenance_executor(context, spark, _get_executor(config))
        request = declaration.build_request(target, self._list_arguments(config))
        plan = declaration.plan(target, request, executor=executor)
        if config.dry_run:
            plan = declaration.measure_plan(target, plan, executor)
        figures, stale = self._count(plan.to_dict()), Metadata()
        mode = "dry run" if config.dry_run else "plan"
        context.log.info("%s (%s): %s", name, mode, figures)
        planned = plan.describe()
        shown = tabulate_plan(planned)
        if planned.is_incomplete:
            context.log.warning("%s leaves damage: %s", name, "; ".join(planned.lines))
        if not config.dry_run:
            progress = build_progress_logger(context, name)
            outcome = declaration.run(target, plan, executor, progress=progress)
            figures = self._count_outcome(outcome.to_dict())
            stale = _report_stale_options(context, target)
            context.log.info("%s: %s", name, figures)
            stale |= _show_notes(context, outcome.list_notes())
        metadata = self._build_metadata(
            figures, shown, planned.short_action if plan else NO_ACTION, dry_run=config.dry_run
        )
        if planned.is_incomplete:
            metadata[DAMAGE_REMAINS] = True
        return metadata | build_spark_link_metadata(spark) | stale

    def _execute_elsewhere(
        self,
        context: dg.OpExecutionContext,
        config: MaintenanceConfig,
        target: Table | CatalogEntry,
        remote: RemoteSteps,
    ) -> Metadata:
        report, links = remote.run(
            self.action.replace("_", "-"),
            target,
            self._list_arguments(config),
            executor=_get_executor(config),
            dry_run=config.dry_run,
        )
        figures, stale = self._count(report["plan"]), Metadata()
        if not config.dry_run:
            figures = self._count_outcome(report["outcome"])
            stale = _report_stale_options(context, target)
            stale |= _show_notes(context, report.get("notes", ()))
        context.log.info("%s of %s: %s", self.action, target.identifier, figures)
        shown = ReportTable.of(report["items"], report["columns"])
        metadata = self._build_metadata(figures, shown, report["action"], dry_run=config.dry_run)
        if report["is_incomplete"]:
            metadata[DAMAGE_REMAINS] = True
        return metadata | links | stale

    def _build_metadata(
        self, figures: Mapping[str, int | float], shown: ReportTable, action: str, *, dry_run: bool
    ) -> Metadata:
        """Return the metadata of a run, with the items of its plan."""
        return {
            "paimon/summary": _summarize(self.action, figures, action, dry_run=dry_run),
            **name_figures(self.action, figures, dry_run=dry_run),
            "paimon/dry_run": dry_run,
            **(
                {"paimon/plan": build_metadata_table(shown.rows, shown.columns)}
                if shown.columns
                else {}
            ),
        }

    def _list_arguments(self, config: MaintenanceConfig) -> dict[str, Any]:
        """Return the arguments that are not the defaults of the step.

        Raises :class:`InputError` for invalid values of other names of arguments.
        """
        values = {
            name: getattr(config, name)
            for name, declared in self.declaration.arguments.items()
            if getattr(config, name) != get_default(declared)
        }
        for alias, (name, argument) in self.details.aliases.items():
            value = getattr(config, alias)
            if value is not None:
                if name in values:
                    raise InputError(f"{alias} and {name} cannot be combined; set one of them")
                if argument.parse is not None:
                    argument.parse(alias, value)
                values[name] = value
        return values

    def _count_outcome(self, outcome: Mapping[str, Any]) -> dict[str, int | float]:
        count = self.details.count_outcome
        return self._count(outcome if count is None else count(outcome))

    def _count(self, values: Mapping[str, object]) -> dict[str, int | float]:
        """Return the numbers, and the lengths of lists, because metadata has numbers."""
        counts = {
            name: len(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name not in self.details.uncounted
        }
        return {name: value for name, value in counts.items() if isinstance(value, int | float)}


@cache
def build_declared_op(step: str) -> MaintenanceOp:
    """Return the op of a declared step. Raises :class:`NotFoundError` for an unknown name."""
    declaration, details = load_declaration(step), OP_DETAILS.get(step, NO_DETAILS)
    declaration = replace(declaration, plan=details.plan or declaration.plan)
    title = declaration.title
    return MaintenanceOp(
        action=step.replace("-", "_"),
        description=f"{title[0].upper()}{title[1:]} {{table}}. {find_steps()[step].summary}",
        config=_build_config(step, declaration, details),
        declaration=declaration,
        details=details,
    )


def find_op(action: str) -> MaintenanceOp:
    """Return the op of an action."""
    return build_declared_op(action.replace("_", "-"))


def _build_config(
    step: str, declaration: StepDeclaration[Any, Any, Any], details: OpDetails
) -> type[MaintenanceConfig]:
    """Return the config class of a step: its arguments, with their sentences."""
    fields: dict[str, Any] = {
        name: (
            find_type(declared),
            Field(
                default=details.defaults.get(name, get_default(declared)),
                description=declared.argument.help,
            ),
        )
        for name, declared in declaration.arguments.items()
    }
    for alias, (_, argument) in details.aliases.items():
        fields[alias] = (str | None, Field(default=None, description=argument.help))
    fields["dry_run"] = (bool, Field(default=declaration.asks, description=DRY_RUN_HELP))
    name = "".join(part.capitalize() for part in step.split("-"))
    base = WorkUnitsConfig if declaration.has_units else MaintenanceConfig
    return create_model(f"{name}Config", __base__=base, **fields)


def find_type(declared: DeclaredField) -> Any:
    """Return the type of a config field; Dagster has neither tuples nor unions."""
    kind, origin = declared.kind, get_origin(declared.kind)
    if declared.argument.parse is not None or origin is Literal:
        kind = str
    elif origin is not None and issubclass(origin, Sequence):
        kind = list[int] if get_args(kind)[0] is int else list[str]
    elif origin is not None and issubclass(origin, Mapping):
        kind = dict[str, str]
    is_optional = declared.default is None or NoneType in get_args(declared.hint)
    return kind | None if is_optional else kind


def get_default(declared: DeclaredField) -> Any:
    """Return the default of a config field, which has lists and no tuples."""
    default = declared.default
    return list(default) if isinstance(default, tuple) else default


def _report_stale_options(context: dg.OpExecutionContext, target: Table | CatalogEntry) -> Metadata:
    """Report stale external systems of a table; an entry of a catalog may be dropped."""
    return report_stale_options(context, target.stores) if isinstance(target, Table) else {}


def _show_notes(context: dg.OpExecutionContext, notes: Sequence[str]) -> Metadata:
    """Log what a user should know of an outcome, and return it as metadata."""
    for note in notes:
        context.log.info(note)
    return {"paimon/notes": "; ".join(notes)} if notes else {}


def _get_executor(config: MaintenanceConfig) -> ExecutorChoice:
    """Return where the work of a run is done; steps without work units have no choice."""
    return config.executor if isinstance(config, WorkUnitsConfig) else ExecutorChoice.auto


def _summarize(action: str, figures: Mapping[str, int | float], work: str, *, dry_run: bool) -> str:
    """Return the counts that are not 0 as a sentence; without any, what was planned."""
    counts = [
        format_count(value, name.removesuffix("s"), name).replace("_", " ")
        for name, value in figures.items()
        if value and isinstance(value, int) and not is_snapshot_id(name)
    ]
    mode = "Dry run of" if dry_run else "Executed"
    return f"{mode} {action}: {', '.join(counts) or work}."
