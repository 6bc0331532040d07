"""Prints lines and JSON documents; no other module of the command line prints text.

Names come from storage, so each line is escaped, and secrets are masked.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from paimon_orch.safe_text import clean_line, clean_values, escape_line, escape_name

console = Console(highlight=False, markup=False, emoji=False)
error_console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
note_console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
"""For notes and progress, which the option ``--quiet`` switches off."""


def print_lines(*lines: str) -> None:
    """Print lines on stdout; a line break in a line is printed as an escape sequence."""
    for line in lines:
        print(clean_line(line))


@dataclass(slots=True)
class MessageFormat:
    """How notes and errors are printed: as text, or as the log lines of ``--log-format json``."""

    formatter: logging.Formatter

    def print(self, console: Console, kind: str, text: str) -> None:
        """Print one line."""
        level = "INFO" if kind == "note" else "ERROR"
        values = {"name": "paimon_orch", "levelname": level, "kind": kind, "msg": clean_line(text)}
        console.print(self.formatter.format(logging.makeLogRecord(values)))


TEXT = logging.Formatter("%(kind)s: %(message)s")
message_format = MessageFormat(TEXT)


def print_note(text: str) -> None:
    """Print a note on stderr, unless the option ``--quiet`` is set."""
    message_format.print(note_console, "note", text)


def print_error(text: str) -> None:
    """Print an error on stderr."""
    message_format.print(error_console, "error", text)


def print_json(values: object) -> None:
    """Print one JSON document, in ASCII."""
    print(escape_json(json.dumps(clean_values(values), indent=2)))


def escape_json(document: str) -> str:
    """Return a JSON document with escape sequences of JSON for invisible characters."""
    if escape_line(document) == document:
        return document
    return "".join(
        char if char == "\n" or escape_line(char) == char else json.dumps(char)[1:-1]
        for char in document.replace("\x7f", "\\u007f")
    )


@dataclass(frozen=True, slots=True)
class Output:
    """Prints what a command found or changed: as lines, or as JSON with the option ``--json``."""

    is_json: bool = False

    def print_values(self, values: object, *lines: str) -> None:
        """Print values as one JSON document, or print the lines that describe them."""
        self.print_report(values, partial(print_lines, *lines))

    def print_report(self, values: object, print_text: Callable[[], object]) -> None:
        """Print values as one JSON document, or call the function that prints them as text."""
        if self.is_json:
            print_json(values)
        else:
            print_text()

    def print_names(self, names: list[str]) -> None:
        """Print names as a JSON array, or one name per line; :func:`resolve_name` finds them."""
        self.print_values(names, *(map(escape_name, names) if names else ["none"]))


LINES = Output()
"""The default of commands: their option ``--json`` replaces it."""


def read_answer(question: str) -> bool:
    """Ask on the terminal, and return whether the user agrees."""
    import typer

    return typer.confirm(clean_line(question), err=True)
