"""Builds the command of a step from its declaration: options, questions, dry runs and output."""

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, get_origin

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    confirm,
    open_progress_bars,
    open_table,
)
from paimon_orch.cli.help_page import new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES, Output, print_lines
from paimon_orch.cli.table_layout import print_rows
from paimon_orch.format.display import format_count
from paimon_orch.steps.common.argument import DeclaredField
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step_declaration import StepDeclaration
from paimon_orch.steps.common.step_registry import StepEntry, find_steps, load_declaration
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table

_MAX_SHOWN_ROWS = 1_000
_SEPARATORS = {";": "semicolons", ",": "commas"}
_Declaration = StepDeclaration[Any, Any, Any]


def add_group(
    app: typer.Typer, name: str, *, list_names: Callable[[Table], list[str]], list_help: str
) -> typer.Typer:
    """Register a group: its command ``list``, and those of declared steps, as ``tag delete``."""
    group = new_group()

    def print_all(
        ctx: typer.Context, location: CatalogLocation, table: Identifier, output: JsonOutput = LINES
    ) -> None:
        output.print_names(list_names(open_table(ctx, location, table)))

    print_all.__doc__ = list_help
    examples = [f"{name} list /lake db.orders"]
    register_command(group, print_all, name="list", has_allowances=False, examples=examples)
    for step, entry in find_steps().items():
        if entry.command.startswith(f"{name} "):
            add_step_command(group, step, entry)
    app.add_typer(group, name=name)
    return group


def add_step_command(app: typer.Typer, step: str, entry: StepEntry) -> None:
    """Register the command of a declared step."""
    declaration = load_declaration(step)

    def command(
        *,
        ctx: typer.Context,
        location: str,
        table: str,
        dry_run: bool,
        output: Output,
        yes: bool = False,
        executor: ExecutorKind = ExecutorKind.LOCAL,
        master: str | None = None,
        **values: Any,
    ) -> None:
        runner = build_executor(executor, master) if declaration.has_units else InProcessExecutor()
        target = open_table(ctx, location, table)
        arguments = dict(_split_lists(declaration, target, values))
        request = declaration.build_request(target, arguments, get_label=attrgetter("option"))
        planned = declaration.plan(target, request, executor=runner)
        report = planned.describe()
        if dry_run:
            output.print_report(planned.to_dict(), partial(print_plan, planned, report, table))
        else:
            if report.asks:
                confirm(report.describe_action(table), yes=yes, undo=report.undo)
            outcome = _run(declaration, target, planned, runner)
            output.print_report(outcome.to_dict(), partial(_print_outcome, outcome, report))
        if report.is_incomplete:
            sys.exit(1)

    command.__signature__ = inspect.Signature(list(_list_parameters(declaration)))  # type: ignore[attr-defined]
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in _list_parameters(declaration)
    }
    command.__doc__ = f"{entry.summary}\n\n{declaration.help}"
    examples = [f"{entry.command} {example}" for example in declaration.examples]
    name = entry.command.rpartition(" ")[2]
    register_command(app, command, name=name, examples=examples)


def print_plan(planned: Any, report: PlanReport, table: str) -> None:
    """Print what a dry run found."""
    _print_rows(report)
    print_lines(*report.lines)
    if not planned and report.nothing:
        print_lines(report.nothing)
    else:
        print_lines(f"would {report.describe_action(table)}; nothing was changed")


def _print_outcome(outcome: Any, report: PlanReport) -> None:
    header, rows = outcome.tabulate()
    if rows:
        print_rows(header, rows)
    print_lines(*(outcome.describe() or [report.nothing or "nothing was changed"]))


def _print_rows(report: PlanReport) -> None:
    if report.rows:
        print_rows(report.header, report.rows[:_MAX_SHOWN_ROWS])
    if len(report.rows) > _MAX_SHOWN_ROWS:
        more = format_count(len(report.rows) - _MAX_SHOWN_ROWS, "smaller unit")
        print_lines(f"and {more}; --json shows all")


def _run(declaration: _Declaration, table: Table, planned: Any, runner: Executor) -> Any:
    if not declaration.has_units:
        return declaration.run(table, planned, runner)
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"{declaration.title} {table.identifier}")
        return declaration.run(table, planned, runner, progress=progress)


def _split_lists(
    declaration: _Declaration, table: Table, values: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that were given, as JSON values."""
    for name, declared in declaration.arguments.items():
        value = values[name]
        if value is None:
            continue
        split = declared.argument.split
        yield name, value if split is None else split(table, value)


def _list_parameters(declaration: _Declaration) -> Iterator[inspect.Parameter]:
    """Yield the parameters of the command in the order of its help page."""
    yield _parameter("ctx", typer.Context)
    yield _parameter("location", CatalogLocation)
    yield _parameter("table", Identifier)
    for name, declared in declaration.arguments.items():
        default = inspect.Parameter.empty if declared.is_required else _get_default(declared)
        yield _parameter(name, _build_annotation(declared), default)
    if declaration.asks:
        yield _parameter("yes", Yes, False)
    yield _parameter("dry_run", DryRun, False)
    if declaration.has_units:
        yield _parameter("executor", ExecutorOption, ExecutorKind.AUTO)
        yield _parameter("master", Master, None)
    yield _parameter("output", JsonOutput, LINES)


def _parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _get_default(declared: DeclaredField) -> Any:
    """Return the default of the option; no list has one that a text can name."""
    return None if declared.argument.split is not None else declared.default


def _build_annotation(declared: DeclaredField) -> Any:
    """Return the type of the option with its help."""
    argument = declared.argument
    kind: Any = str if argument.parse is not None or argument.split is not None else declared.kind
    if get_origin(kind) is tuple:
        kind = list[str]  # a repeated option
    sentence = argument.help
    if argument.split is not None:
        sentence += f" Several are separated by {_SEPARATORS[argument.separator]}."
    if argument.minimum is not None:
        sentence += f" At least {argument.minimum}."
    if argument.is_positional:
        return Annotated[kind, typer.Argument(metavar=argument.metavar, help=sentence)]
    option = typer.Option(
        declared.option,
        metavar=argument.metavar or ("N" if kind is int else None),
        help=sentence,
        show_default=argument.default or True,
    )
    optional = kind | None if declared.default is None else kind
    return Annotated[kind if declared.is_required else optional, option]
