"""Registers functions as commands, with switches for steps that a table's options forbid."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, get_args

import typer

from paimon_orch.cli.common import CliSettings
from paimon_orch.cli.help_page import HelpCommand, format_examples
from paimon_orch.cli.screen import Output
from paimon_orch.format.options.blocking_options import Allowances
from paimon_orch.steps.common.argument import list_arguments

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

_OUTPUT = "output"
"""The parameter of a command that has the option ``--json``; its type is :class:`Output`."""


def declare_option(request: type[Any], field: str, *, default: str | None = None) -> Any:
    """Return the option that a request's field declares; ``default`` is shown as its default."""
    declared = list_arguments(request)[field]
    argument, parse = declared.argument, declared.argument.parse
    return typer.Option(
        declared.option,
        metavar=argument.metavar,
        help=argument.help,
        min=argument.minimum,
        parser=None if parse is None else lambda text: parse(declared.option, text),
        show_default=default or argument.default or declared.default or True,
    )


def register_command(
    app: typer.Typer,
    function: Callable[..., None],
    *,
    name: str | None = None,
    examples: Sequence[str] = (),
    has_allowances: bool = True,
) -> None:
    """Register a function as a command; the default name is that of the function, with hyphens.

    Without ``has_allowances``, the command has no ``--allow-...`` switches, because it runs no step
    that the options of a table can forbid.
    """
    register = app.command(name, cls=HelpCommand, epilog=format_examples(examples))
    register(_add_switches(function, _ALLOWANCE_SWITCHES if has_allowances else {}))


def _add_switches(
    function: Callable[..., None], allowance_switches: Mapping[str, Any]
) -> Callable[..., None]:
    """Return the command with switches for its output and for the allowances."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        switches = {name: kwargs.pop(name) for name in allowance_switches}
        if switches:
            settings: CliSettings = kwargs["ctx"].obj
            settings.allowances = Allowances(
                stale_external=switches["allow_stale_external"],
                unknown_options=switches["allow_unknown_options"],
            )
        if _OUTPUT in parameters:
            kwargs[_OUTPUT] = Output(is_json=kwargs[_OUTPUT])
        function(*args, **kwargs)

    options = dict(parameters)
    for name, annotation in allowance_switches.items():
        options[name] = _build_switch(name, annotation)
    if _OUTPUT in options:
        _, *metadata = get_args(options[_OUTPUT].annotation)
        options[_OUTPUT] = _build_switch(_OUTPUT, Annotated[bool, *metadata])
    command.__annotations__ = {name: option.annotation for name, option in options.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options.values()]
    )
    return command


def _build_switch(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=False, annotation=annotation)
