"""Seeds faults in the package and counts how many the tests find.

`measure FOLDER` runs the tests with coverage contexts: those of `make test`, then the services.
`seed FOLDER` draws mutations, runs for each the tests that execute its line in a copy of the
repository, and adds a line of JSON to FOLDER/faults-SEED.jsonl. It goes on where it was stopped.
`equivalent.toml` lists mutations that change no behavior; they do not count.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.faults import selected_tests
from support.faults.covering_tests import CoveringTests
from support.faults.mutations import Mutation, draw

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "paimon_orch"
RUNS = {"test": "not services", "services": "services"}
"""The selections, by the target that runs them first."""
SECONDS = 40.0
"""The tests of a mutation take so long without it; the rest of them is left out."""
MEMORY = 6 << 30
MISSED = "MISSED"
EQUIVALENT = "same"
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
_PYTEST += ["-p", selected_tests.__name__]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def measure(folder: Path, names: Sequence[str], arguments: Sequence[str]) -> None:
    """Run tests with coverage contexts, and add what they cover to the data of earlier runs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        files = {
            "COVERAGE_FILE": str(folder / f"{name}.coverage"),
            selected_tests.DURATIONS: str(folder / f"{name}.json"),
        }
        options = ["-n", "2", "--dist", "loadgroup", f"--cov={PACKAGE}", "--cov-context=test"]
        options += ["--cov-report=", "--cov-append", "-m", RUNS[name], *arguments]
        subprocess.run([*_PYTEST, *options], env=_environment(ROOT) | files, cwd=ROOT, check=False)


def seed_faults(
    folder: Path, count: int, seed: int, *, again: bool = False, seconds: float = SECONDS
) -> None:
    """Draw mutations and run their tests, unless an earlier run did, or found no test."""
    file = folder / f"faults-{seed}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    answers = {
        (row["module"], row["operator"], row["occurrence"]): row
        for row in done
        if not (again and row["outcome"] == MISSED)
    }
    copy = _copy_repository(folder / "copy")
    runs = {
        name: CoveringTests(ROOT, folder / f"{name}.coverage")
        for name in RUNS
        if (folder / f"{name}.coverage").exists()
    }
    rows = []
    for mutation in draw(ROOT, PACKAGE, count, seed):
        key = (mutation.module, mutation.operator, mutation.occurrence)
        if key not in answers:
            answers[key] = _try_mutation(mutation, copy, runs, seconds)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(answers[key]) + "\n")
        rows.append(answers[key])
        sys.stdout.write(_format(answers[key]) + "\n")
        sys.stdout.flush()
    sys.stdout.writelines(_summarize(rows))
    for test in _run_tests([row["test"] for row in rows if "::" in row["test"]], copy):
        if _run_tests([test], copy):
            sys.stdout.write(f"fails without a fault, too: {test}\n")


def _copy_repository(copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().strip("\0").split("\0"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    (ROOT / ".test-data").mkdir(exist_ok=True)
    (copy / ".test-data").symlink_to(ROOT / ".test-data")
    return copy


def _try_mutation(
    mutation: Mutation, copy: Path, runs: dict[str, CoveringTests], seconds: float
) -> dict[str, Any]:
    source = (ROOT / mutation.module).read_text(encoding="utf-8")
    mutated = mutation.apply(source)
    was, becomes = _changed_lines(source, mutated)
    row = asdict(mutation) | {"was": was, "becomes": becomes, "outcome": MISSED, "test": ""}
    if (mutation.module, was, becomes) in _read_equivalents():
        return row | {"outcome": EQUIVALENT}
    (copy / mutation.module).write_text(mutated, encoding="utf-8")
    try:
        for name, run in runs.items():
            tests = run.find(mutation.module, mutation.line, seconds)
            if failures := _run_tests(tests, copy, "-x", seconds=seconds):
                return row | {"outcome": name, "test": failures[0]}
    finally:
        (copy / mutation.module).write_text(source, encoding="utf-8")
    return row


def _changed_lines(source: str, mutated: str) -> tuple[str, str]:
    lines = [*difflib.ndiff(source.splitlines(), mutated.splitlines())]
    texts = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    was, becomes = (" ".join(text) for text in texts)
    return was, becomes


def _run_tests(
    tests: Sequence[str], copy: Path, *options: str, seconds: float = 10 * SECONDS
) -> list[str]:
    """Return the tests that fail; a run that does not end has failed."""
    if not tests:
        return []
    selection = copy.parent / "selection.json"
    selection.write_text(json.dumps(tests), encoding="utf-8")
    files = dict.fromkeys(name.partition("::")[0] for name in tests)
    process = subprocess.Popen(
        [*_PYTEST, "--tb=no", "--no-header", *options, *files],
        cwd=copy,
        env=_environment(copy) | {selected_tests.SELECTED: str(selection)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=90 + 4 * seconds)
    except subprocess.TimeoutExpired:
        return ["timeout"]
    finally:
        _end_group(process)
    failures = _FAILED.findall(output)
    is_passed = process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return failures if failures or is_passed else [output.strip().rpartition("\n")[2]]


def _end_group(process: subprocess.Popen[str]) -> None:
    """End the servers and sessions that a test left behind, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _environment(root: Path) -> dict[str, str]:
    paths = [str(root), str(root / "tests"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _read_equivalents() -> set[tuple[str, str, str]]:
    file = Path(__file__).with_name("equivalent.toml")
    rows = tomllib.loads(file.read_text(encoding="utf-8"))["mutation"]
    return {(row["module"], row["was"], row["becomes"]) for row in rows}


def _format(row: dict[str, Any]) -> str:
    kind = row["operator"].partition("/")[2]
    place = f"{row['module']}:{row['line']}"
    return f"{row['outcome']:8} {place} {kind}: {row['was']} -> {row['becomes']} | {row['test']}"


def _summarize(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    counted = [row for row in rows if row["outcome"] != EQUIVALENT]
    counts = Counter(row["outcome"] for row in counted)
    yield f"{len(rows)} mutations, {len(rows) - len(counted)} of them equivalent\n"
    for target, outcomes in {"make test": ["test"], "make test-all": [*RUNS]}.items():
        found = sum(counts[outcome] for outcome in outcomes)
        yield f"{target}: {found} of {len(counted)} found, {found / len(counted):.1%}\n"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("command", choices=["measure", "seed"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("arguments", nargs="*", help="arguments of pytest for measure")
    parser.add_argument("--only", choices=RUNS, help="measure only one selection")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="try again what no test found")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests for a mutation")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    folder = arguments.folder.resolve()
    if arguments.command == "measure":
        measure(folder, [arguments.only] if arguments.only else [*RUNS], arguments.arguments)
    else:
        how = {"again": arguments.again, "seconds": arguments.seconds}
        seed_faults(folder, arguments.count, arguments.seed, **how)


if __name__ == "__main__":
    main()
