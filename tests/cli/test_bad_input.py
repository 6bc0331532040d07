"""With damaged tables and invalid arguments, every command fails cleanly and changes nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from support.steps import commit_plan
from support.tables import new_table, table_of
from typer.main import get_command

from paimon_orch.cli.app import app, main
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.maintenance import analyze

TABLE = "db.t"
READS = [
    *(["inspect"], ["inspect", "--json"], ["check"], ["check", "--deep"]),
    *(["read", "--format", form] for form in ("table", "jsonl", "csv")),
    *(["read", "--snapshot", "3"], ["read", "--tag", "t1"], ["read", "--branch", "b1"]),
    *(["read", "--where", "v = 'x3'"], ["read", "--order-by", "k desc", "--limit", "2"]),
    *(["read", "--timestamp", "2026-01-01"], ["quarantine", "list"], ["tag", "list"]),
    *(["branch", "list"], ["compact", "--dry-run"], ["analyze", "--all-columns", "--dry-run"]),
    *(["alter", "--add", "n INT", "--dry-run"], ["move-postponed", "--dry-run"]),
    *(["rewrite-file-index", "--dry-run"], ["compact-manifests", "--dry-run"]),
    ["expire-snapshots", "--retain-max", "1", "--retain-min", "1", "--dry-run"],
    *(["remove-orphan-files", "--dry-run"], ["expire-changelogs", "--dry-run"]),
    *(["remove-unexisting-files", "--dry-run"], ["rescale", "--bucket-num", "2", "--dry-run"]),
    *(["expire-tags", "--older-than", "0 s", "--dry-run"], ["truncate", "--dry-run"]),
    *(["rollback", "--snapshot", "2", "--dry-run"], ["rollback", "--tag", "t1", "--dry-run"]),
    *(["drop-partitions", "--partitions", "p=a", "--dry-run"], ["drop", "--dry-run"]),
    *(["delete", "--where", "k = 3", "--dry-run"], ["tag", "delete", "t1", "--dry-run"]),
    *(["branch", "delete", "b1", "--dry-run"], ["branch", "fast-forward", "b1", "--dry-run"]),
]
WRITES = [
    *(
        ["alter", "--add", "n INT"],
        ["compact-manifests"],
        ["truncate", "--yes"],
        ["rollback", "--tag", "t1", "--yes"],
    ),
    ["expire-snapshots", "--retain-max", "1", "--retain-min", "1", "--yes"],
    *(
        ["remove-orphan-files"],
        ["rescale", "--bucket-num", "2", "--yes"],
        ["rollback", "--snapshot", "2", "--yes"],
    ),
    *(
        ["drop-partitions", "--partitions", "p=a", "--yes"],
        ["tag", "create", "t9"],
        ["tag", "delete", "t1", "--yes"],
    ),
    *(["branch", "create", "b9", "--tag", "t1"], ["branch", "delete", "b1", "--yes"]),
]
SYSTEM = [
    "snapshots", "schemas", "options", "manifests", "files", "partitions", "buckets", "tags", "branches", "consumers",
    "audit_log", "statistics",
]  # fmt: skip
ODD = ["", " ", "nope", "-1", "0", "9" * 40, "1e400", "NaN", "a=b", "=", ";", ",", "'", '"', "\\", "%", "\x00", "\ud800",
       "../../x", "/", "[red]", "\u20ac", "x" * 5000]  # fmt: skip


def build(root: Path) -> None:
    """Create a table with deletion vectors, an index, statistics, a tag, a branch, a consumer."""
    table = new_table(
        root, "p STRING, k BIGINT, v STRING", key=("p", "k"), partition_by=("p",),
        deletion_vectors__enabled="true", file_index__bloom_filter__columns="v",
    )  # fmt: skip
    executor = InProcessExecutor()
    for number in range(3):
        rows = [("ab"[k % 2], k, f"{'xyz'[number]}{k}") for k in range(number * 2, 10)]
        table.upsert(table_of("p k v", rows))
        compact(table, executor, strategy="full" if number == 0 else "minor")
        if number == 0:
            table.tags.create("t1")
            table.branches.create("b1", "t1")
    planned = analyze.plan(table, analyze.AnalyzeRequest(columns=["v"]))
    commit_plan(analyze.ANALYZE, table, planned)
    consumer = Path(table.paths.root) / "consumer"
    consumer.mkdir()
    (consumer / "consumer-job").write_text('{"nextSnapshot": 3}')


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    build(root)
    return root


def kinds(root: Path) -> list[Path]:
    """Return the newest file of each kind."""
    newest: dict[str, Path] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            kind = path.name.split("-")[0] + path.suffix + ("list" if "-list-" in path.name else "")
            newest[str(path.parent.relative_to(root)).split("/p=")[0] + kind] = path
    return [path.relative_to(root) for path in newest.values()]


def damages(data: bytes, chance: random.Random) -> Iterator[bytes | None]:
    """Yield damaged contents of a file; None stands for a missing file."""
    yield None
    yield b""
    yield data[: len(data) // 2]
    yield bytes(range(256)) * 4
    yield bytes(len(data))
    yield data.replace(b"a", b"\xe9")
    for _ in range(2):
        place = chance.randrange(len(data))
        yield data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]
    if data[:1] == b"{":
        yield from yield_damaged_json(json.loads(data), chance)
    elif data.isdigit():
        yield from (b"-1", b"9" * 30, b"null", b"1.5", b"99")


def yield_damaged_json(value: dict[str, object], chance: random.Random) -> Iterator[bytes]:
    yield from (b"null", b"[]", b'"x"', b"[" * 100_000)
    for key in value:
        without = {name: item for name, item in value.items() if name != key}
        odd: object = chance.choice(
            [None, -1, 10**30, "x", [], {}, 1.5, True, [None], [{"x": 1}], "\ud800"]
        )
        yield json.dumps(without).encode()
        yield json.dumps({**value, key: odd}).encode()


def content(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Runner:
    """Runs commands through the entry point, and checks what holds for every command."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capture = patch, capture

    def run(self, *arguments: str) -> int:
        self.patch.setattr(sys, "argv", ["paimon-orch", *arguments])
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        out, error = self.capture.readouterr()
        report = f"{arguments}: {status}\n{out[-500:]}\n{error[-2000:]}"
        assert status in (0, 1, 2), report
        assert "Traceback" not in out + error, report
        assert "internal error" not in error, report
        if status == 1 and arguments[0] != "check":
            lines = [line for line in error.splitlines() if line and not line.startswith("note: ")]
            assert len(lines) == 1, report
            assert lines[0].startswith("error: "), report
        return int(str(status))


@pytest.fixture
def runner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return Runner(monkeypatch, capsys)


def arguments_of(command: list[str], root: Path, table: str = TABLE) -> list[str]:
    """Insert warehouse and table after the name of a command."""
    names = 2 if command[0] in ("tag", "branch", "quarantine") else 1
    return [*command[:names], str(root), table, *command[names:]]


def spoil(sound: Path, root: Path, path: Path, data: bytes | None) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(sound, root)
    (root / path).unlink()
    if data is not None:
        (root / path).write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_command_reports_damaged_files_in_one_paragraph(
    runner: Runner, sound: Path, tmp_path: Path, seed: int
) -> None:
    chance, root = random.Random(seed), tmp_path / "w"  # noqa: S311
    files = kinds(sound)
    assert len(files) >= 12
    for path in files[seed % 3 :: 3]:
        every = list(damages((sound / path).read_bytes(), chance))
        for data in chance.sample(every, min(4, len(every))):
            spoil(sound, root, path, data)
            before = content(root)
            for command in chance.sample(READS, 4):
                runner.run(*arguments_of(command, root))
            runner.run(*arguments_of(["read"], root, f"{TABLE}${chance.choice(SYSTEM)}"))
            assert content(root) == before, "a command that reads or plans changed the table"
            if runner.run(*arguments_of(chance.choice(WRITES), root)) == 1:
                assert content(root) == before, (path, data)


@pytest.mark.slow
def test_directories_in_place_of_files_are_reported(
    runner: Runner, sound: Path, tmp_path: Path
) -> None:
    root, chance = tmp_path / "w", random.Random(1)  # noqa: S311
    for path in kinds(sound):
        spoil(sound, root, path, None)
        (root / path).mkdir()
        before = content(root)
        for command in chance.sample(READS, 5):
            runner.run(*arguments_of(command, root))
        assert content(root) == before, path


def leaves() -> Iterator[tuple[list[str], typer.core.TyperCommand]]:
    """Yield all commands by their names."""
    pending: list[tuple[list[str], object]] = [([], get_command(app))]
    while pending:
        names, command = pending.pop()
        inner = getattr(command, "commands", None)
        if inner is None:
            assert isinstance(command, typer.core.TyperCommand)
            yield names, command
        else:
            pending += [([*names, name], below) for name, below in inner.items()]


NEEDS_SPARK = {
    "demo",
    "ingest",
    "update",
    "delete",
    "merge-into",
    "analyze",
    "move-postponed",
    "compact",
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("names", [names for names, _ in leaves()], ids="-".join)
def test_invalid_arguments_are_refused_in_one_paragraph(
    runner: Runner, sound: Path, tmp_path: Path, names: list[str]
) -> None:
    """Commands that would start Spark get a table that does not exist, or a dry run."""
    command = next(command for words_of_name, command in leaves() if words_of_name == names)
    chance, root = random.Random("-".join(names)), tmp_path / "w"  # noqa: S311
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    switches = [p.opts[0] for p in options if getattr(p, "is_flag", False)]
    valued = [p.opts[0] for p in options if not getattr(p, "is_flag", False)]
    positional = [p for p in command.params if p.param_type_name == "argument" and p.required]
    with_dry_run = "--dry-run" in switches
    for _ in range(6):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(sound, root)
        values = [str(root), TABLE, *(chance.choice(ODD) for _ in positional[2:])][
            : len(positional)
        ]
        if values and chance.random() < 0.2:
            values[chance.randrange(len(values))] = chance.choice(ODD)
        if values and names[0] in NEEDS_SPARK and not with_dry_run:
            values[-1:] = [chance.choice(ODD)]
        if names[0] in ("demo", "ingest", "merge-into"):
            values[1:2] = ["db.nope"]
        if names[:1] == ["drop"] or names == ["database", "drop"]:
            values[0] = str(tmp_path / "nowhere")
        if names == ["demo"]:
            valued = ["--months"]
        option_sample = chance.sample(valued, min(len(valued), chance.randrange(1, 3)))
        pairs = [part for name in option_sample for part in (name, chance.choice(ODD))]
        dry = ["--dry-run"] if with_dry_run else []
        runner.run(*names, *pairs, *dry, "--", *values)


@pytest.mark.slow
def test_failed_processes_print_no_traceback(sound: Path) -> None:
    """Run processes with a file name that is not UTF-8, a closed pipe, and a file as warehouse."""
    command = [sys.executable, "-m", "paimon_orch"]
    table = [str(sound), TABLE]
    for arguments in (
        ["read", os.fsdecode(b"/nowhere/\xff"), TABLE],
        ["tables", str(sound / "db.db/t/snapshot/LATEST")],
        ["read", *table, "--where", "v = \U0001f600"],
    ):
        process = subprocess.run([*command, *arguments], capture_output=True, check=False)
        assert process.returncode == 1, process
        assert process.stderr.startswith(b"error: "), process
        assert b"Traceback" not in process.stderr
    piped = f"{sys.executable} -m paimon_orch read {sound} {TABLE} --format jsonl | true"
    process = subprocess.run(["sh", "-c", piped], capture_output=True, check=False)
    assert b"Traceback" not in process.stderr
    assert b"Exception" not in process.stderr
