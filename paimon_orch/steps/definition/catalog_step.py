"""Declares steps that change an entry of a catalog: a table or a database."""

from collections.abc import Callable, Sequence

from paimon_orch.steps.common.described_change import ChangePlan, ChangeResult, apply_change
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.step import RequestT
from paimon_orch.steps.common.step_declaration import StepDeclaration, StepTarget
from paimon_orch.steps.definition.catalog_target import CatalogEntry


def declare_catalog_step(  # noqa: PLR0913 - the parts of a declaration
    title: str,
    request: type[RequestT],
    plan: Callable[[CatalogEntry, RequestT], ChangePlan],
    *,
    measure: Callable[[CatalogEntry, ChangePlan], ChangePlan] | None = None,
    target: StepTarget = StepTarget.TABLE_NAME,
    help: str = "",
    examples: Sequence[str] = (),
    command: str = "",  # noqa: ARG001 - the registry reads it
) -> StepDeclaration[RequestT, ChangePlan, ChangeResult]:
    """Return the declaration of a step that changes an entry of a catalog, and asks before."""

    def plan_change(entry: CatalogEntry, request: RequestT, *, executor: Executor) -> ChangePlan:  # noqa: ARG001
        return plan(entry, request)

    def measure_change(entry: CatalogEntry, planned: ChangePlan, _executor: Executor) -> ChangePlan:
        return planned if measure is None else measure(entry, planned)

    def run(
        _entry: CatalogEntry,
        planned: ChangePlan,
        _executor: Executor | None = None,
        *,
        progress: Progress | None = None,  # noqa: ARG001 - there are no work units
    ) -> ChangeResult:
        return apply_change(planned) if planned else ChangeResult(plan=planned)

    return StepDeclaration(
        request=request,
        plan=plan_change,
        measure=measure_change,
        run=run,
        title=title,
        help=help,
        examples=examples,
        asks=True,
        target=target,
    )
