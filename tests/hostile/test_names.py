"""Names from storage cannot control a terminal, a log or a report, and stop only their own table."""

from __future__ import annotations

import html
import json
import logging
import os
import re
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from support.commands import Run, build_runner
from support.tables import new_table, table_of

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.cli import app
from paimon_orch.cli.output import write_rows
from paimon_orch.errors import CorruptFileError, InputError, PaimonError
from paimon_orch.safe_text import (
    clean_line,
    clean_record,
    escape_line,
    escape_markdown,
    escape_name,
    get_logger,
    note_secrets,
)
from paimon_orch.steps import expire_tags, purge_files
from paimon_orch.table.table import Table

ESC = "\x1b]0;owned\x07\x1b[2J"
NAMES = (
    f"a{ESC}",
    "a\u202ecod.exe",
    "a\u2066b\u2069",
    "a\u200e\u200f",
    "a\nerror: all is well",
    "a\r",
    "a\x7f",
    "a\x9b31m",
    "a\u200bb",
    "a\ufeff",
    "a\ufe0f",
    "a\U000e0041",
    "a\u2028b",
    "a\u3164",
    "a\\x1b",
    "a\\",
    "a ",
    " ",
    os.fsdecode(b"a\xff"),
    "`a`|<b>[c](javascript:d)",
    "$(touch owned)",
    "main",
    "7",
    "",
)
"""Names of files and directories that another writer may create."""


def unescape(text: str) -> str:
    """Return the name that :func:`escape_name` shows as a text."""

    def decode(match: re.Match[str]) -> str:
        sequence = match[0][1:]
        letters = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
        return letters.get(sequence) or chr(int(sequence[1:], 16))

    sequences = r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
    return re.sub(sequences, decode, text)


@pytest.mark.parametrize("name", [*NAMES, "\\ ", "\\x20", "C:\\temp", "\\d+", "\\\\n", "\\\x1b"])
def test_a_shown_name_is_visible_and_identifies_the_name(name: str) -> None:
    shown = escape_name(name)
    assert is_visible(shown)
    assert unescape(shown) == name
    assert escape_line(shown) == shown


def test_names_that_look_alike_are_shown_in_different_ways() -> None:
    alike = ["a", "a ", "a\u200b", "a\u200d", "a\\u200b", "a\ufe0f", "a\xa0", "a\xad", "\u2800a"]
    assert len(set(map(escape_name, alike))) == len(alike)


def is_visible(text: str) -> bool:
    """Return whether a text of one line has only characters that can be seen."""
    return text.isprintable() and not re.search("[\u3164\ufe0f]", text)


def has_visible_lines(text: str) -> bool:
    return all(map(is_visible, text.split("\n")))


def test_a_name_has_no_effect_in_markdown() -> None:
    text = escape_markdown("`a`|<b>[c](d)*e* _f_ &amp; g_h\n# i")
    assert re.sub(r"&#\d+;", "", text).isprintable()
    assert not re.search(r"[`|<>\[\]*]|\n", text)
    assert "g_h" in text


@pytest.mark.parametrize("text", ["# a", " - a", "+ a", "---", "===", "1. a", "23) a", "    a"])
def test_a_name_begins_no_block_in_markdown(text: str) -> None:
    escaped = escape_markdown(text)
    assert not re.match(r"\s|[#+=-]|\d", escaped)
    assert html.unescape(escaped) == text


# -- references ------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return build_runner(monkeypatch, capsys)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    table.upsert(table_of("k v", [(1, "b")]))
    return table


def add_hostile_references(table: Table) -> None:
    """Add a tag, a branch and a consumer with each name, as a writer of the table can."""
    root = Path(table.paths.root)
    for folder in ("tag", "branch", "consumer"):
        (root / folder).mkdir(exist_ok=True)
    snapshot = (root / "snapshot/snapshot-1").read_bytes()
    for name in NAMES:
        (root / f"tag/tag-{name}").write_bytes(snapshot)
        (root / f"consumer/consumer-{name}").write_text('{"nextSnapshot": 2}')
        schema = root / f"branch/branch-{name}/schema"
        schema.mkdir(parents=True)
        (schema / "schema-0").write_bytes((root / "schema/schema-0").read_bytes())


@pytest.mark.parametrize("group", ["tag", "branch", "consumer"])
def test_references_are_listed_by_names_that_can_be_seen(
    group: str, table: Table, tmp_path: Path, run: Run
) -> None:
    add_hostile_references(table)
    lines = run(group, "list", tmp_path, "db.t").out.splitlines()
    assert all(map(is_visible, lines))
    expected = sorted(set(NAMES) - ({"main"} if group == "branch" else set()))
    assert sorted(map(unescape, lines)) == expected
    document = run(group, "list", tmp_path, "db.t", "--json")
    assert has_visible_lines(document.out)
    assert sorted(document.json) == expected


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_shown", [True, False])
def test_references_are_deleted_by_their_shown_and_by_their_exact_names(
    is_shown: bool, table: Table, tmp_path: Path, run: Run
) -> None:
    add_hostile_references(table)
    for name in NAMES:
        text = escape_name(name) if is_shown else name
        for command in ("tag delete", "branch delete"):
            if command == "branch delete" and name == "main":
                continue  # other readers do not regard its directory as a branch either
            answer = run(*command.split(), tmp_path, "db.t", "--yes", "--", text)
            assert answer.status == 0, (command, text, answer.error)
            assert has_visible_lines(answer.out)
        assert run("consumer", "reset", tmp_path, "db.t", "--yes", "--", text).status == 0
    assert table.tags.names() == []
    assert table.branches.names() == []
    assert table.stores.open_consumers().find_matching() == []
    assert table.scan().count() == 1


def test_a_text_that_means_two_names_is_refused(table: Table, tmp_path: Path, run: Run) -> None:
    snapshot = Path(table.paths.snapshot_dir, "snapshot-1").read_bytes()
    Path(table.paths.tag_dir).mkdir()
    for name in ("a\x1b", "a\\x1b"):
        Path(table.paths.tag_dir, f"tag-{name}").write_bytes(snapshot)
    answer = run("tag", "delete", tmp_path, "db.t", "a\\x1b", "--yes")
    assert "means two names" in answer.error
    assert len(table.tags.names()) == 2
    for text in ("a\\\\x1b", "a\\x1b"):
        assert run("tag", "delete", tmp_path, "db.t", text, "--yes").status == 0
    assert table.tags.names() == []


def test_references_are_renamed_to_names_that_can_be_written(
    table: Table, tmp_path: Path, run: Run
) -> None:
    add_hostile_references(table)
    assert run("tag", "rename", tmp_path, "db.t", escape_name(NAMES[0]), "t").status == 0
    assert run("branch", "rename", tmp_path, "db.t", escape_name(NAMES[0]), "b").status == 0
    assert {"t"} <= set(table.tags.names())
    assert {"b"} <= set(table.branches.names())
    for name in ("a\n", "a\\b", ""):
        with pytest.raises(InputError):
            table.tags.rename("t", name)


def test_maintenance_of_a_table_with_hostile_references_works(
    table: Table, tmp_path: Path, run: Run
) -> None:
    add_hostile_references(table)
    for command in (
        ["expire-tags", tmp_path, "db.t", "--older-than", "2001-01-01T00:00:00"],
        ["expire-snapshots", tmp_path, "db.t", "--dry-run"],
        ["inspect", tmp_path, "db.t"],
        ["check", tmp_path, "db.t"],
        ["doctor", tmp_path],
        ["read", tmp_path, "db.t$tags"],
        ["read", tmp_path, "db.t$branches"],
        ["read", tmp_path, "db.t$consumers"],
        ["read", tmp_path, "db.t$tags", "--format", "jsonl"],
        ["purge-files", tmp_path, "db.t", "--dry-run"],
    ):
        answer = run(*command)
        assert has_visible_lines(answer.out + answer.error), command
        assert "internal error" not in answer.out + answer.error
        assert answer.status == 0, (command, answer.error)


def test_all_references_with_hostile_names_expire_and_are_purged(table: Table) -> None:
    add_hostile_references(table)
    names = set(NAMES)
    assert set(expire_tags(table, older_than=datetime.now() + timedelta(1))) == names

    purged = purge_files(table).plan

    assert set(purged.branches) == names - {"main"}
    assert set(purged.consumers) == names
    assert table.branches.names() == []
    assert table.stores.open_consumers().find_matching() == []


def test_a_new_reference_has_a_name(table: Table) -> None:
    with pytest.raises(InputError):
        table.tags.create("")
    with pytest.raises(InputError):
        table.branches.create("")
    with pytest.raises(InputError):
        table.stores.open_consumers().record("", 1)


# -- a lake with hostile directories ---------------------------------------------------------------


HOSTILE_DIRECTORIES = (
    f"x{ESC}",
    "x\n",
    "a.b",
    "x$files",
    os.fsdecode(b"x\xff"),
    "x\u202e",
    "[red]x",
)


@pytest.fixture
def lake(table: Table, tmp_path: Path) -> Path:
    """Return a warehouse with hostile tables and databases next to ``db.t``."""
    schema = (Path(table.paths.root) / "schema/schema-0").read_bytes()
    for name in HOSTILE_DIRECTORIES:
        for folder in (tmp_path / f"db.db/{name}", tmp_path / f"{name}.db/t"):
            (folder / "schema").mkdir(parents=True)
            (folder / "schema/schema-0").write_bytes(schema)
    return tmp_path


@pytest.mark.parametrize("change", [{"partitionKeys": 7}, {"options": [1]}, {"fields": {"a": 1}}])
def test_a_schema_of_unexpected_types_stops_no_command_for_the_lake(
    change: dict[str, object], table: Table, tmp_path: Path, run: Run
) -> None:
    schema = json.loads((Path(table.paths.root) / "schema/schema-0").read_text())
    bad = tmp_path / "db.db/bad/schema"
    bad.mkdir(parents=True)
    (bad / "schema-0").write_text(json.dumps(schema | change))
    for command in (
        ["doctor", tmp_path],
        ["autopilot", tmp_path, "--dry-run"],
        ["compact-database", tmp_path, "--dry-run"],
        ["read", tmp_path, "sys.tables"],
    ):
        answer = run(*command)
        assert not answer.error.startswith("error:"), command
        assert answer.out
    assert {item["table"] for item in run("doctor", tmp_path, "--json").json["findings"]} == {
        "db.bad"
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "command",
    [
        ["tables"],
        ["database", "list"],
        ["read", "sys.tables"],
        ["read", "sys.partitions"],
        ["read", "sys.all_table_options"],
        ["read", "sys.tables", "--json"],
        ["autopilot", "--dry-run"],
        ["compact-database", "--dry-run"],
        ["doctor", "--check"],
    ],
)
def test_hostile_directories_stop_no_command_for_the_lake(
    command: list[str], lake: Path, run: Run
) -> None:
    name, *rest = command
    arguments = [name, *rest[:1], lake] if name == "database" else [name, lake, *rest]
    for form in ([], ["--json"]):
        if form and ("--json" in command or "--format" in command):
            continue
        answer = run(*arguments, *form)
        assert has_visible_lines(answer.out + answer.error)
        assert "Traceback" not in answer.error
        assert answer.out
        assert answer.status == (1 if name in ("doctor", "compact-database") else 0), answer.error


def test_a_hostile_directory_is_a_finding_of_its_own_table(lake: Path, run: Run) -> None:
    findings = run("doctor", lake, "--json").json["findings"]
    errors = {item["table"] for item in findings if item["severity"] == "error"}
    assert "db.t" not in errors
    assert {"db.a.b", f"db.x{ESC}", "db.x\n"} <= errors


def test_the_page_of_the_doctor_shows_names_as_text(lake: Path, tmp_path: Path, run: Run) -> None:
    page = tmp_path / "report.html"
    run("doctor", lake, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "\\x1b]0;owned\\x07" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


# -- texts in files of one table -------------------------------------------------------------------


def test_texts_of_a_schema_and_of_snapshots_are_shown_escaped(tmp_path: Path, run: Run) -> None:
    table = new_table(
        tmp_path, "k BIGINT, dt STRING, v STRING", key=["dt", "k"], partition_by=["dt"]
    )
    table.upsert(table_of("k dt v", [(1, f"p\u202e\x9b{ESC}", f"v{ESC}")]))
    root = Path(table.paths.root)
    schema_file = root / "schema/schema-0"
    schema = json.loads(schema_file.read_text())
    schema["comment"] = f"c{ESC}\nerror: x"
    schema["options"][f"o{ESC}"] = f"o\n{ESC}\u2066"
    schema["fields"].append({"id": 9, "name": f"n{ESC}\u202e", "type": "INT", "description": ESC})
    schema_file.write_text(json.dumps(schema))
    snapshot_file = root / "snapshot/snapshot-1"
    snapshot = json.loads(snapshot_file.read_text())
    snapshot_file.write_text(json.dumps(snapshot | {"commitUser": f"u{ESC}\n\u202e"}))

    for command in (
        ["describe"],
        ["describe", "--json"],
        ["history"],
        ["history", "--json"],
        ["inspect"],
        ["compact", "--dry-run"],
        ["read"],
        ["read", "--json"],
        ["read", "--format", "jsonl"],
        ["check"],
        ["doctor"],
    ):
        name, *rest = command
        names = [] if name == "doctor" else ["db.t"]
        answer = run(name, tmp_path, *names, *rest)
        assert has_visible_lines(answer.out + answer.error), command
    for system in ("snapshots", "schemas", "options", "files", "partitions", "buckets"):
        answer = run("read", tmp_path, f"db.t${system}")
        assert answer.status == 0
        assert has_visible_lines(answer.out), system
    assert run("read", tmp_path, "db.t", "--json").json[0]["v"] == f"v{ESC}"


def test_csv_on_a_terminal_is_escaped_and_in_a_file_it_is_exact() -> None:
    class Terminal(BytesIO):
        def isatty(self) -> bool:
            return True

    rows = pa.table({f"n{ESC}": [f"v{ESC}\u202e", "é\n"]})
    terminal, file = Terminal(), BytesIO()
    for sink in (terminal, file):
        write_rows(rows.to_reader(), "csv", sink)
    assert has_visible_lines(terminal.getvalue().decode())
    assert f"v{ESC}\u202e" in file.getvalue().decode()


# -- errors and logs -------------------------------------------------------------------------------


def test_an_error_is_one_visible_line_whatever_its_text_contains() -> None:
    error = PaimonError(f"tag a{ESC}\nerror: x \u202e")
    error.add_note(f"n{ESC}\n")
    assert is_visible(str(error))
    assert is_visible("".join(error.__notes__))
    again = PaimonError(f"{error}")
    assert str(again) == str(error)


@pytest.mark.parametrize("part", ["x", ESC, "@a=&:/", "http://a:b@"])
def test_an_error_with_a_long_text_is_short_and_fast(part: str) -> None:
    start = time.monotonic()
    error = CorruptFileError("the/file", f"x is {part * 3_000_000}; do this")
    assert time.monotonic() - start < 5
    assert str(error).startswith("the/file: x is ")
    assert str(error).endswith("; do this")
    assert len(str(error)) <= 8_000
    assert str(PaimonError(str(error))) == str(error)


def test_a_secret_in_a_long_error_is_masked() -> None:
    note_secrets(["a-secret-of-this-process"])
    error = PaimonError("a-secret-of-this-process" * 50_000)
    assert "secret-of" not in str(error)


def test_errors_that_list_names_show_them_escaped(table: Table, tmp_path: Path, run: Run) -> None:
    add_hostile_references(table)
    for command in (
        ["tag", "delete", tmp_path, "db.t", "none"],
        ["branch", "delete", tmp_path, "db.t", "none"],
        ["read", tmp_path, "db.t", "--tag", f"z{ESC}"],
        ["read", tmp_path, f"db.t{ESC}"],
        ["tables", tmp_path, f"db{ESC}\n"],
    ):
        answer = run(*command)
        assert answer.status == 1
        assert len(answer.error.splitlines()) == 1
        assert has_visible_lines(answer.error)
    assert "\\x1b]0;owned\\x07" in run("tag", "delete", tmp_path, "db.t", "none").error


def test_log_lines_and_tracebacks_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("paimon_orch.test")
    with caplog.at_level(logging.INFO):
        logger.warning("%s: no such tag", f"a{ESC}\nINFO forged")
        try:
            raise ValueError(f"b{ESC}\x9b")
        except ValueError:
            logger.warning("failed", exc_info=True)
    formatted = caplog.text
    assert "\\x1b]0;owned" in formatted
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", formatted)
    assert "\nINFO forged" not in formatted


def test_formatters_of_json_get_exceptions_without_control_characters() -> None:
    for text, cleaned in ((f"b{ESC}", "b\\x1b]0;owned\\x07\\x1b[2J"), ("plain", "plain")):
        try:
            raise ValueError(text)
        except ValueError:
            exception = sys.exc_info()
        record = logging.LogRecord("n", logging.WARNING, "f", 1, "failed", None, exception)

        assert clean_record(record)

        assert record.exc_info is not None
        error_type, error, _ = record.exc_info
        assert (error_type, str(error)) == (ValueError, cleaned)
        assert f"ValueError: {cleaned}" in str(record.exc_text)


def test_every_logger_of_the_package_escapes_its_lines(repository: Path) -> None:
    allowed = {"safe_text.py", "app.py", "frame_executor.py"}
    paths = (repository / "paimon_orch").rglob("*.py")
    users = {path.name for path in paths if "getLogger(" in path.read_text(encoding="utf-8")}
    assert users <= allowed


def test_only_two_modules_of_the_command_line_print(repository: Path) -> None:
    prints = re.compile(r"(?<![\w.])print\(|typer\.echo\((?!f\"paimon-orch)|typer\.confirm\(")
    paths = (repository / "paimon_orch/cli").rglob("*.py")
    users = {path.name for path in paths if prints.search(path.read_text(encoding="utf-8"))}
    assert users == {"screen.py", "table_layout.py"}


def test_an_unexpected_error_is_one_visible_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError(f"{ESC}\n\u202e https://u:{'p' * 9}@h/")

    monkeypatch.setattr(app, "app", fail)
    monkeypatch.setattr(sys, "argv", ["paimon-orch"])
    with pytest.raises(SystemExit):
        app.main()
    text = capsys.readouterr().err
    assert has_visible_lines(text)
    assert "ppp" not in text
    assert len(text.splitlines()) == 1


def test_clean_line_keeps_what_is_readable() -> None:
    for text in ("é 日本 😀 a\\b", "/lake/db.db/t/dt=a@b/bucket-0", "user@example.com", "a:b@c"):
        assert clean_line(text) == text


def test_names_that_a_shell_completes_are_plain(lake: Path) -> None:
    from paimon_orch.cli.arguments import _complete_tables

    class Context:
        params = {"location": str(lake)}  # noqa: RUF012
        obj = None

    assert all(map(is_visible, _complete_tables(Context(), "")))  # type: ignore[arg-type]


def test_a_catalog_lists_all_names_unchanged(lake: Path) -> None:
    catalog = Catalog(str(lake))
    assert {f"db.{name}" for name in HOSTILE_DIRECTORIES} <= set(catalog.find_tables())


def test_a_label_with_a_hostile_name_is_escaped_in_notebooks(table: Table) -> None:
    shown = replace(table, identifier=f"db.<script>{ESC}")._repr_html_()
    assert "<script>" not in shown
    assert has_visible_lines(shown)
