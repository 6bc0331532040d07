"""Registers functions as commands, with switches for steps that a table's options forbid."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from paimon_orch.cli.common import CliSettings
from paimon_orch.cli.help_page import HelpCommand, OptionValueError, format_examples
from paimon_orch.cli.screen import Output
from paimon_orch.errors import InputError
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.signatures import build_keyword, with_parameters
from paimon_orch.steps.common.argument import DeclaredField, is_list, list_arguments

_ALLOWANCE_SWITCHES = {
    "allow_stale_external": Annotated[
        bool,
        typer.Option(
            "--allow-stale-external",
            help="Proceed even if this leaves Iceberg metadata, a metastore or a callback of the "
            "table's options stale.",
        ),
    ],
    "allow_unknown_options": Annotated[
        bool,
        typer.Option(
            "--allow-unknown-options",
            help="Proceed even if the table has unknown options, which may belong to a newer "
            "release of Paimon.",
        ),
    ],
}

CommandT = TypeVar("CommandT", bound=Callable[..., None])

_OUTPUT = "output"
"""The parameter of a command that has the option ``--json``; its type is :class:`Output`."""
_OPTION = "option"
"""The option or argument in the metadata of a call's field."""
_CALL = "call"
"""The parameter of a command whose options are the fields of a class."""
_LAST = ("compact_after", "yes", "dry_run", "simulate", "executor", "master", _OUTPUT)
"""The options that help pages show after those of the command itself."""
_SCAN_LAST = (
    "snapshot",
    "tag",
    "timestamp",
    "watermark",
    "branch",
    "merge_level_0",
    "form",
    "file",
)
"""The options that help pages of scans show after what is read."""


def declare_option(request: type[Any], name: str, *, default: str | None = None) -> Any:
    """Return the option that a request's field declares; ``default`` is shown as its default.

    The command parses the text of a list.
    """
    declared = list_arguments(request)[name]
    shown = default or declared.argument.default or True
    parser = None if is_list(declared.kind) else partial(parse_option, declared)
    return build_option(declared, parser=parser, show_default=shown)


def parse_option(declared: DeclaredField, value: object) -> object:
    """Return the value of a field for the text of its option, or for its default value.

    Raises :class:`InputError` with the sentence of all front ends for a value that it refuses.
    """
    if declared.argument.parse is not None:
        return declared.argument.parse(declared.option, value)
    try:
        return declared.convert_text(value, declared.option)
    except InputError as error:
        raise OptionValueError(str(error)) from None


def build_option(declared: DeclaredField, sentence: str = "", **attributes: Any) -> Any:
    """Return the option of a field, whose help ends with a sentence."""
    argument = declared.argument
    least = "" if argument.minimum is None else f"At least {argument.minimum}."
    return typer.Option(
        declared.option,
        metavar=declared.metavar,
        help=" ".join(filter(None, (argument.help, sentence, least))),
        **attributes,
    )


def option(help: str, *names: str, default: Any = None, **attributes: Any) -> Any:
    """Return a field of a call that is an option; the default name is that of the field."""
    return field(default=default, metadata={_OPTION: typer.Option(*names, help=help, **attributes)})


def declared_option(request: type[Any], name: str) -> Any:
    """Return a field of a call that is the option that a request's field declares."""
    default = list_arguments(request)[name].default
    return field(default=default, metadata={_OPTION: declare_option(request, name)})


def cli_command(
    app: typer.Typer,
    *examples: str,
    name: str | None = None,
    has_allowances: bool = False,
    parameters: Sequence[inspect.Parameter] = (),
) -> Callable[[CommandT], CommandT]:
    """Register a function as a command; the default name is that of the function, with hyphens.

    The options are ``parameters``; by default, those of the function, or the fields of its only
    parameter ``call``. A command that runs steps which the options of a table can forbid
    ``has_allowances``: the switches ``--allow-...``.
    """
    register = app.command(name, cls=HelpCommand, epilog=format_examples(examples))
    declared = _put_last({each.name: each for each in parameters})
    switches = _ALLOWANCE_SWITCHES if has_allowances else {}

    def decorate(function: CommandT) -> CommandT:
        register(_add_switches(function, declared, switches))
        return function

    return decorate


def _add_switches(
    function: Callable[..., None],
    declared: Mapping[str, inspect.Parameter],
    allowance_switches: Mapping[str, Any],
) -> Callable[..., None]:
    """Return the command with switches for its output and for the allowances."""
    parameters, call_class = declared or inspect.signature(function, eval_str=True).parameters, None
    if [*parameters] == [_CALL]:
        call_class = parameters[_CALL].annotation
        parameters = _list_fields(call_class)

    def call(**values: Any) -> None:
        switches = {name: values.pop(name) for name in allowance_switches}
        if switches:
            settings: CliSettings = values["ctx"].obj
            settings.allowances = Allowances(
                stale_external=switches["allow_stale_external"],
                unknown_options=switches["allow_unknown_options"],
            )
        if _OUTPUT in parameters:
            values[_OUTPUT] = Output(is_json=values[_OUTPUT])
        if call_class is not None:
            values = {_CALL: call_class(**values)}
        function(**values)

    options = dict(parameters)
    for name, annotation in allowance_switches.items():
        options[name] = build_keyword(name, annotation, False)
    if _OUTPUT in options:
        _, *metadata = get_args(options[_OUTPUT].annotation)
        options[_OUTPUT] = build_keyword(_OUTPUT, Annotated[bool, *metadata], False)
    keywords = (each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options.values())
    return with_parameters(function, keywords, call)


def _list_fields(call_class: type[Any]) -> dict[str, inspect.Parameter]:
    """Return the fields of a call as parameters, in the order of the help page."""
    parameters, hints = {}, get_type_hints(call_class, include_extras=True)
    for each in fields(call_class):
        option, hint = each.metadata.get(_OPTION), hints[each.name]
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        annotation = hint if option is None else Annotated[hint, option]
        parameters[each.name] = build_keyword(each.name, annotation, default)
    return _put_last(_put_last(parameters, _SCAN_LAST))


def _put_last(
    parameters: dict[str, inspect.Parameter], names: Sequence[str] = _LAST
) -> dict[str, inspect.Parameter]:
    """Return the parameters with some at the end; by default those that most commands have."""
    last = {name: parameters.pop(name) for name in names if name in parameters}
    return parameters | last
