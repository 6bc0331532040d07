"""The process that runs one step: its report, its errors and its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke, option_names, walk_commands
from support.tables import new_table, rows_of, table_of

from paimon_orch import run_step, steps
from paimon_orch.dagster import PaimonTableComponent, build_step_job
from paimon_orch.errors import InputError, NotFoundError, UnsupportedError
from paimon_orch.orchestration.step_runs import run_declared_step
from paimon_orch.run_step import StepRun
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.common.step_registry import find_steps, load_declaration
from paimon_orch.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    created = new_table(tmp_path, "p STRING, k INT, v STRING", key=("p", "k"), partition_by=("p",))
    for value in "xy":
        created.upsert(table_of("p k v", [("a", 1, value), ("b", 2, value)]))
    return created


def execute(root: Path, step: str, **values: Any) -> dict[str, Any]:
    document = {"step": step, "catalog": str(root), "table": "db.t", **values}
    report = StepRun.parse(json.dumps(document)).execute()
    assert json.loads(json.dumps(report)) == report
    return report


def test_a_step_reports_its_plan_and_its_outcome(tmp_path: Path, table: Table) -> None:
    arguments = {"strategy": "full", "partitions": ["p=a"]}

    report = execute(tmp_path, "compact", arguments=arguments)

    assert (report["step"], report["table"], report["dry_run"]) == ("compact", "db.t", False)
    assert [unit["partition"] for unit in report["plan"]["units"]] == ["p=a"]
    assert report["outcome"]["snapshot_id"] == table.stores.snapshots.latest_id() == 3
    assert report["attempts"] == 1
    assert sorted(rows_of(table)) == [("a", 1, "y"), ("b", 2, "y")]


def test_a_dry_run_changes_nothing(tmp_path: Path, table: Table) -> None:
    report = execute(tmp_path, "expire-snapshots", dry_run=True, arguments={"retain_max": 1})

    assert report["plan"]["snapshots"] == 1
    assert report["outcome"] is None
    assert table.stores.snapshots.ids() == [1, 2]


def test_a_step_that_deletes_requires_a_decision(tmp_path: Path, table: Table) -> None:
    with pytest.raises(InputError, match="expire-snapshots needs a decision: set dry_run to true"):
        execute(tmp_path, "expire-snapshots", arguments={"retain_max": 1})
    assert table.stores.snapshots.ids() == [1, 2]

    arguments = {"retain_max": 1, "retain_min": 1}
    report = execute(tmp_path, "expire-snapshots", dry_run=False, arguments=arguments)
    assert report["outcome"]["snapshots"] == 1
    assert table.stores.snapshots.ids() == [2]


def test_a_step_needs_a_warehouse_or_a_metastore() -> None:
    with pytest.raises(InputError, match="a catalog needs a warehouse or the name of"):
        StepRun.parse('{"step": "compact", "table": "db.t"}').execute()
    with pytest.raises(InputError, match="'warehouse'"):
        StepRun.parse(
            '{"step": "compact", "table": "db.t", "catalog_options": {"metastore": "filesystem"}}'
        ).execute()


def test_the_plan_of_a_report_is_the_executed_one(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone__batch_write_fixed_bucket": "false"}
    table = new_table(tmp_path, "k INT, v STRING", key=("k",), **options)
    table.upsert(table_of("k v", [(1, "a")]))

    report = execute(tmp_path, "compact", arguments={"strategy": "full"})

    # the rows were moved to a bucket before it
    assert [unit["bucket"] for unit in report["plan"]["units"]] == [0]


def test_a_repair_that_leaves_damage_fails_as_its_command_does(
    tmp_path: Path,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in (1, 2):
        (Path(table.paths.root) / f"snapshot/snapshot-{number}").write_text("{")
    document = {"step": "repair", "catalog": str(tmp_path), "table": "db.t", "dry_run": False}
    monkeypatch.setattr(sys, "argv", ["run_step", json.dumps(document)])

    with pytest.raises(SystemExit) as exit_info:
        run_step.main()

    report = json.loads(capsys.readouterr().out)
    assert (exit_info.value.code, report["is_incomplete"]) == (1, True)
    assert [each["rule"] for each in report["plan"]["refused"]] == ["unreadable-table"]
    assert invoke("repair", str(tmp_path), "db.t", "--yes").exit_code == 1


def test_steps_require_a_decision_if_their_commands_ask() -> None:
    commands = dict(walk_commands())
    asking = {
        name
        for name, entry in find_steps().items()
        if "--yes" in option_names(commands[entry.command])
    }

    assert {name for name in find_steps() if load_declaration(name).asks} == asking


def _raise_index_error(_: StepRun) -> None:
    raise IndexError


def test_an_unexpected_error_is_reported_too(
    tmp_path: Path,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {"step": "compact", "catalog": str(tmp_path), "table": "db.t"}
    monkeypatch.setattr(sys, "argv", ["run_step", json.dumps(document)])
    monkeypatch.setattr(StepRun, "execute", _raise_index_error)

    with pytest.raises(IndexError):
        run_step.main()

    assert json.loads(capsys.readouterr().out)["error"]["type"] == "IndexError"


@pytest.mark.parametrize("step", sorted(find_steps()))
def test_every_step_reports_json_or_a_refusal(step: str, tmp_path: Path, table: Table) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("p,k,v\na,1,z\n", encoding="utf-8")
    arguments: dict[str, dict[str, object]] = {
        "alter": {"options": {"write-only": "true"}},
        "create-global-index": {"column": "v"},
        "create-branch": {"name": "dev", "tag": "kept"},
        "create-tag": {"name": "new"},
        "delete": {"where": "k >= 1"},
        "delete-branch": {"name": "old"},
        "delete-tag": {"name": "kept"},
        "drop-database": {"cascade": True},
        "drop-partitions": {"partitions": ["p=a", "p=b"]},
        "drop-global-index": {"column": "v"},
        "expire-partitions": {"expiration_time": "1 d", "strategy": "update-time"},
        "fast-forward-branch": {"name": "old"},
        "ingest": {"source": [str(rows)]},
        "mark-done": {"partitions": ["p=a"]},
        "merge-into": {
            "source": [str(rows)],
            "on": "target.p = source.p and target.k = source.k",
            "matched_delete": "true",
        },
        "rename-branch": {"name": "old", "to": "new"},
        "rename-tag": {"name": "kept", "to": "renamed"},
        "repair-earliest-snapshot": {"snapshot_id": 2},
        "rescale": {"bucket_num": 2},
        "reset-consumer": {"name": "app", "next_snapshot": 1},
        "rollback": {"snapshot_id": 1},
        "update": {"assignments": {"v": "'new'"}},
    }
    refused = {
        "create-global-index",
        "materialize-deletion-vectors",
        "move-postponed",
        "reassign-row-ids",
        "repair-earliest-snapshot",
        "sync-iceberg",
        "sync-partitions",
    }
    table.tags.create("kept", 1)
    table.branches.create("old", "kept")
    before, target = rows_of(table), "db" if step == "drop-database" else "db.t"
    given = arguments.get(step, {})
    try:
        report = execute(tmp_path, step, table=target, dry_run=False, arguments=given)
    except (InputError, UnsupportedError):
        assert step in refused
    else:
        assert step not in refused
        assert report.keys() >= {"plan", "outcome", "duration_seconds", "attempts"}
    if step in {"drop-table", "drop-database"}:
        assert not (tmp_path / "db.db/t").exists()
    elif step in {"ingest", "merge-into"}:
        changed = [("a", 1, "z")] if step == "ingest" else []
        assert sorted(rows_of(table)) == [*changed, ("b", 2, "y")]
    elif step in {"delete", "drop-partitions", "purge-files", "truncate"}:
        assert rows_of(table) == []
    elif step in {"fast-forward-branch", "rollback", "undo"}:
        assert rows_of(table) == [("a", 1, "x"), ("b", 2, "x")]
    elif step == "update":
        assert {row[2] for row in rows_of(table)} == {"new"}
    else:
        assert rows_of(table) == before


def test_a_dry_run_of_a_drop_counts_what_it_would_delete(tmp_path: Path, table: Table) -> None:
    table.tags.create("kept", 1)

    dropped = execute(tmp_path, "drop-table", dry_run=True)["plan"]
    database = execute(
        tmp_path, "drop-database", table="db", dry_run=True, arguments={"cascade": True}
    )["plan"]

    assert (dropped["snapshots"], dropped["tags"], dropped["deleted"]) == (2, ["kept"], False)
    assert dropped["files"] > 2
    assert dropped.items() >= database["tables"][0].items()
    assert rows_of(table) != []
    with pytest.raises(InputError, match="drop-table needs a decision"):
        execute(tmp_path, "drop-table")


def test_a_table_that_does_not_exist_is_dropped_only_if_that_is_allowed(tmp_path: Path) -> None:
    new_table(tmp_path)
    run = partial(execute, tmp_path, "drop-table", table="db.none", dry_run=False)

    with pytest.raises(NotFoundError):
        run()
    report = run(arguments={"if_exists": True})

    assert report["outcome"] == {"table": "db.none", "deleted": False}


def test_a_load_notes_the_columns_that_its_files_lack(tmp_path: Path, table: Table) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("p,k\nc,3\n", encoding="utf-8")

    planned = execute(tmp_path, "ingest", dry_run=True, arguments={"source": [str(rows)]})
    report = execute(tmp_path, "ingest", dry_run=False, arguments={"source": [str(rows)]})

    assert planned["plan"]["missing_columns"] == report["outcome"]["missing_columns"] == ["v"]
    assert report["notes"][0] == "the files lack v; null or the default value is written"


def test_a_load_compacts_what_it_wrote(tmp_path: Path) -> None:
    table = new_table(tmp_path, "k INT, v STRING", key=("k",), deletion_vectors__enabled="true")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"k": 1, "v": "z"}\n', encoding="utf-8")
    arguments = {"source": [str(rows)], "compact_after": True}

    planned = execute(tmp_path, "ingest", dry_run=True, arguments=arguments)["plan"]
    outcome = execute(tmp_path, "ingest", dry_run=False, arguments=arguments)["outcome"]

    assert (planned["rows"], planned["added_columns"]) == (1, [])
    assert (outcome["snapshot_id"], outcome["rows"], outcome["rows_not_visible"]) == (1, 1, 0)
    assert outcome["compaction"]["snapshot_id"] == 2
    assert rows_of(table) == [(1, "z")]  # readers skip level 0


def test_the_new_value_of_all_columns_is_a_star(tmp_path: Path, table: Table) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("p,k,v\na,1,z\nc,3,n\n", encoding="utf-8")
    arguments = {
        "source": [str(rows)],
        "on": "target.p = source.p and target.k = source.k",
        "matched_update": {"*": "*"},
        "insert": {"*": "*"},
    }

    report = execute(tmp_path, "merge-into", dry_run=False, arguments=arguments)

    assert (report["outcome"]["updated"], report["outcome"]["inserted"]) == (1, 1)
    assert sorted(rows_of(table)) == [("a", 1, "z"), ("b", 2, "y"), ("c", 3, "n")]


@pytest.mark.parametrize("step", ["ingest", "merge-into"])
def test_a_list_without_files_is_refused(tmp_path: Path, table: Table, step: str) -> None:
    clauses = {"on": "target.k = source.k", "insert": {"*": "*"}} if step == "merge-into" else {}
    newest = table.stores.snapshots.latest_id()

    with pytest.raises(InputError, match="there is no file to read"):
        execute(tmp_path, step, dry_run=False, arguments={"source": [], **clauses})
    assert table.stores.snapshots.latest_id() == newest


@pytest.mark.parametrize("argument", ["matched_update", "insert"])
def test_a_star_with_another_value_is_refused(tmp_path: Path, table: Table, argument: str) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("p,k,v\na,1,z\nc,3,n\n", encoding="utf-8")
    on = "target.p = source.p and target.k = source.k"
    arguments = {"source": [str(rows)], "on": on, argument: {"*": "source.v"}}
    before = rows_of(table)

    with pytest.raises(InputError, match=r"there is no column '\*'"):
        execute(tmp_path, "merge-into", dry_run=False, arguments=arguments)
    assert rows_of(table) == before


def test_a_change_of_a_schema_says_which_values_are_lost(tmp_path: Path, table: Table) -> None:
    arguments = {"drop": ["v"], "rename": {"k": "key"}}

    plan = execute(tmp_path, "alter", dry_run=True, arguments=arguments)["plan"]
    outcome = execute(tmp_path, "alter", dry_run=False, arguments=arguments)["outcome"]

    assert plan == outcome
    assert (plan["previous_schema_id"], plan["schema_id"]) == (0, 1)
    assert table.load().schema.names == ["p", "key"]


def test_steps_of_other_kinds_of_tables_report_json(tmp_path: Path) -> None:
    evolving = {"bucket": "-1", "row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = new_table(tmp_path, "k INT, v STRING", key=(), **evolving)
    table.append(table_of("k v", [(1, "a"), (2, "b")]))

    report = execute(tmp_path, "create-global-index", arguments={"column": "k"})
    assert report["outcome"]["index_files"] == 1
    assert execute(tmp_path, "reassign-row-ids")["outcome"]["snapshot_id"] is None
    arguments = {"column": "k", "index_type": "btree"}
    report = execute(tmp_path, "drop-global-index", dry_run=False, arguments=arguments)
    assert len(report["outcome"]["index_files"]) == 1


def test_postponed_rows_are_moved(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        "k INT, v STRING",
        key=("k",),
        bucket="-2",
        postpone__batch_write_fixed_bucket="false",
    )
    table.upsert(table_of("k v", [(1, "a")]))

    report = execute(tmp_path, "move-postponed")

    assert report["outcome"]["snapshot_id"] == table.stores.snapshots.latest_id()
    assert [unit["rows"] for unit in report["plan"]["units"]] == [1]
    assert rows_of(table) == [(1, "a")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x", "the step is not JSON"),
        ("[]", "the step is not a JSON object"),
        ("{}", "missing arguments: step, table"),
        ('{"step": "compact", "catalog": "c", "table": "t", "executor": "x"}', "auto, local or"),
        (
            '{"step": "compact", "catalog": "c", "table": "t", "storage_options": {"a": 1}}',
            r"storage_options\['a'\] is 1, but must be a text",
        ),
        ('{"step": "compact", "catalog": "c", "table": "t", "wait": 1}', "unknown arguments: wait"),
    ],
)
def test_a_document_that_is_no_step_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        StepRun.parse(text)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "paimon_orch.run_step", *arguments]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, **pipes, text=True, **options)


@pytest.mark.slow
def test_the_process_reads_standard_input_and_has_the_exit_status_of_the_command_line(
    tmp_path: Path, table: Table
) -> None:
    document = {"step": "compact", "catalog": str(tmp_path), "table": "db.t"}

    process = start()
    output, _ = process.communicate(json.dumps(document))
    assert process.returncode == 0
    assert json.loads(output)["step"] == "compact"

    process = start(json.dumps(document | {"arguments": {"partitions": ["p=c"]}}))
    output, errors = process.communicate()
    assert process.returncode == 1
    error = json.loads(output)["error"]
    assert (error["type"], error["may_succeed_again"]) == ("NotFoundError", False)
    assert errors == f"error: {error['message']}\n"


def test_a_damaged_table_is_reported_with_the_next_step(tmp_path: Path, table: Table) -> None:
    for path in Path(table.paths.manifest_dir).glob("manifest-*"):
        path.write_bytes(b"damaged")
    document = {"step": "compact", "catalog": str(tmp_path), "table": "db.t"}

    process = start(json.dumps(document))
    output, _ = process.communicate()

    assert process.returncode == 1
    assert json.loads(output)["error"]["type"] == "CorruptFileError"
    assert "paimon-orch doctor" in json.loads(output)["error"]["next_step"]


@pytest.mark.slow
def test_a_terminated_process_ends_with_the_status_of_the_signal() -> None:
    process = start()  # waits for standard input
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate()

    assert process.returncode == 128 + signal.SIGTERM
    assert errors == "terminated\n"


def test_the_page_lists_all_keys_and_all_steps(repository: Path) -> None:
    page = (repository / "docs/how-to/run-a-step-anywhere.md").read_text(encoding="utf-8")
    for name in (*find_steps(), *(field.name for field in fields(StepRun))):
        assert f"`{name}`" in page


WRONG: list[tuple[str, str, Callable[[Table], object], str, object, str]] = [
    ("expire-snapshots", "retain_max", lambda t: steps.expire_snapshots(t, retain_max=0),
     "--retain-max", 0, "is 0; the minimum is 1"),
    ("expire-changelogs", "max_deletes", lambda t: steps.expire_changelogs(t, max_deletes=-1),
     "--max-deletes", -1, "is -1; the minimum is 0"),
    ("expire-snapshots", "max_deletes", lambda t: steps.expire_snapshots(t, max_deletes=-1),
     "--max-deletes", -1, "is -1; the minimum is 0"),
    ("remove-orphan-files", "older_than", lambda t: steps.remove_orphan_files(t, older_than="soon"),  # type: ignore[arg-type]
     "--older-than", "soon", "'soon' is neither a duration, for example '3 d', nor"),
    ("rescale", "bucket_num", lambda t: steps.rescale(t, 0),
     "--bucket-num", 0, "is 0; the minimum is 1"),
    ("expire-snapshots", "older_than", lambda t: steps.expire_snapshots(t, older_than="soon"),  # type: ignore[arg-type]
     "--older-than", "soon", "'soon' is neither a duration, for example '3 d', nor"),
    ("expire-partitions", "expiration_time",
     lambda t: steps.expire_partitions(t, expiration_time="long"),  # type: ignore[arg-type]
     "--expiration-time", "long", "'long' is not a duration; write a whole number and a unit"),
]  # fmt: skip

POLICIES = {
    "expire-snapshots": "snapshot_expiration",
    "expire-partitions": "partition_expiration",
    "remove-orphan-files": "orphan_files",
}
"""The attributes of components for steps that have one of their own."""


@pytest.mark.parametrize(
    ("step", "name", "call", "option", "value", "sentence"), WRONG, ids=lambda each: str(each)[:20]
)
def test_a_wrong_argument_is_refused_by_the_same_sentence_everywhere(
    tmp_path: Path,
    step: str,
    name: str,
    call: Callable[[Table], object],
    option: str,
    value: object,
    sentence: str,
) -> None:
    _check_sentences(tmp_path, step, name, call, option, value, sentence)
    arguments = {name: value}
    policies: dict[str, object] = {"steps": {step: {"arguments": arguments}}}
    if step in POLICIES:
        policies = {POLICIES[step]: arguments}
    attributes = {"table": "db.t", "warehouse": str(tmp_path), **policies}
    with pytest.raises(InputError, match=re.escape(f"{name} {sentence}")):
        PaimonTableComponent.from_attributes_dict(attributes=attributes).definitions()


def _check_sentences(
    root: Path,
    step: str,
    name: str,
    call: Callable[[Table], object],
    option: str,
    value: object,
    sentence: str,
) -> None:
    table = new_table(root, "p INT, k INT", key=(), partition_by=["p"], bucket="-1")
    command = (step, str(root), "db.t", option, str(value), "--dry-run")
    arguments = {name: value}

    front_ends: list[Callable[[], object]] = [
        lambda: call(table),
        lambda: run_declared_step(step, table, arguments, InProcessExecutor(), dry_run=True),
        lambda: build_step_job(step, "db.t", config=arguments),
    ]
    for refuse in front_ends:
        with pytest.raises(InputError) as refused:
            refuse()
        assert str(refused.value).startswith(f"{name} {sentence}")
    with pytest.raises(InputError) as refused:
        invoke(*command)
    assert str(refused.value).startswith(f"{option} {sentence}")


@pytest.mark.parametrize("value", ["many", "1.5"])
def test_a_text_for_a_number_is_refused_by_the_same_sentence(tmp_path: Path, value: str) -> None:
    def expire(table: Table) -> object:
        return steps.expire_snapshots(table, retain_max=value)  # type: ignore[arg-type]

    sentence = f"is {value!r}, but must be a whole number"
    _check_sentences(
        tmp_path, "expire-snapshots", "retain_max", expire, "--retain-max", value, sentence
    )


def test_an_unknown_choice_is_refused_by_the_same_sentence(tmp_path: Path) -> None:
    table, sentence = new_table(tmp_path), "is 'most', but must be minor or full"
    with pytest.raises(InputError, match=f"^strategy {sentence}"):
        steps.compact(table, strategy="most")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"^strategy {sentence}"):
        run_declared_step("compact", table, {"strategy": "most"}, InProcessExecutor(), dry_run=True)
    with pytest.raises(InputError, match=f"^--strategy {sentence}"):
        invoke("compact", str(tmp_path), "db.t", "--strategy", "most")
