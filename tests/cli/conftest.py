"""Fixtures of the tests of commands: a runner, and a table of three rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Run, build_runner
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.table.table import Table


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the entry point does, in this process."""
    return build_runner(monkeypatch, capsys)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path / "wh")).create_table(
        "db.t",
        "id BIGINT NOT NULL, v STRING, price DECIMAL(10, 2)",
        primary_key=["id"],
        options={"bucket": "2", "deletion-vectors.enabled": "false"},
    )
    table.upsert(table_of("id v price", [(1, "a", "1"), (2, None, None), (3, "c", "2")]))
    return table


@pytest.fixture
def warehouse(table: Table, tmp_path: Path) -> Path:
    return tmp_path / "wh"


@pytest.fixture
def old_table(tmp_path: Path) -> Table:
    """Return the table db.t of the warehouse ``tmp_path``: one row, four snapshots."""
    table = new_table(tmp_path)
    for text in "abcd":
        table.upsert(table_of("k v", [(1, text)]))
    return table


@pytest.fixture(
    params=[
        "local",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.xdist_group("spark")]),
    ]
)
def executor(request: pytest.FixtureRequest) -> str:
    """The option ``--executor``; the session of all tests is started for Spark."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    value: str = request.param
    return value
