"""Maintenance ops whose config and functions come from the declaration of a step.

The seven ops of :mod:`paimon_orch.dagster.maintenance_ops` have fields and metadata of their own;
any declared step has an op here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import Field, create_model

from paimon_orch.dagster.maintenance_ops import (
    DRY_RUN_HELP,
    MAINTENANCE_OPS,
    DeletionConfig,
    MaintenanceConfig,
    MaintenanceOp,
)
from paimon_orch.steps.common.argument import DeclaredField
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step_declaration import StepDeclaration
from paimon_orch.steps.common.step_registry import find_steps, load_declaration
from paimon_orch.table.table import Table

if TYPE_CHECKING:  # it imports the steps of all other ops
    from paimon_orch.dagster.maintenance_steps import MaintenanceResult, MaintenanceStep

_Declaration = StepDeclaration[Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredOp(MaintenanceOp[Any]):
    """The op of a declared step."""

    declaration: _Declaration

    def load_step(self) -> "MaintenanceStep[Any, Any]":
        """Return the functions of the step."""
        from paimon_orch.dagster.maintenance_steps import MaintenanceStep

        return MaintenanceStep(plan=self._plan, describe=_describe, run=self._run)

    def check_config(self, config: Mapping[str, Any]) -> Any:
        """Return the config; raises :class:`InputError` also for texts that cannot be parsed."""
        checked = super(DeclaredOp, self).check_config(config)
        for name, value in self._list_arguments(checked).items():
            self.declaration.arguments[name].convert(value, name)
        return checked

    def _list_arguments(self, config: Any) -> dict[str, Any]:
        """Return the arguments that are not the defaults of the step."""
        return {
            name: getattr(config, name)
            for name, declared in self.declaration.arguments.items()
            if getattr(config, name) != _get_default(declared)
        }

    def _plan(self, table: Table, config: Any, executor: Executor, _progress: Progress) -> Any:
        request = self.declaration.build_request(table, self._list_arguments(config))
        return self.declaration.plan(table, request, executor=executor)

    def _run(
        self, table: Table, plan: Any, executor: Executor, progress: Progress
    ) -> "MaintenanceResult":
        return _describe_outcome(self.declaration.run(table, plan, executor, progress=progress))


def find_op(action: str) -> MaintenanceOp[Any]:
    """Return the op of an action."""
    return MAINTENANCE_OPS.get(action) or build_declared_op(action.replace("_", "-"))


def build_declared_op(step: str) -> DeclaredOp:
    """Return the op of a declared step. Raises :class:`NotFoundError` for an unknown name."""
    declaration, summary = load_declaration(step), find_steps()[step].summary
    return DeclaredOp(
        action=step.replace("-", "_"),
        description=f"{summary} Runs on {{table}} and reports its figures.",
        config=_build_config(step, declaration),
        shown=(
            "dry_run",
            *(name for name, each in declaration.arguments.items() if each.is_required),
        ),
        declaration=declaration,
    )


def _build_config(step: str, declaration: _Declaration) -> type[MaintenanceConfig]:
    """Return the config class of a step: its arguments, with their sentences."""
    base = DeletionConfig if declaration.has_units else MaintenanceConfig
    fields: dict[str, Any] = {
        name: (
            _find_type(declared),
            Field(default=_get_default(declared), description=declared.argument.help),
        )
        for name, declared in declaration.arguments.items()
    }
    fields["dry_run"] = (bool, Field(default=declaration.asks, description=DRY_RUN_HELP))
    name = "".join(part.capitalize() for part in step.split("-"))
    return create_model(f"{name}Config", __base__=base, **fields)


def _find_type(declared: DeclaredField) -> Any:
    """Return the type of a config field; Dagster has no tuples, mappings or unions."""
    kind, origin = declared.kind, get_origin(declared.kind)
    if declared.argument.parse is not None or origin is Literal:
        kind = str
    elif origin is not None and issubclass(origin, Sequence):
        kind = list[int] if get_args(kind)[0] is int else list[str]
    is_optional = declared.default is None or NoneType in get_args(declared.hint)
    return kind | None if is_optional else kind


def _get_default(declared: DeclaredField) -> Any:
    """Return the default of a config field, which has lists and no tuples."""
    default = declared.default
    return list(default) if isinstance(default, tuple) else default


def _describe(_table: Table, plan: Any) -> "MaintenanceResult":
    """Return the figures of a plan, and its lines or its work units."""
    from paimon_orch.dagster.maintenance_steps import MaintenanceResult

    report = plan.describe()
    columns = list(report.header) or ["item"]
    lines = report.rows or [[line] for line in report.lines]
    rows = (dict(zip(columns, line, strict=True)) for line in lines)
    shown = dict.fromkeys(columns, "string") if lines else {}
    return MaintenanceResult(_count_lists(plan.to_dict()), rows, shown)


def _describe_outcome(outcome: Any) -> "MaintenanceResult":
    from paimon_orch.dagster.maintenance_steps import MaintenanceResult

    return MaintenanceResult(_count_lists(outcome.to_dict()))


def _count_lists(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values with the lengths of lists, because metadata has numbers."""
    return {
        name: len(value) if isinstance(value, list) else value for name, value in values.items()
    }
