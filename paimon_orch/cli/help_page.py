"""Formats help pages: panels of commands, untruncated summaries, metavars and examples."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from paimon_orch.errors import InputError

if TYPE_CHECKING:  # older releases of Typer have no such module
    from typer._click import Command, Context, HelpFormatter, Parameter

WAREHOUSE_VARIABLE = "PAIMON_WAREHOUSE"
CATALOG_PARAMETER = "location"
"""The name of the parameter CATALOG in the functions of commands."""
_NAME_WIDTH = 23  # width of the column of command names; a longer name has its own line
_NO_LIMIT = 1000  # large enough that summaries are wrapped and never truncated


class OptionValueError(InputError):
    """A value that an option does not take, which is wrong usage."""


class Panel(StrEnum):
    """The sections of ``paimon-orch --help``, in the order in which they are printed."""

    TABLES = "Tables"
    WRITE = "Write"
    READ = "Read and inspect"
    CHECK = "Check and repair"
    PUBLISH = "Publish"
    COMPACT = "Compact and optimize"
    EXPIRE = "Expire and clean up"
    REFERENCES = "Tags and branches"
    DEMO = "Demo"


def format_examples(examples: Iterable[str]) -> str | None:
    """Return the end of a help page, which is also valid Markdown.

    Returns None if there are no examples.
    """
    lines = "\n".join(f"    paimon-orch {example}" for example in examples)
    return f"Examples:\n\n{lines}" if lines else None


def _may_be_catalog(location: str) -> bool:
    """Return whether a text may name a catalog, and not only tables: ``sales`` and ``sales.*``."""
    if "/" in location or location in (".", ".."):
        return True
    with suppress(OSError):
        if any(name.endswith(".db") for name in os.listdir(location)):  # noqa: PTH208 - faster to import
            return True
    from paimon_orch.catalog.named_catalogs import find_named_catalog

    return find_named_catalog(location) is not None


class HelpCommand(TyperCommand):
    """A command whose help page shows arguments by their metavar only, such as ``CATALOG``.

    The environment variable PAIMON_WAREHOUSE has the first argument of calls that lack one.
    """

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the arguments; adds the catalog of the environment if an argument is missing."""
        location = os.environ.get(WAREHOUSE_VARIABLE)
        if location and self._lacks_catalog(ctx, args):
            args = [location, *args]
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)

    def _lacks_catalog(self, ctx: "Context", args: Sequence[str]) -> bool:
        """Return whether a call without the environment variable would be refused.

        A shell that completes a word calls this with fewer arguments than the complete command has.
        """
        required = [str(p.name) for p in _select_arguments(self.get_params(ctx)) if p.required]
        if not required or required[0] != CATALOG_PARAMETER:
            return False
        values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        needed = required[0] if ctx.resilient_parsing else required[-1]
        if not isinstance(values.get(needed), str):
            return True
        *_, last = (str(p.name) for p in _select_arguments(self.get_params(ctx)))
        return values.get(last) is None and not _may_be_catalog(values[CATALOG_PARAMETER])

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        """Return the parts of the usage line after the name of the command."""
        arguments = map(_format_argument_usage, _select_arguments(self.get_params(ctx)))
        return [self.options_metavar or "", *arguments]

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the arguments, then the options."""
        parameters = self.get_params(ctx)
        arguments = [
            (_format_argument(parameter), getattr(parameter, "help", None) or "")
            for parameter in _select_arguments(parameters)
        ]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        options = [
            parameter.get_help_record(ctx)
            for parameter in parameters
            if parameter.param_type_name == "option"
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def format_epilog(
        self,
        ctx: "Context",  # noqa: ARG002 - the signature is Typer's
        formatter: "HelpFormatter",
    ) -> None:
        """Write the examples without wrapping them."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class HelpGroup(TyperGroup):
    """A group whose help page lists commands by panel, with their first sentences untruncated."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the options before the name of a command."""
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)

    def get_outline(self, ctx: "Context", name: str) -> "Command | None":
        """Return a command of which only the summary is used."""
        return self.get_command(ctx, name)

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write one section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in Panel}
        for name in self.list_commands(ctx):
            command = self.get_outline(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                summary = command.get_short_help_str(_NO_LIMIT)
                panels.setdefault(panel, []).append((name.ljust(_NAME_WIDTH), summary))
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows, col_max=_NAME_WIDTH)


def new_app() -> typer.Typer:
    """Return an empty list of commands, to which a module adds its own."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


def new_group() -> typer.Typer:
    """Return an empty group of commands, such as ``tag``."""
    return typer.Typer(cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None)


def _refuse_repeated_options(command: "Command", ctx: "Context", args: list[str]) -> None:
    """Refuse an option that is given twice, because only its last value would be used."""
    if ctx.resilient_parsing:
        return
    _, _, order = command.make_parser(ctx).parse_args(args=list(args))
    options = [parameter for parameter in order if _has_one_value(parameter)]
    for option in options:
        if options.count(option) > 1:
            ctx.fail(f"{option.opts[0]} is given twice; write it once.")


def _has_one_value(parameter: "Parameter") -> bool:
    """Return whether a parameter is an option whose value a second one replaces."""
    return isinstance(parameter, TyperOption) and not (parameter.multiple or parameter.is_flag)


def _select_arguments(parameters: Iterable["Parameter"]) -> Iterator["Parameter"]:
    return (parameter for parameter in parameters if parameter.param_type_name == "argument")


def _format_argument(parameter: "Parameter") -> str:
    return parameter.metavar or (parameter.name or "").upper()


def _format_argument_usage(parameter: "Parameter") -> str:
    text = _format_argument(parameter) + ("" if parameter.nargs == 1 else "...")
    return text if parameter.required else f"[{text}]"
