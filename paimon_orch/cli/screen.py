"""Prints lines and JSON documents; no other module of the command line prints text.

Names come from storage, so each line is escaped, and secrets are masked.
"""

import json
from typing import Any

from rich.console import Console

from paimon_orch.safe_text import clean_line, clean_values, escape_line

console = Console(highlight=False, markup=False, emoji=False)
error_console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def print_lines(*lines: str) -> None:
    """Print lines on stdout; a line break in a line is printed as an escape sequence."""
    for line in lines:
        print(clean_line(line))


def print_error_lines(*lines: str) -> None:
    """Print lines on stderr, which is not for results."""
    for line in lines:
        error_console.print(clean_line(line))


def print_json(value: Any) -> None:
    """Print one JSON document, in ASCII."""
    print(escape_json(json.dumps(clean_values(value), indent=2)))


def escape_json(document: str) -> str:
    """Return a JSON document with escape sequences of JSON for invisible characters."""
    if escape_line(document) == document:
        return document
    return "".join(
        char if char == "\n" or escape_line(char) == char else json.dumps(char)[1:-1]
        for char in document.replace("\x7f", "\\u007f")
    )


def read_answer(question: str) -> bool:
    """Ask on the terminal, and return whether the user agrees."""
    import typer

    return typer.confirm(clean_line(question), err=True)
