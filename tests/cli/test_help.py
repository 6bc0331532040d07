"""Every command: its help page, its options --dry-run and --json, and its place in the overview."""

from __future__ import annotations

import re

import pytest
from support.commands import option_names, run_command, walk_commands

from paimon_orch.cli.help_page import Panel

GROUPS = {"branch", "database", "quarantine", "tag"}
DELETES_NOTHING = {
    *(
        "catalogs",
        "check",
        "count",
        "create",
        "database create",
        "demo",
        "describe",
        "doctor",
        "history",
        "inspect",
        "why",
        "maintenance-history",
        "read",
        "rename",
        "sql",
    ),
    *("branch list", "database list", "quarantine list", "tag list", "tables"),
    *("tag create", "tag rename", "consumer list"),
}


COMMANDS = dict(walk_commands())


def test_the_lists_of_this_module_contain_only_existing_commands() -> None:
    assert set(COMMANDS) > DELETES_NOTHING
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - DELETES_NOTHING))
def test_a_command_that_changes_or_deletes_has_a_dry_run(name: str) -> None:
    assert "--dry-run" in option_names(COMMANDS[name])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_prints_json_on_request(name: str) -> None:
    assert "--json" in option_names(COMMANDS[name])


@pytest.mark.parametrize("columns", [80, 100])
def test_the_overview_has_all_commands_in_panels_with_complete_summaries(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    lines = run_command("--help").splitlines()

    sections = [line.removesuffix(":") for line in lines if re.fullmatch(r"[A-Z][^.]*:", line)]
    assert sections == ["Options", *Panel]
    assert not [line for line in lines[1:] if line.endswith("...") or len(line) > columns]
    listed = {match[1] for line in lines if (match := re.match(r"  ([a-z-]+)(  |$)", line))}
    assert listed >= {name for name in COMMANDS if " " not in name} | GROUPS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_help_page_fits_a_terminal_and_is_written_in_sentences(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    page = run_command(*name.split(), "--help")

    assert not [line for line in page.splitlines() if len(line) > 80]
    assert not re.search("<(str|int|bool)>", page)
    assert f"\n    paimon-orch {name}" in page
    for parameter in COMMANDS[name].params:
        text = str(getattr(parameter, "help", ""))
        assert re.fullmatch(r"[A-Z].*\.", text), (parameter.name, text)


def test_the_overview_documents_the_exit_status() -> None:
    assert "Exit status: 0 for success, 1 for" in " ".join(run_command("--help").split())
