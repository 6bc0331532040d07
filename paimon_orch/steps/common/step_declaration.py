"""Declares a step for front ends: the arguments of its request, and how it is planned and run.

The fields of a request that users set are annotated with :class:`Argument`; a front end needs
nothing else to parse them:

>>> retain_max: Annotated[int | None, Argument("Maximum number to keep.", minimum=1)] = None

The Python functions of steps take these fields too: :func:`take_fields` gives type checkers a
ParamSpec of them, and ``inspect.signature`` and ``help`` the rest.

:mod:`paimon_orch.steps.common.step_registry` finds the declarations by name.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

from paimon_orch.errors import InputError
from paimon_orch.signatures import with_parameters
from paimon_orch.steps.common.argument import (
    Argument,
    DeclaredField,
    convert_arguments,
    list_arguments,
)
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step import OutcomeT, PlanT, RequestT, Step, StepOutcome, run_step
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from paimon_orch.catalog.catalog import Catalog
    from paimon_orch.steps.definition.catalog_target import CatalogEntry

FieldsT = ParamSpec("FieldsT")
RequestT_co = TypeVar("RequestT_co", covariant=True)
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)

_EXECUTOR_HELP = "runs the work units; by default this process"


class StepTarget(StrEnum):
    """What a step changes, and front ends name."""

    TABLE = "table"
    TABLE_NAME = "table name"
    """A table that may be damaged or missing; the step opens it."""
    DATABASE = "database"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDeclaration(Generic[RequestT, PlanT, OutcomeT]):
    """A step as front ends see it."""

    request: type[RequestT]
    plan: Callable[..., PlanT]
    """Plans the step: called with the table, the request, and the keyword ``executor``."""
    run: Callable[..., OutcomeT]
    """Runs a plan: called with the table, the plan and the executor."""
    measure: Callable[..., PlanT] | None = None
    """Counts what a plan would change, for a dry run or a question; called as ``run`` is."""
    target: StepTarget = StepTarget.TABLE
    """Steps with another target get a :class:`CatalogEntry` in place of the table."""
    title: str
    """A verb phrase to put before the table's name: ``compact``, ``expire snapshots of``."""
    help: str = ""
    """The paragraphs of the help page after the summary."""
    examples: Sequence[str] = ()
    """Arguments of the command: ``/lake db.orders --dry-run``."""
    asks: bool = False
    """Whether a run may need the consent of a user; the report of a plan says if it does."""
    has_units: bool = False
    """Whether the step has work that an executor can run elsewhere."""

    def require_decision(self, step: str, *, dry_run: bool | None) -> None:
        """Raise :class:`InputError` for a step that asks unless the caller has decided."""
        if self.asks and dry_run is None:
            raise InputError(
                f"{step} needs a decision: set dry_run to true to see what it would change, or to "
                "false to run it. Nothing was changed"
            )

    def open_target(self, catalog: "Catalog", name: str) -> "Table | CatalogEntry":
        """Return what the step changes, by its name in a catalog."""
        if self.target is StepTarget.TABLE:
            return catalog.table(name)
        from paimon_orch.steps.definition.catalog_target import CatalogEntry

        return CatalogEntry(catalog, name)

    def measure_plan(
        self, target: "Table | CatalogEntry", planned: PlanT, executor: Executor
    ) -> PlanT:
        """Return a plan with the counts that only a dry run or a question needs."""
        return planned if self.measure is None else self.measure(target, planned, executor)

    @property
    def arguments(self) -> Mapping[str, DeclaredField]:
        """The arguments by name, in the order of the fields."""
        return list_arguments(self.request)

    def build_request(
        self,
        target: "Table | CatalogEntry",
        values: Mapping[str, object],
        *,
        get_label: Callable[[DeclaredField], str] = attrgetter("name"),
    ) -> RequestT:
        """Return the request with the values of a JSON object, and defaults for the others.

        ``get_label`` returns the name of an argument in errors. Raises the errors of
        :func:`convert_arguments`, and :class:`NotFoundError` for a partition that does not exist.
        """
        converted = convert_arguments(self.request, values, get_label=get_label)
        for name, declared in self.arguments.items():
            if declared.argument.check is not None and name in converted:
                assert isinstance(target, Table)
                declared.argument.check(target, converted[name])
        return self.request(**converted)


def declare_step(  # noqa: PLR0913 - the parts of a declaration
    step: Step[RequestT, PlanT, Any, Any, Any, Any],
    request: type[RequestT],
    *,
    plan: Callable[..., PlanT] | None = None,
    run: Callable[..., StepOutcome] | None = None,
    help: str = "",
    examples: Sequence[str] = (),
    asks: bool = False,
    has_units: bool | None = None,
    command: str = "",  # noqa: ARG001 - the registry reads it
) -> StepDeclaration[RequestT, PlanT, Any]:
    """Return the declaration of a step; by default, the functions of the step plan and run it.

    ``command`` is the name of the command, if it is not that of the step: ``tag delete``.
    """

    def plan_step(table: Table, request: RequestT, *, executor: Executor) -> PlanT:  # noqa: ARG001
        return step.plan(table, request)

    return StepDeclaration(
        request=request,
        plan=repeat_if_expired(plan) if plan else plan_step,
        run=run or partial(run_step, step),
        title=step.title,
        help=help,
        examples=examples,
        asks=asks,
        has_units=step.has_units if has_units is None else has_units,
    )


@dataclass(frozen=True, kw_only=True)
class CallOnExecutor:
    """Where a call runs, for requests whose fields calls pass before the executor."""

    executor: Executor | None = field(default=None, kw_only=False)
    progress: Progress | None = None


class TableFunction(Protocol[FieldsT, ResultT_co]):
    """A function of a step without work units."""

    def __call__(self, table: Table, *args: FieldsT.args, **kwargs: FieldsT.kwargs) -> ResultT_co:
        """Run the step."""
        ...


class ExecutorFunction(Protocol[FieldsT, ResultT_co]):
    """A function of a step whose work units run on an executor."""

    def __call__(
        self,
        table: Table,
        executor: Executor | None = None,
        progress: Progress | None = None,
        *args: FieldsT.args,
        **kwargs: FieldsT.kwargs,
    ) -> ResultT_co:
        """Run the step; ``progress`` is passed by name."""
        ...


class RowsFunction(Protocol[FieldsT, ResultT_co]):
    """A function that changes rows on an executor, which calls pass before the fields."""

    def __call__(
        self, table: Table, executor: Executor, *args: FieldsT.args, **kwargs: FieldsT.kwargs
    ) -> ResultT_co:
        """Run the step."""
        ...


class _FieldsDecorator(Protocol[FieldsT, RequestT_co]):
    @overload
    def __call__(
        self, function: Callable[[Table, RequestT_co], ResultT], /
    ) -> TableFunction[FieldsT, ResultT]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap] # mypy takes the first one that fits
        self,
        function: Callable[[Table, RequestT_co, Executor | None, Progress | None], ResultT],
        /,
    ) -> ExecutorFunction[FieldsT, ResultT]: ...

    @overload
    def __call__(
        self, function: Callable[[Table, RequestT_co, Executor, Progress | None], ResultT], /
    ) -> RowsFunction[FieldsT, ResultT]: ...


def take_fields(
    request: Callable[FieldsT, RequestT],
) -> _FieldsDecorator[FieldsT, RequestT]:
    """Let a function take the fields of a request, in place of the request.

    >>> @take_fields(ExpireTagsRequest)
    ... def expire_tags(table: Table, request: ExpireTagsRequest) -> list[str]: ...
    >>> expire_tags(table, older_than=...)

    Fields with ``kw_only=False`` may be passed by position. A function with the parameters
    ``executor`` and ``progress`` takes them too; both may be left out. The sentences of the
    arguments are appended to the docstring. The values are checked with the table before the call.
    """
    parameters = inspect.signature(request, eval_str=True).parameters
    arguments = {
        name: get_args(each.annotation)[1]
        for name, each in parameters.items()
        if get_origin(each.annotation) is Annotated
    }

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        declared = inspect.signature(function, eval_str=True)
        has_executor = "executor" in declared.parameters

        def call(table: object, **values: Any) -> Any:
            if table is None or isinstance(table, str):
                raise InputError(
                    f"{function.__name__}() needs an opened table, such as "
                    f"catalog.table('database.table'), not {table!r}"
                )
            names = ("executor", "progress") if has_executor else ()
            runner = [values.pop(name, None) for name in names]
            built = request(**values)  # type: ignore[call-arg]
            for name, argument in arguments.items():
                if argument.check is not None:
                    argument.check(table, getattr(built, name))
            return function(table, built, *runner)

        taking = with_parameters(
            function,
            _list_parameters(declared, parameters),
            call,
            returns=declared.return_annotation,
        )
        taking.__doc__ = _describe(function, arguments, has_executor=has_executor)
        return taking

    return decorate


def _list_parameters(
    function: inspect.Signature, fields: Mapping[str, inspect.Parameter]
) -> list[inspect.Parameter]:
    """Return the parameters of a function with the fields in place of the request."""
    table, _, *runner = function.parameters.values()
    shown = [
        each.replace(annotation=get_args(each.annotation)[0])
        if get_origin(each.annotation) is Annotated
        else each
        for each in fields.values()
    ]
    if runner:
        executor, progress = runner
        progress = progress.replace(default=None, kind=inspect.Parameter.KEYWORD_ONLY)
        first = next(iter(shown), progress)
        if first.kind is first.KEYWORD_ONLY or first.default is not first.empty:
            executor = executor.replace(default=None)  # no required argument follows
        shown = [executor, *shown, progress]
    return [table, *shown]


def _describe(
    function: Callable[..., Any], arguments: Mapping[str, Argument], *, has_executor: bool
) -> str:
    """Return the docstring of a function, with a sentence for each argument."""
    sentences = {
        name: f"{argument.help} Default: {argument.default}." if argument.default else argument.help
        for name, argument in arguments.items()
    }
    if has_executor:
        sentences = {"executor": _EXECUTOR_HELP, **sentences}
    lines = (f":param {name}: {sentence}" for name, sentence in sentences.items())
    return "\n\n".join([inspect.getdoc(function) or "", "\n".join(lines)]).strip()
