"""Declares a step for front ends: the arguments of its request, and how it is planned and run.

The fields of a request that users set are annotated with :class:`Argument`; a front end needs
nothing else to parse them:

>>> retain_max: Annotated[int | None, Argument("Maximum number to keep.", minimum=1)] = None

:mod:`paimon_orch.steps.common.step_registry` finds the declarations by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from paimon_orch.errors import InputError
from paimon_orch.safe_text import clean_line
from paimon_orch.steps.common.argument import Argument
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.step import (
    OutcomeT,
    PlanT,
    RequestT,
    Step,
    run_step,
)
from paimon_orch.table.table import Table

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A field of a request that users set."""

    name: str
    argument: Argument
    hint: Any
    """The type of its values."""
    is_required: bool

    def convert(self, value: object) -> object:
        """Return the value of the field for a JSON value.

        Raises :class:`InputError` for a value of another type, or below the minimum.
        """
        if value is None and _accepts(self.hint, None):
            return None
        if self.argument.parse is not None and isinstance(value, str):
            return self.argument.parse(self.name, value)
        if self.argument.parse is not None or not _accepts(self.hint, value):
            raise InputError(f"{self.name} is {_show(value)}, but must be {self.describe_type()}")
        minimum = self.argument.minimum
        if minimum is not None and isinstance(value, int) and value < minimum:
            raise InputError(f"{self.name} is {value}; the minimum is {minimum}")
        return tuple(value) if isinstance(value, list) else value

    def describe_type(self) -> str:
        """Return what the argument accepts: ``a whole number``, ``minor or full``."""
        if self.argument.parse is not None:
            return "a text"
        return _describe(self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDeclaration(Generic[RequestT, PlanT, OutcomeT]):
    """A step as front ends see it."""

    request: type[RequestT]
    plan: Callable[..., PlanT]
    """Plans the step: called with the table, the request, and the keyword ``executor``."""
    run: Callable[..., OutcomeT]
    """Runs a plan: called with the table, the plan and the executor."""
    asks: bool = False
    """Whether users must agree to a run: it deletes something, or needs a table without writers."""

    def require_decision(self, step: str, *, dry_run: bool | None) -> None:
        """Raise :class:`InputError` for a step that asks unless the caller has decided."""
        if self.asks and dry_run is None:
            raise InputError(
                f"{step} needs a decision: set dry_run to true to see what it would change, or to "
                "false to run it. Nothing was changed"
            )

    @property
    def arguments(self) -> Mapping[str, DeclaredField]:
        """The arguments by name, in the order of the fields."""
        return list_arguments(self.request)

    def build_request(self, table: Table, values: Mapping[str, object]) -> RequestT:
        """Return the request with the values of a JSON object, and defaults for the others.

        Raises the errors of :func:`convert_arguments`, and :class:`NotFoundError` for a partition
        that does not exist.
        """
        converted = convert_arguments(self.request, values)
        for name, field in self.arguments.items():
            if field.argument.check is not None and name in converted:
                field.argument.check(table, converted[name])
        return self.request(**converted)


def list_arguments(request: type[Any]) -> Mapping[str, DeclaredField]:
    """Return the annotated fields of a dataclass by name."""
    hints = get_type_hints(request, include_extras=True)
    declared = {}
    for field in fields(request):
        hint = hints[field.name]
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Argument):
            declared[field.name] = DeclaredField(
                name=field.name,
                argument=get_args(hint)[1],
                hint=get_args(hint)[0],
                is_required=field.default is MISSING and field.default_factory is MISSING,
            )
    return declared


def convert_arguments(request: type[Any], values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of a JSON object as arguments of a dataclass.

    Raises :class:`InputError` for an unknown or missing argument, and for a value that it does not
    accept.
    """
    declared = list_arguments(request)
    unknown = sorted(values.keys() - declared.keys())
    if unknown:
        raise InputError(
            f"unknown arguments: {clean_line(', '.join(unknown))}; possible are "
            f"{', '.join(declared) or 'none'}"
        )
    missing = [name for name, each in declared.items() if each.is_required and name not in values]
    if missing:
        raise InputError(f"missing arguments: {', '.join(missing)}")
    return {name: declared[name].convert(value) for name, value in values.items()}


def declare_step(
    step: Step[RequestT, PlanT, Any, Any, Any, OutcomeT],
    request: type[RequestT],
    *,
    plan: Callable[..., PlanT] | None = None,
    run: Callable[..., OutcomeT] | None = None,
    asks: bool = False,
) -> StepDeclaration[RequestT, PlanT, OutcomeT]:
    """Return the declaration of a step; by default, the functions of the step plan and run it."""

    def plan_step(table: Table, request: RequestT, *, executor: Executor) -> PlanT:  # noqa: ARG001
        return step.plan(table, request)

    return StepDeclaration(
        request=request, plan=plan or plan_step, run=run or partial(run_step, step), asks=asks
    )


def _accepts(hint: Any, value: object) -> bool:
    """Return whether a JSON value has a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_accepts(each, value) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple or (origin is not None and issubclass(origin, Sequence)):
        return isinstance(value, list) and all(_accepts(arguments[0], item) for item in value)
    if origin is not None:
        return isinstance(value, Mapping) and all(_accepts(arguments[1], v) for v in value.values())
    if hint in (object, Any):
        return True
    if hint is NoneType or hint is None:
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _describe(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_describe(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple or (origin is not None and issubclass(origin, Sequence)):
        return f"a list, each of {_describe(arguments[0])}"
    return _KINDS.get(hint, "an object")


def _show(value: object) -> str:
    return clean_line(repr(value))[:100]
