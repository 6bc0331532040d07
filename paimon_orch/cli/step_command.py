"""Builds the command of a step from its declaration: options, questions, dry runs and output."""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    DatabaseName,
    DryRun,
    ExecutorOption,
    Identifier,
    JsonOutput,
    Master,
    Simulate,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    confirm,
    open_catalog,
    open_progress_bars,
    open_table,
    parse_pairs,
)
from paimon_orch.cli.help_page import new_app, new_group
from paimon_orch.cli.registration import build_option, cli_command, parse_option
from paimon_orch.cli.screen import LINES, Output, print_lines, print_note
from paimon_orch.cli.table_layout import print_rows
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count
from paimon_orch.signatures import build_keyword
from paimon_orch.steps.common.argument import DeclaredField, is_list, is_mapping
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.step_declaration import StepDeclaration, StepTarget
from paimon_orch.steps.common.step_registry import StepEntry, find_steps, load_declaration
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.table import Table

_MAX_SHOWN_ROWS = 1_000
_STAR = "*=*"  # all columns
_SEPARATORS = {";": "semicolons", ",": "commas"}
_Declaration = StepDeclaration[Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDetails:
    """What a command has in addition to the declaration of its step."""

    preview: Callable[..., Any] | None = None
    """Plans a dry run, with more to show; called as the function of the declaration is."""
    explain_nothing: Callable[[Any, Any], str] | None = None
    """Says why a plan of a table has nothing to do; reads metadata."""
    simulate: Callable[[Any, Any, Output], None] | None = None
    """Measures the effect of a request on a sample of a table, and prints it."""


_NO_DETAILS = CommandDetails()


def build_group(name: str, list_names: Callable[[Table], list[str]], list_help: str) -> typer.Typer:
    """Return a group: its command ``list``, and those of declared steps, as ``tag delete``."""
    group = new_group()

    def print_all(
        ctx: typer.Context, location: CatalogLocation, table: Identifier, output: JsonOutput = LINES
    ) -> None:
        output.print_names(list_names(open_table(ctx, location, table)))

    print_all.__doc__ = list_help
    cli_command(group, f"{name} list /lake db.orders", name="list")(print_all)
    add_group_steps(app := new_app(), name, group)
    return app


def add_group_steps(app: typer.Typer, name: str, group: typer.Typer) -> None:
    """Register a group with its declared steps."""
    for entry in find_steps().values():
        if entry.command.startswith(f"{name} "):
            add_step_command(group, entry)
    app.add_typer(group, name=name)


def add_step_command(
    app: typer.Typer, entry: StepEntry, details: CommandDetails = _NO_DETAILS
) -> None:
    """Register the command of a declared step."""
    declaration = load_declaration(entry.name)

    def call(
        *,
        ctx: typer.Context,
        location: str,
        identifier: str,
        dry_run: bool,
        output: Output,
        yes: bool = False,
        simulate: bool = False,
        executor: ExecutorKind = ExecutorKind.LOCAL,
        master: str | None = None,
        **values: Any,
    ) -> None:
        runner = build_executor(executor, master) if declaration.has_units else InProcessExecutor()
        target = declaration.open_target(open_catalog(ctx, location), identifier)
        arguments = dict(_split_lists(declaration, target, values))
        request = declaration.build_request(target, arguments, get_label=attrgetter("option"))
        if simulate and details.simulate is not None:
            if dry_run:
                raise InputError("--simulate and --dry-run cannot be combined")
            details.simulate(target, request, output)
            return
        plan = (dry_run and details.preview) or declaration.plan
        planned = plan(target, request, executor=runner)
        report = planned.describe()
        if dry_run or (report.asks and not yes):
            planned = declaration.measure_plan(target, planned, runner)
            report = planned.describe()
        explain = partial(_explain_nothing, details, target, planned, report)
        if dry_run:
            show = partial(_print_plan, planned, report, identifier, explain)
            output.print_report(planned.to_dict(), show)
        else:
            if report.asks:
                confirm(report.describe_action(identifier), yes=yes, undo=report.undo)
            _report_outcome(_run(declaration, target, planned, runner), output, explain)
        if report.is_incomplete:
            sys.exit(1)

    call.__doc__ = f"{entry.summary}\n\n{declaration.help}"
    register = cli_command(
        app,
        *(f"{entry.command} {example}" for example in declaration.examples),
        name=entry.command.rpartition(" ")[2],
        has_allowances=True,
        parameters=list(_list_parameters(declaration, details)),
    )
    register(call)


def _report_outcome(outcome: Any, output: Output, explain: Callable[[], str]) -> None:
    output.print_report(outcome.to_dict(), partial(_print_outcome, outcome, explain))
    for note in outcome.list_notes():  # on stderr, also with --json
        print_note(note)


def _print_plan(planned: Any, report: PlanReport, table: str, explain: Callable[[], str]) -> None:
    _print_rows(report)
    print_lines(*report.lines)
    if not planned and report.nothing:
        print_lines(explain())
    else:
        print_lines(f"would {report.describe_action(table)}; nothing was changed")
    print_lines(*report.remarks)


def _explain_nothing(details: CommandDetails, target: Any, planned: Any, report: PlanReport) -> str:
    if details.explain_nothing is None or not report.nothing:
        return report.nothing
    return details.explain_nothing(target, planned)


def _print_outcome(outcome: Any, explain: Callable[[], str]) -> None:
    header, rows = outcome.tabulate()
    if rows:
        print_rows(header, rows)
    print_lines(*(outcome.describe() or [explain() or "nothing was changed"]))


def _print_rows(report: PlanReport) -> None:
    if report.rows:
        print_rows(report.header, report.rows[:_MAX_SHOWN_ROWS])
    if len(report.rows) > _MAX_SHOWN_ROWS:
        more = format_count(len(report.rows) - _MAX_SHOWN_ROWS, "smaller unit")
        print_lines(f"and {more}; --json shows all")


def _run(declaration: _Declaration, target: Any, planned: Any, runner: Executor) -> Any:
    if not declaration.has_units:
        return declaration.run(target, planned, runner)
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"{declaration.title} {target.identifier}")
        return declaration.run(target, planned, runner, progress=progress)


def _split_lists(
    declaration: _Declaration, target: Any, values: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that were given, as JSON values."""
    for name, declared in declaration.arguments.items():
        value = values[name]
        if value is None:
            continue
        split = declared.argument.split
        if split is not None:
            value = split(target, value)
        elif is_mapping(declared.kind):
            texts = [_STAR] if declared.argument.has_star and value == ["*"] else value
            value = parse_pairs(texts, f"{declared.option} {declared.metavar}")
        yield name, value


def _list_parameters(
    declaration: _Declaration, details: CommandDetails
) -> Iterator[inspect.Parameter]:
    """Yield the parameters of the command in the order of its help page."""
    yield build_keyword("ctx", typer.Context)
    yield build_keyword("location", CatalogLocation)
    is_database = declaration.target is StepTarget.DATABASE
    yield build_keyword("identifier", DatabaseName if is_database else Identifier)
    for name, declared in declaration.arguments.items():
        default = inspect.Parameter.empty if declared.is_required else _get_default(declared)
        yield build_keyword(name, _build_annotation(declared), default)
    if declaration.asks:
        yield build_keyword("yes", Yes, False)
    yield build_keyword("dry_run", DryRun, False)
    if details.simulate is not None:
        yield build_keyword("simulate", Simulate, False)
    if declaration.has_units:
        yield build_keyword("executor", ExecutorOption, ExecutorKind.AUTO)
        yield build_keyword("master", Master, None)
    yield build_keyword("output", JsonOutput, LINES)


def _get_default(declared: DeclaredField) -> Any:
    """Return the default of the option; no list has one that a text can name."""
    return None if declared.argument.split is not None else declared.default


def _build_annotation(declared: DeclaredField) -> Any:
    """Return the type of the option with its help."""
    argument, parser, sentence = declared.argument, None, ""
    kind: Any = declared.kind
    if argument.parse is not None or argument.split is not None:
        kind = str  # the request parses it
    elif is_list(kind) or is_mapping(kind):
        kind = list[str]  # a repeated option
    elif kind not in (str, bool):
        parser = partial(parse_option, declared)
    if argument.split is not None:
        sentence = f"Several are separated by {_SEPARATORS[argument.separator]}."
    if argument.is_positional:
        help_text = f"{argument.help} {sentence}".strip()
        return Annotated[kind, typer.Argument(metavar=argument.metavar, help=help_text)]
    option = build_option(declared, sentence, parser=parser, show_default=argument.default or True)
    optional = kind | None if declared.default is None else kind
    return Annotated[kind if declared.is_required else optional, option]
