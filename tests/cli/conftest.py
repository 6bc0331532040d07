"""Fixtures of the tests of commands: a runner, and a table of three rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import Answer, Run
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.cli.app import main
from paimon_orch.table.table import Table


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the entry point does, in this process."""
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
