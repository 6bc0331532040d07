"""Registers functions as commands, with switches for steps that a table's options forbid."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from paimon_orch.cli.common import CliSettings
from paimon_orch.cli.help_page import HelpCommand, Panel, format_examples
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


def declare_option(request: type[Any], field: str, *names: str, **attributes: Any) -> Any:
    """Return an option with the sentence and the minimum of a request's field."""
    argument = list_arguments(request)[field].argument
    return typer.Option(*names, help=argument.help, min=argument.minimum, **attributes)


def register_command(
    app: typer.Typer,
    function: Callable[..., None],
    panel: Panel | None = None,
    *,
    name: str | None = None,
    examples: Sequence[str] = (),
    has_allowances: bool = True,
) -> None:
    """Register a function as a command; the default name is that of the function, with hyphens.

    Without ``has_allowances``, the command has no ``--allow-...`` switches, because it runs no step
    that the options of a table can forbid.
    """
    register = app.command(
        name, cls=HelpCommand, rich_help_panel=panel, epilog=format_examples(examples)
    )
    register(_add_switches(function) if has_allowances else function)


def _add_switches(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with two additional switches, which set the allowances."""

    @wraps(function)
    def command(
        *args: Any, allow_stale_external: bool, allow_unknown_options: bool, **kwargs: Any
    ) -> None:
        settings: CliSettings = kwargs["ctx"].obj
        settings.allowances = Allowances(
            stale_external=allow_stale_external, unknown_options=allow_unknown_options
        )
        function(*args, **kwargs)

    signature = inspect.signature(function)
    switches = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation
        )
        for name, annotation in _ALLOWANCE_SWITCHES.items()
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *switches]
    )
    command.__annotations__ = function.__annotations__ | _ALLOWANCE_SWITCHES
    return command
