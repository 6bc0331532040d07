"""Fuzz the decoders of metadata: python benchmarks/fuzz.py [--seconds 60] [--seed 1] [--store].

Needs atheris. ``--store`` adds the figures of the run to fuzz.json, from which docs/trust.md is
generated. A failure ends the run and writes the input to a file.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import pendulum
import typer

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "fuzz.json"
_SHOWN = 2_000  # characters at the end of the log of a run that failed
_FINISHED = re.compile(r"Done (\d+) runs in (\d+) second")
_COVERED = re.compile(r"cov: (\d+) ft: \d+ corp: (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRun:
    """The figures of one run without a failure."""

    seed: int
    cases: int
    """Inputs that were decoded."""
    seconds: int
    covered: int
    """Branches of the decoders that were taken."""
    corpus: int
    """Inputs that took a new branch."""
    versions: str
    day: str


def run_fuzzer(seconds: int, seed: int) -> FuzzRun:
    """Run the fuzzer in a process; exit with its output if an input causes an error."""
    limits = [f"-max_total_time={seconds}", f"-seed={seed}"]
    command = [sys.executable, str(HERE / "fuzz_worker.py"), *limits]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    counts, covered = _FINISHED.search(finished.stderr), _COVERED.findall(finished.stderr)
    if finished.returncode or counts is None:
        sys.exit(finished.stdout + finished.stderr[-_SHOWN:])
    return FuzzRun(
        seed=seed,
        cases=int(counts[1]),
        seconds=int(counts[2]),
        covered=int(covered[-1][0]),
        corpus=int(covered[-1][1]),
        versions=f"Python {platform.python_version()}, atheris {version('atheris')}",
        day=pendulum.now("UTC").to_date_string(),
    )


def store_run(run: FuzzRun) -> None:
    """Store a run; an earlier run with the same seed is replaced."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    runs = {entry["seed"]: entry for entry in stored} | {run.seed: asdict(run)}
    document = [runs[seed] for seed in sorted(runs)]
    RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main(
    seconds: Annotated[int, typer.Option(help="Length of the run.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 1,
    *,
    store: Annotated[bool, typer.Option("--store", help="Add the figures to fuzz.json.")] = False,
) -> None:
    """Fuzz the decoders and print the figures."""
    run = run_fuzzer(seconds, seed)
    typer.echo(f"{run.cases:,} cases in {run.seconds} s, {run.covered} branches, no failure")
    if store:
        store_run(run)


if __name__ == "__main__":
    typer.run(main)
