"""Shared by the benchmarks: medians of alternating runs, other implementations, result tables."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from support.peers.environments import PeerUnavailableError, peer_start

console = Console()


def medians(runs: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Return the median CPU seconds of each run.

    The runs alternate, so that a change in the machine's speed affects all of them equally.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            gc.collect()
            start = time.process_time()
            result = run()
            seconds[name].append(time.process_time() - start)
            del result
    return {name: statistics.median(values) for name, values in seconds.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    """What a process and its children used, also those that outlived it, such as a JVM of Spark."""

    cpu_seconds: float
    wall_seconds: float
    peak_mb: float
    """The peak resident memory of the largest process, not the sum of all."""


def measure_process(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    exit_codes: Collection[int] = (0,),
) -> ProcessUsage:
    """Run a command to its end, without its output, and return what it used.

    Raises RuntimeError with the end of its error output for another exit code.
    """
    worker = subprocess.run(
        [sys.executable, str(HERE / "process_worker.py"), *command],
        env=None if environment is None else {**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    usage = json.loads(worker.stdout)
    exit_code = usage.pop("exit_code")
    if exit_code not in exit_codes:
        text = worker.stderr[-2000:]
        raise RuntimeError(f"{' '.join(command)}: exit code {exit_code}: {text}")
    return ProcessUsage(**usage)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, including compilation and GC."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peer_seconds(
    peer: str, command: str, warehouse: Path, table: str, repeat: int
) -> dict[str, float] | None:
    """Run a command with another implementation in its environment; None if it is not available."""
    script = HERE / f"{peer.replace('-', '_')}_worker.py"
    try:
        python = peer_start(peer).command[0]
    except PeerUnavailableError as error:
        console.print(f"Skipped {peer}: {error}")
        return None
    seconds: dict[str, float] = run_json(
        python, script, command, str(warehouse), table, str(repeat)
    )
    return seconds


def run_json(python: Path | str, script: Path, *arguments: str) -> Any:
    """Run a script and return the JSON document that it prints."""
    process = subprocess.run(
        [str(python), "-I", str(script), *arguments], capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise RuntimeError(f"{script.name} {' '.join(arguments)}: {process.stderr[-2000:]}")
    return json.loads(process.stdout)


def show(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table of results."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
