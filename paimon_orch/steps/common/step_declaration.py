"""Declares a step for front ends: the arguments of its request, and how it is planned and run.

The fields of a request that users set are annotated with :class:`Argument`; a front end needs
nothing else to parse them:

>>> retain_max: Annotated[int | None, Argument("Maximum number to keep.", minimum=1)] = None

:mod:`paimon_orch.steps.common.step_registry` finds the declarations by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Generic

from paimon_orch.errors import InputError
from paimon_orch.steps.common.argument import DeclaredField, convert_arguments, list_arguments
from paimon_orch.steps.common.executor import Executor
from paimon_orch.steps.common.step import (
    OutcomeT,
    PlanT,
    RequestT,
    Step,
    run_step,
)
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDeclaration(Generic[RequestT, PlanT, OutcomeT]):
    """A step as front ends see it."""

    request: type[RequestT]
    plan: Callable[..., PlanT]
    """Plans the step: called with the table, the request, and the keyword ``executor``."""
    run: Callable[..., OutcomeT]
    """Runs a plan: called with the table, the plan and the executor."""
    title: str
    """A verb phrase to put before the table's name: ``compact``, ``expire snapshots of``."""
    help: str = ""
    """The paragraphs of the help page after the summary."""
    examples: Sequence[str] = ()
    """Arguments of the command: ``/lake db.orders --dry-run``."""
    asks: bool = False
    """Whether a run may need the consent of a user; the report of a plan says if it does."""
    has_units: bool = False
    """Whether the step has work units, which an executor can run elsewhere."""

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

    def build_request(
        self,
        table: Table,
        values: Mapping[str, object],
        *,
        get_label: Callable[[DeclaredField], str] = attrgetter("name"),
    ) -> RequestT:
        """Return the request with the values of a JSON object, and defaults for the others.

        ``get_label`` returns the name of an argument in errors. Raises the errors of
        :func:`convert_arguments`, and :class:`NotFoundError` for a partition that does not exist.
        """
        converted = convert_arguments(self.request, values, get_label=get_label)
        for name, field in self.arguments.items():
            if field.argument.check is not None and name in converted:
                field.argument.check(table, converted[name])
        return self.request(**converted)


def declare_step(  # noqa: PLR0913 - the parts of a declaration
    step: Step[RequestT, PlanT, Any, Any, Any, OutcomeT],
    request: type[RequestT],
    *,
    plan: Callable[..., PlanT] | None = None,
    run: Callable[..., OutcomeT] | None = None,
    help: str = "",
    examples: Sequence[str] = (),
    asks: bool = False,
    command: str = "",  # noqa: ARG001 - the registry reads it
) -> StepDeclaration[RequestT, PlanT, OutcomeT]:
    """Return the declaration of a step; by default, the functions of the step plan and run it.

    ``command`` is the name of the command, if it is not that of the step: ``tag delete``.
    """

    def plan_step(table: Table, request: RequestT, *, executor: Executor) -> PlanT:  # noqa: ARG001
        return step.plan(table, request)

    return StepDeclaration(
        request=request,
        plan=plan or plan_step,
        run=run or partial(run_step, step),
        title=step.title,
        help=help,
        examples=examples,
        asks=asks,
        has_units=step.has_units,
    )
