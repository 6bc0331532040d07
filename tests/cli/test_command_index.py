"""The index of the commands equals the commands, and loads no module that a call does not use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.commands import Run
from typer._completion_classes import FishComplete
from typer.main import get_command

from paimon_orch.cli.app import INDEX, app
from paimon_orch.steps.common.step_registry import find_steps
from paimon_orch.table.table import Table

HEAVY = {
    *("dagster", "datasketches", "fastavro", "fsspec", "numpy", "pandas", "pendulum", "pyarrow"),
    *("pydantic", "pyroaring", "pyspark", "requests", "rich", "sqlalchemy", "sqlglot", "yaml"),
}
NOT_FOR_INSPECT = {
    *("dagster", "datasketches", "fsspec", "pandas", "pyarrow.dataset", "pyspark", "requests"),
    *("sqlalchemy", "sqlglot", "yaml", "paimon_orch.merge.engine.merge_engine"),
    *("paimon_orch.table.commit.commit", "paimon_orch.table.iceberg.publish"),
    *("paimon_orch.table.scan.scan", "paimon_orch.table.write.write_builder"),
    *("pyarrow.parquet", "paimon_orch.files.data_file_reader"),
    *("paimon_orch.files.file_index_reader", "paimon_orch.table.schema_change.schema_changes"),
}
NOT_FOR_COMPACT = {
    *("dagster", "datasketches", "fsspec", "pandas", "pendulum", "pyarrow.dataset", "pyspark"),
    *("requests", "rich.progress", "sqlalchemy", "sqlglot", "yaml"),
    *("paimon_orch.steps.compaction.append", "paimon_orch.steps.compaction.decide"),
    *("paimon_orch.steps.compaction.key_indexes", "paimon_orch.steps.compaction.move_postponed"),
    *("paimon_orch.steps.maintenance.rescale", "paimon_orch.steps.row_level.row_level_write"),
    *("paimon_orch.table.iceberg.publish", "paimon_orch.table.iceberg.publishable"),
    *("paimon_orch.table.scan.scan", "paimon_orch.table.write.table_write"),
}

_RUN = """
import sys
from paimon_orch.cli.app import main
sys.argv = ["paimon-orch", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def modules_of(*arguments: object, **environment: str) -> tuple[str, set[str]]:
    """Return the output of a command in a process of its own, and the modules that it imported."""
    finished = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return finished.stdout, set(finished.stderr.split())


def test_the_index_describes_the_commands_as_their_modules_do() -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

    assert list(commands) == list(INDEX)
    for name, entry in INDEX.items():
        command = commands[name]
        assert command.name == name
        assert command.get_short_help_str(1000) == entry.summary
        assert command.rich_help_panel == entry.panel
        assert not command.hidden
        callback = getattr(command, "callback", None)
        if entry.step is not None or name in find_steps():
            assert callback.__module__ == "paimon_orch.cli.step_command"
        elif callback is not None and not hasattr(command, "commands"):
            assert callback.__module__ == f"paimon_orch.cli.commands.{entry.module}"


def test_every_command_of_a_module_is_in_the_index() -> None:
    folder = Path(sys.modules["paimon_orch.cli.app"].__file__ or "").parent / "commands"
    modules = {path.stem for path in folder.glob("*.py") if "\napp = " in path.read_text("utf-8")}

    assert modules == {entry.module for entry in INDEX.values() if entry.step is None}


def test_the_overview_imports_no_command_and_no_library() -> None:
    output, modules = modules_of("--help")

    assert "Show the files, levels and health of a table." in output
    assert modules & HEAVY == set()
    ours = {name for name in modules if name.startswith("paimon_orch")}
    assert ours == {
        "paimon_orch",
        "paimon_orch.cli",
        "paimon_orch.cli.app",
        "paimon_orch.cli.help_page",
        "paimon_orch.errors",
        "paimon_orch.lazy_exports",
        "paimon_orch.safe_text",
        "paimon_orch.steps",
        "paimon_orch.steps.common",
        "paimon_orch.steps.common.step_registry",
    }


@pytest.mark.slow
def test_inspect_imports_only_what_reads_metadata(table: Table, warehouse: Path) -> None:
    output, modules = modules_of("inspect", warehouse, table.identifier)

    assert output.startswith(table.identifier)
    assert modules & NOT_FOR_INSPECT == set()


@pytest.mark.slow
def test_compact_and_read_import_no_pandas_and_no_other_steps(
    table: Table, warehouse: Path
) -> None:
    table.upsert(pa.table({"id": [1, 9], "v": ["new", "x"], "price": [None, None]}))

    output, modules = modules_of("compact", warehouse, table.identifier, "--strategy", "full")

    assert output.startswith("snapshot id")
    assert modules & NOT_FOR_COMPACT == set()

    output, modules = modules_of("read", warehouse, table.identifier, "--limit", 1)

    assert output.endswith("1 row\n")
    assert not modules & {"pandas", "rich.progress"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ins", {"inspect"}),
        ("t", {"tables", "truncate", "tag", "trigger-tag-automatic-creation"}),
        ("tag re", {"rename"}),
        ("inspect --sn", {"--snapshot"}),
        ("--verb", {"--verbose"}),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, expected: set[str]) -> None:
    environment = {"_PAIMON_ORCH_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": f"x {words}"}

    output, modules = modules_of(_TYPER_COMPLETE_FISH_ACTION="get-args", **environment)

    assert {line.split("\t")[0] for line in output.splitlines()} == expected
    assert " " in words or not modules & {"numpy", "paimon_orch.cli.common", "pyarrow"}


@pytest.mark.parametrize(
    ("words", "has_variable", "expected"),
    [
        ("W db", False, ["db.t"]),
        ("W x", False, []),
        ("d", True, ["db.t"]),
        ("/nowhere d", True, []),
    ],
)
def test_the_names_of_tables_are_completed(
    words: str,
    has_variable: bool,
    expected: list[str],
    table: Table,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert table.identifier == "db.t"
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)
    if has_variable:
        monkeypatch.setenv("PAIMON_WAREHOUSE", str(warehouse))
    *arguments, incomplete = words.replace("W", str(warehouse)).split()

    complete = FishComplete(get_command(app), {}, "paimon-orch", "_PAIMON_ORCH_COMPLETE")

    found = complete.get_completions(["inspect", *arguments], incomplete)
    assert [item.value for item in found] == expected


def test_a_misspelled_command_is_reported_with_similar_ones(run: Run) -> None:
    answer = run("inspct")

    assert answer.status == 2
    assert "No such command 'inspct'. Did you mean 'inspect'" in answer.error
