"""Runs commands of the command line in this process, and lists them."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.core import TyperCommand
from typer.main import get_command
from typer.testing import CliRunner, Result

from paimon_orch.cli import common
from paimon_orch.cli.app import app, main
from paimon_orch.errors import PaimonError
from paimon_orch.table.table import Table


@dataclass(frozen=True)
class Answer:
    """Exit status and output of a command."""

    status: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        """Return the document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Return the documents of each line on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]


def invoke(*arguments: str, answer: str | None = None) -> Result:
    """Run a command. A PaimonError is raised instead of printed.

    An answer is that of a user at a terminal.
    """
    with mock.patch.object(common, "has_terminal", return_value=answer is not None):
        result = CliRunner().invoke(app, arguments, input=answer)
    if isinstance(result.exception, PaimonError):
        raise result.exception
    return result


def build_runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command as the entry point does, in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["paimon-orch", *map(str, arguments)])
        monkeypatch.setattr("paimon_orch.cli.app._exit_now", sys.exit)
        if session := sys.modules.get("paimon_orch.spark.session.session"):
            # an interrupted command stops the JVM, which is that of other tests here
            monkeypatch.setattr(session, "stop_jvm", lambda: None)
        status: Any = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        out, error = capsys.readouterr()
        return Answer(status, out, error)

    return run


def run_command(*arguments: str, answer: str | None = None) -> str:
    """Run a command that succeeds, and return its output."""
    result = invoke(*arguments, answer=answer)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def walk_commands() -> Iterator[tuple[str, TyperCommand]]:
    """Yield all commands with their names, such as ``tag create``."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for inner_name, inner in getattr(command, "commands", {"": command}).items():
            yield f"{name} {inner_name}".strip(), inner


def option_names(command: TyperCommand) -> set[str]:
    """Return the names of a command's options, such as ``--json``."""
    return {name for parameter in command.params for name in parameter.opts}


def assert_fails(answer: Answer, *messages: str) -> None:
    """Check for exit status 1, one paragraph on stderr, no traceback and an empty stdout."""
    assert answer.status == 1
    assert answer.out == ""
    lines = answer.error.splitlines()
    paragraph = [line for line in lines if line and not line.startswith("note: Spark ")]
    assert len(paragraph) == 1, answer.error
    assert paragraph[0].startswith("error: ")
    for message in messages:
        assert message in paragraph[0]


def run_on(table: Table, command: str, *arguments: str) -> str:
    """Run a command on db.t; the warehouse and the table come after the name of the command."""
    warehouse = str(Path(table.paths.root).parents[1])
    return run_command(*command.split(), warehouse, "db.t", *arguments)
