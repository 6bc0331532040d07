"""Fixtures of the steps' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.histories import HISTORY, backdate_files, make_table
from support.tables import small_batches

from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a tag and a branch; all files are old."""
    table = make_table(tmp_path / "w", "vectors", HISTORY)
    backdate_files(table)
    return table


@pytest.fixture
def five_rows_a_batch() -> Iterator[None]:
    """Files and reads use batches of five rows."""
    with small_batches(5):
        yield
