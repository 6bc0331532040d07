"""CPU seconds of Spark: of this process, the JVM that it started, and all their workers. The standard library alone."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all below it, those that have ended included."""
    parents, seconds = {}, {}
    for pid, fields in _processes():
        parents[pid] = int(fields[1])
        # user and system time, its own and that of children that were waited for
        seconds[pid] = sum(map(int, fields[11:15])) / _TICKS
    return sum(value for pid, value in seconds.items() if _is_below(pid, parents))


def compare(
    runs: Mapping[str, Callable[[], object]], repeat: int
) -> dict[str, tuple[float, float]]:
    """Run each in turn, once to warm up and then several times; return the median (CPU seconds, seconds) of each."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(1 + repeat):
        for name, run in runs.items():
            cpu, clock = cpu_seconds(), time.monotonic()
            run()
            if turn:
                found[name].append((cpu_seconds() - cpu, time.monotonic() - clock))
    return {
        name: (statistics.median(a for a, _ in each), statistics.median(b for _, b in each))
        for name, each in found.items()
    }


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        yield int(folder.name), text.rpartition(")")[2].split()


def _is_below(pid: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False
