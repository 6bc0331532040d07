"""Commands are functions, or take a call whose fields are their options."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from support.syntax_trees import nodes_by_module
from typer.testing import CliRunner

from paimon_orch.cli.calls import CatalogCall, ExecutorOptions
from paimon_orch.cli.registration import cli_command, declared_option, option
from paimon_orch.steps.expiration.retention import RetentionRequest

runner = CliRunner()


@dataclass(frozen=True, kw_only=True)
class ToyCall(ExecutorOptions, CatalogCall):
    """A call of a command of this module."""

    names: Annotated[list[str] | None, typer.Argument(help="Names to print.", metavar="NAME")] = (
        None
    )
    color: str = option("Color of the names.", metavar="COLOR", default=MISSING)
    loud: bool = option("Print capitals.", "--loud", default=False)
    retain_max: int | None = declared_option(RetentionRequest, "retain_max")


def print_names(call: ToyCall) -> None:
    """Print names."""
    values = {"names": call.names, "color": call.color, "loud": call.loud, "dry": call.dry_run}
    call.output.print_values(values, f"{call.names} {call.retain_max}")


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)
    cli_command(app)(print_names)
    return app


def test_the_fields_of_a_call_are_the_options_of_its_command(app: typer.Typer) -> None:
    shown = runner.invoke(app, ["/lake", "a", "b", "--color", "red", "--loud", "--json"])
    assert json.loads(shown.stdout) == {
        "names": ["a", "b"],
        "color": "red",
        "loud": True,
        "dry": False,
    }
    assert runner.invoke(app, ["/lake", "--color", "red"]).stdout == "None None\n"
    assert "--color" in runner.invoke(app, ["/lake"]).stderr
    refused = runner.invoke(app, ["/lake", "--color", "red", "--retain-max", "0"]).exception
    assert str(refused) == "--retain-max is 0; the minimum is 1"


def test_the_options_of_the_command_are_shown_before_those_that_commands_share(
    app: typer.Typer,
) -> None:
    page = runner.invoke(app, ["--help"]).stdout
    options = ["--color", "--loud", "--retain-max", "--dry-run", "--executor", "--master", "--json"]
    assert sorted(options, key=page.index) == options


@pytest.mark.xdist_group("syntax")
def test_no_help_text_of_an_option_is_written_twice() -> None:
    texts = Counter(_list_help_texts("cli")) + Counter(set(_list_help_texts("steps")))
    assert len(texts) > 150
    assert [text for text, count in texts.items() if count > 1] == []


def _list_help_texts(package: str) -> Iterator[str]:
    for path, nodes in nodes_by_module().items():
        if path.is_relative_to(Path(package)):
            for node in nodes:
                if isinstance(node, ast.Call):
                    yield from _find_help(node)


def _find_help(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    values = [each.value for each in call.keywords if each.arg == "help" and name != "Typer"]
    if name in {"Argument", "option", "argument"} and call.args:
        values.append(call.args[0])
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value
