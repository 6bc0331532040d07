"""Runs commands of the command line in this process."""

from typer.testing import CliRunner, Result

from paimon_orch.cli.app import app
from paimon_orch.errors import PaimonError


def invoke(*arguments: str, answer: str | None = None) -> Result:
    """Run a command; an error of ours is raised instead of printed."""
    result = CliRunner().invoke(app, arguments, input=answer)
    if isinstance(result.exception, PaimonError):
        raise result.exception
    return result


def run_command(*arguments: str, answer: str | None = None) -> str:
    """What a command printed that did what it was told."""
    result = invoke(*arguments, answer=answer)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()
