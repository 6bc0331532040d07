"""Rows as text: columns if they fit the terminal, else one value per line; plain in pipes."""

from __future__ import annotations

import pytest
from rich.console import Console

from paimon_orch.cli.table_layout import Layout, print_rows
from paimon_orch.format.display import format_count, format_size

NAMES = ("id", "text")
ROWS = [("1", "short"), ("2", "a\nb \x1b[31m \x9b"), ("3", "\u4e2d" * 20)]
WIDE = ["id  text", "1   short", "2   a\\nb \\x1b[31m \\x9b", f"3   {ROWS[2][1]}"]


def printed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int | None,
    layout: Layout = Layout.FITTING,
) -> list[str]:
    """Return the lines in a terminal of some columns, or in a pipe."""
    monkeypatch.setattr(Console, "is_terminal", columns is not None)
    monkeypatch.setenv("COLUMNS", str(columns or 10))
    print_rows(NAMES, ROWS, layout)
    return capsys.readouterr().out.splitlines()


def test_output_to_a_pipe_is_plain_and_has_its_full_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(capsys, monkeypatch, None) == WIDE


@pytest.mark.parametrize(("columns", "fits"), [(49, True), (48, False)])
def test_rows_that_do_not_fit_the_terminal_have_one_value_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, fits: bool
) -> None:
    lines = printed(capsys, monkeypatch, columns)

    if fits:
        assert len(lines[0]) == columns
        assert any("\u4e2d" * 20 in line for line in lines)
    else:
        assert lines[:3] == ["-[ row 1 ]----------", "id    1", "text  short"]
        assert lines[-1] == f"text  {ROWS[2][1]}"


def test_a_layout_can_be_chosen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed(capsys, monkeypatch, 20, Layout.WIDE) == WIDE
    assert printed(capsys, monkeypatch, None, Layout.VERTICAL)[1] == "id    1"


def test_no_rows_have_a_header_only(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(NAMES, [])

    assert capsys.readouterr().out == "id  text\n"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1234, "1.2 kB"), (999_960, "1.0 MB"), (20.5e9, "20.5 GB"), (1e18, "1,000.0 PB")]
)  # fmt: skip
def test_sizes_have_the_unit_that_fits(size: float, text: str) -> None:
    assert format_size(int(size)) == text


def test_nouns_have_the_number_of_their_count() -> None:
    assert [format_count(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert format_count(2, "branch", "branches") == "2 branches"
