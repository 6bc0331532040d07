"""Fixtures of the steps' tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Run, build_runner
from support.histories import HISTORY, backdate_files, make_table

from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a tag and a branch; all files are old."""
    table = make_table(tmp_path / "w", "vectors", HISTORY)
    backdate_files(table)
    return table


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the entry point does, in this process."""
    return build_runner(monkeypatch, capsys)
