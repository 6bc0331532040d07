"""Prints rows in columns, or with one value per line if they are wider than the terminal.

Output to pipes and files has columns of full width, without lines between them.
"""

import sys
from collections.abc import Sequence
from enum import StrEnum

from rich.cells import cell_len
from rich.console import Console

from paimon_orch.safe_text import escape_name

_BORDERS_PER_COLUMN = 3
_SHORTEST_RULE = 20
_LONGEST_RULE = 60


class Layout(StrEnum):
    """How rows are laid out as text."""

    FITTING = "table"
    """Columns; with one value per line if the rows are wider than the terminal."""
    WIDE = "wide"
    """Columns of full width."""
    VERTICAL = "vertical"
    """One value per line."""


def print_rows(
    names: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout = Layout.FITTING
) -> None:
    """Print rows of text; characters that cannot be seen are printed as escape sequences of Python.

    In a terminal, wide text cannot be read in columns, as every line would be wrapped.
    """
    titles = list(map(escape_name, names))
    lines = [list(map(escape_name, row)) for row in rows]
    widths = [
        max(map(cell_len, cells)) for cells in zip(titles, *lines, strict=True)
    ]  # of each column
    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    width = sum(widths) + _BORDERS_PER_COLUMN * len(widths) + 1
    fits = not console.is_terminal or width <= console.width
    if layout is Layout.VERTICAL or (layout is Layout.FITTING and not fits):
        _print_vertically(titles, lines)
    elif console.is_terminal and layout is Layout.FITTING:
        from rich.table import Table

        table = Table(*titles)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    else:
        for line in (titles, *lines):
            print(_pad(line, widths))


def _pad(line: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of a line in columns, which two blanks separate."""
    cells = (
        cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)
    )
    return "  ".join(cells).rstrip()


def _print_vertically(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    name_width = max(map(cell_len, titles), default=0)
    rule_width = min(max(_SHORTEST_RULE, 2 * name_width), _LONGEST_RULE)
    for number, line in enumerate(lines, 1):
        print(f"-[ row {number} ]".ljust(rule_width, "-"))
        for title, value in zip(titles, line, strict=True):
            print(_pad((title, value), (name_width, 0)))
