"""Exit status and error output of commands run through the entry point; ``create``."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import pytest
from support.commands import Run, assert_fails
from support.damage import store_option
from support.tables import new_table, table_of

from paimon_orch import Catalog
from paimon_orch.cli.app import main
from paimon_orch.cli.commands import inspect as cli_inspect
from paimon_orch.errors import CancelledError
from paimon_orch.table.commit.commit import TableCommit
from paimon_orch.table.table import Table


def test_the_demo_prints_its_result_as_json(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_orch.demo.pipeline.run_demo", lambda *_: False)

    answer = run("demo", "--warehouse", tmp_path, "--months", 1, "--json")

    assert answer.status == 1
    assert answer.json == {
        "warehouse": str(tmp_path),
        "table": "nyc.flight_board",
        "months": 1,
        "is_correct": False,
    }


def test_create_stores_columns_keys_options_and_comment(run: Run, tmp_path: Path) -> None:
    answer = run(
        "create", tmp_path, "db.t", "--columns", "dt STRING, id BIGINT, v DOUBLE",
        "--primary-key", "dt, id", "--partition-by", "dt", "--option", "bucket=2",
        "--option", "target-file-size=1 mb", "--comment", "it's",
    )  # fmt: skip

    assert (answer.status, answer.out) == (0, f"created db.t in {tmp_path}\n")
    schema = Catalog(str(tmp_path)).table("db.t").load().schema
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert schema.options == {"bucket": "2", "target-file-size": "1 mb"}
    assert schema.comment == "it's"
    assert_fails(run("create", tmp_path, "db.t", "--columns", "id INT"), "already exists")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--columns", "id FOO"], "unknown type 'FOO'"),
        (["--columns", "id INT", "--option", "bucket"], "must look like key=value"),
        (
            ["--columns", "id INT", "--option", "bucket=1", "--option", "bucket = 2"],
            "bucket is given twice: '1' and '2'",
        ),
        (["--columns", "id INT", "--primary-key", "x"], "'x' is not among the columns id"),
    ],
)
def test_create_refuses_an_invalid_definition(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert_fails(run("create", tmp_path / "wh", "db.t", *arguments), message)
    assert not (tmp_path / "wh").exists()


def test_a_missing_warehouse_is_reported_and_not_created(run: Run, tmp_path: Path) -> None:
    for command in ("inspect", "compact"):
        answer = run(command, tmp_path / "nowhere", "db.t")
        assert_fails(answer, "there is no table db.t", "nowhere does not exist; check the path")
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


def test_an_option_that_is_given_twice_is_refused_because_only_its_last_value_would_be_used(
    run: Run, warehouse: Path
) -> None:
    twice = ["--partitions", "dt=1", "--partitions=dt=2"]
    for command in ("drop-partitions", "compact"):
        answer = run(command, str(warehouse), "db.t", *twice, "--dry-run")
        assert (answer.status, answer.out) == (2, "")
        assert "--partitions is given twice" in answer.error
    answer = run("--log-level", "error", "--log-level=debug", "tables", str(warehouse))
    assert answer.status == 2
    assert "--log-level is given twice" in answer.error

    assert run("count", str(warehouse), "db.t", "--json", "--json").status == 0


def test_version_is_the_version_of_the_installed_package(run: Run) -> None:
    answer = run("--version")

    assert (answer.status, answer.out) == (0, f"paimon-orch {version('paimon-orch')}\n")


def test_the_environment_has_the_catalog_of_calls_without_one(
    run: Run, table: Table, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(warehouse))

    assert run("tables").out == "db.t\n"
    assert run("count", "db.t").out == run("count", "--where", "id > 0", "db.t").out == "3\n"
    assert run("rename", "db.t", "db.u", "--json").json["table"] == "db.u"
    missing = run("count")
    assert (missing.status, "Missing argument 'DATABASE.TABLE'" in missing.error) == (2, True)


@pytest.mark.parametrize("command", ["doctor", "tables"])
def test_names_of_tables_follow_the_catalog_of_the_environment(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(warehouse))
    argument = {"doctor": "db.*", "tables": "db"}[command]

    assert run(command, argument).out == run(command, warehouse, argument).out


def test_the_environment_changes_no_call_with_a_configured_catalog(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(warehouse / "elsewhere"))
    monkeypatch.setenv("PAIMON_ORCH_CATALOG__PROD__WAREHOUSE", str(warehouse))

    assert run("tables", "prod").out == "db.t\n"


def test_a_quiet_command_prints_no_notes(run: Run, warehouse: Path) -> None:
    change = ("delete", warehouse, "db.t", "--executor", "local", "--where")

    quiet, other = run("--quiet", *change, "id = 1"), run(*change, "id = 2")

    assert (quiet.status, quiet.error) == (0, "")
    assert "note: to take this back, run " in other.error


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ([], "warning"),
        (["--verbose"], "info"),
        (["--quiet"], "error"),
        (["--quiet", "--log-level", "debug"], "debug"),
    ],
)
def test_options_select_the_level_of_the_log(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], level: str
) -> None:
    levels = list[str]()
    monkeypatch.setattr(
        "paimon_orch.cli.app.configure_logs", lambda level, _form: levels.append(level)
    )

    assert run(*options, "tables", warehouse).out == "db.t\n"
    assert levels == [level]


def test_log_lines_can_be_json() -> None:
    program = """
import logging
from paimon_orch.cli.app import LogFormat, LogLevel, configure_logs
configure_logs(LogLevel.INFO, LogFormat.JSON)
try:
    raise ValueError("wrong")
except ValueError:
    logging.getLogger("a.b").warning("one\\ntwo", exc_info=True)
logging.getLogger("a.b").debug("not printed")
"""
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)

    [line] = answer.stderr.splitlines()
    values = json.loads(line)
    assert datetime.fromisoformat(values.pop("time")).tzinfo is not None
    assert values.pop("exception").endswith("ValueError: wrong")
    assert values == {"level": "warning", "logger": "a.b", "message": "one\\ntwo"}


def test_notes_and_errors_are_json_too(run: Run, warehouse: Path) -> None:
    answer = run("--log-format", "json", "count", warehouse, "db.missing")

    values = json.loads(answer.error)
    assert (answer.status, values["level"]) == (1, "error")
    assert "db.missing" in values["message"]
    assert run("count", warehouse, "db.missing").error.startswith("error: ")


def test_the_environment_changes_no_call_with_a_catalog(
    run: Run, table: Table, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(warehouse / "elsewhere"))

    assert run("count", warehouse, "db.t").out == "3\n"
    assert run("tables", warehouse).out == "db.t\n"
    assert run("catalogs").status == 0
    assert run("count", warehouse, "--nope").status == 2


def test_a_call_without_a_catalog_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)

    answer = run("count", "db.t")

    assert (answer.status, "Missing argument 'DATABASE.TABLE'" in answer.error) == (2, True)


@pytest.mark.parametrize(
    ("option", "switch"),
    [
        ("metadata.iceberg-compatible", "--allow-stale-external"),
        ("deletion-vector.enabled", "--allow-unknown-options"),
    ],
)
def test_an_option_stops_a_command_unless_a_switch_allows_it(
    run: Run, tmp_path: Path, option: str, switch: str
) -> None:
    table = new_table(tmp_path)
    table.upsert(table_of("k v", [(1, "a")]))
    store_option(table, option, "true")

    assert_fails(run("tag", "create", tmp_path, "db.t", "a"), option, switch)
    assert run("tag", "create", tmp_path, "db.t", "a", switch).status == 0


def test_help_has_a_short_name(run: Run) -> None:
    assert run("-h").out == run("--help").out
    assert run("tag", "list", "-h").out == run("tag", "list", "--help").out


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

    monkeypatch.setattr(cli_inspect, "inspect_newest", fail)
    Catalog(str(tmp_path)).create_table("db.t", "id INT")

    answer = run("inspect", tmp_path, "db.t")

    assert answer.status == 1
    assert "the disk is full (the write is committed as snapshot 3)" in answer.error


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Handle signals like a new process; Spark and Dagster replace handlers in other tests."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminate = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, terminate)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_ends_a_command_with_one_line(
    run: Run,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    status: int,
    word: str,
) -> None:
    monkeypatch.setattr(cli_inspect, "inspect_newest", lambda *_: os.kill(os.getpid(), number))

    answer = run("inspect", warehouse, "db.t")

    assert (answer.status, answer.out, answer.error) == (status, "", f"{word}\n")


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_during_a_commit_says_whether_it_happened(
    run: Run, table: Table, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableCommit, "_update_hint", lambda *_: os.kill(os.getpid(), signal.SIGINT))

    answer = run("truncate", warehouse, "db.t", "--yes")

    note = f"snapshot 2 of {table.paths.root} is committed"
    assert (answer.status, answer.error) == (130, f"interrupted ({note})\n")


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_during_a_commit_is_ignored_in_the_background(
    run: Run, table: Table, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for a command with &
    monkeypatch.setattr(TableCommit, "_update_hint", lambda *_: os.kill(os.getpid(), signal.SIGINT))

    assert run("truncate", warehouse, "db.t", "--yes").status == 0
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_canceled_job_ends_like_an_interrupt(
    run: Run, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancel(*_: object) -> None:
        raise CancelledError("compact: canceled before it finished; nothing was committed.")

    monkeypatch.setattr(cli_inspect, "inspect_newest", cancel)

    answer = run("inspect", warehouse, "db.t")

    assert (answer.status, answer.error) == (
        130,
        "interrupted (compact: canceled before it finished; nothing was committed)\n",
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="lists processes in /proc")
def test_an_interrupt_during_the_start_of_spark_leaves_no_process(
    table: Table, warehouse: Path
) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    mark = f"PAIMON_ORCH_TEST={uuid4()}"
    process = start_compaction(warehouse, mark)
    wait_until(lambda: SPARK in commands_of(mark))
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)

    assert (process.returncode, error.strip()) == (130, "interrupted")
    wait_until(lambda: not commands_of(mark))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="lists processes in /proc")
@pytest.mark.usefixtures("default_signals")
def test_interrupts_during_the_start_of_spark_are_ignored_in_the_background(
    table: Table, warehouse: Path
) -> None:
    table.upsert(table_of("id v price", [(1, "z", "1")]))
    mark = f"PAIMON_ORCH_TEST={uuid4()}"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = start_compaction(warehouse, mark)
    wait_until(lambda: SPARK in commands_of(mark))
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
    _, error = process.communicate()

    assert process.returncode == 0, error
    assert table.stores.snapshots.latest_id() == 3


SPARK = "org.apache.spark.deploy.SparkSubmit"


def start_compaction(warehouse: Path, mark: str) -> subprocess.Popen[str]:
    """Start a compaction with Spark, whose processes have an environment variable."""
    name, _, value = mark.partition("=")
    command = [sys.executable, "-m", "paimon_orch", "compact", str(warehouse), "db.t"]
    return subprocess.Popen(
        [*command, "--strategy", "full", "--executor", "spark", "--master", "local[1]"],
        env=os.environ | {name: value},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as in a terminal, all processes of the group get the signal
    )


def commands_of(mark: str) -> str:
    """Return the command lines of all processes with an environment variable."""
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process ended, or belongs to another user
            if mark.encode() in (folder / "environ").read_bytes():
                commands.append((folder / "cmdline").read_bytes().decode(errors="replace"))
    return "\n".join(commands)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_garbage_of_data_frames_is_collected_as_often_as_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their cycles keep rows in the JVM, whose heap is small."""
    before = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["paimon-orch", "--version"])

    with pytest.raises(SystemExit):
        main()

    assert gc.get_threshold() == before
