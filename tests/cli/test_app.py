"""Exit status and error output of commands run through the entry point; ``create``."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest
from support.commands import Run, assert_fails

from paimon_orch import Catalog
from paimon_orch.cli import inspect as cli_inspect
from paimon_orch.table.table import Table


def test_create_stores_columns_keys_options_and_comment(run: Run, tmp_path: Path) -> None:
    answer = run(
        "create", tmp_path, "db.t", "--columns", "dt STRING, id BIGINT, v DOUBLE",
        "--primary-key", "dt, id", "--partition-by", "dt", "--option", "bucket=2",
        "--option", "target-file-size=1 mb", "--comment", "it's",
    )  # fmt: skip

    assert (answer.status, answer.out) == (0, f"created db.t in {tmp_path}\n")
    schema = Catalog(str(tmp_path)).table("db.t").schema
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert schema.options == {"bucket": "2", "target-file-size": "1 mb"}
    assert schema.comment == "it's"
    assert_fails(run("create", tmp_path, "db.t", "--columns", "id INT"), "already exists")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--columns", "id FOO"], "unknown type 'FOO'"),
        (["--columns", "id INT", "--option", "bucket"], "must look like key=value"),
        (["--columns", "id INT", "--primary-key", "x"], "'x' is not among the columns id"),
    ],
)
def test_create_refuses_an_invalid_definition(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert_fails(run("create", tmp_path / "wh", "db.t", *arguments), message)
    assert not (tmp_path / "wh").exists()


def test_a_missing_warehouse_is_reported_and_not_created(run: Run, tmp_path: Path) -> None:
    assert_fails(run("inspect", tmp_path / "nowhere", "db.t"), "there is no table db.t")
    assert_fails(run("compact", tmp_path / "nowhere", "db.t"), "there is no table db.t")
    assert not (tmp_path / "nowhere").exists()


def test_a_warehouse_below_a_file_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = run("create", tmp_path / "file" / "wh", "db.t", "--columns", "id INT")
    assert_fails(answer, "cannot be written", "Check that the warehouse is a directory")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["read"],
        ["read", "wh"],
        ["read", "wh", "db.t", "--format", "xml"],
        ["read", "wh", "db.t", "--limit", "-1"],
        ["read", "wh", "db.t", "--snapshot", "one"],
        ["read", "wh", "db.t", "--nope"],
        ["compact", "wh", "db.t", "--strategy", "most"],
        ["ingest", "wh", "db.t"],
        ["demo", "--months", "13"],
    ],
)
def test_wrong_usage_exits_with_2(run: Run, arguments: list[str]) -> None:
    answer = run(*arguments)

    assert answer.status == 2
    assert answer.out == ""


def test_version_is_the_version_of_the_installed_package(run: Run) -> None:
    answer = run("--version")

    assert (answer.status, answer.out) == (0, f"paimon-orch {version('paimon-orch')}\n")


def test_the_main_commands_have_a_help_page(run: Run) -> None:
    commands = ("demo", "inspect", "read", "create", "ingest", "compact")
    overview = run("--help")
    assert overview.status == 0
    for command in commands:
        assert command in overview.out
        assert run(command, "--help").status == 0


def test_a_file_name_that_is_not_utf_8_is_printed_escaped(
    run: Run, table: Table, tmp_path: Path
) -> None:
    name = os.fsencode(table.paths.manifest_dir) + b"/manifest-\xff"
    Path(os.fsdecode(name)).write_bytes(b"x")
    os.utime(name, (1, 1))

    answer = run("remove-orphan-files", tmp_path / "wh", "db.t", "--dry-run")

    assert (answer.status, answer.error) == (0, "")
    assert "manifest-\\udcff" in answer.out


def test_notes_of_an_os_error_are_printed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        error = OSError("the disk is full")
        error.add_note("the write is committed as snapshot 3")
        raise error

    monkeypatch.setattr(cli_inspect, "inspect_table", fail)
    Catalog(str(tmp_path)).create_table("db.t", "id INT")

    answer = run("inspect", tmp_path, "db.t")

    assert answer.status == 1
    assert "the disk is full (the write is committed as snapshot 3)" in answer.error


def test_an_interrupt_exits_with_130(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_inspect, "inspect_table", interrupt)

    assert run("inspect", warehouse, "db.t").status == 130
