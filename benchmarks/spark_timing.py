"""CPU seconds of Spark: this process, its JVM and all their workers.

Imports only the standard library, so that every environment can run it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, including finished ones."""
    parents, seconds = {}, {}
    for pid, fields in _processes():
        parents[pid] = int(fields[1])
        # These fields are the user and system times of the process and of its finished children.
        seconds[pid] = sum(map(int, fields[11:15])) / _TICKS
    return sum(value for pid, value in seconds.items() if _is_descendant(pid, parents))


def compare(
    runs: Mapping[str, Callable[[], object]], repeat: int
) -> dict[str, tuple[float, float]]:
    """Return the median (CPU seconds, wall-clock seconds) of each run.

    The runs alternate; the first round is a warm-up and does not count.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(1 + repeat):
        for name, run in runs.items():
            cpu_start, start = cpu_seconds(), time.monotonic()
            run()
            if turn:
                times[name].append((cpu_seconds() - cpu_start, time.monotonic() - start))
    return {
        name: (
            statistics.median(cpu for cpu, _ in pairs),
            statistics.median(wall_clock for _, wall_clock in pairs),
        )
        for name, pairs in times.items()
    }


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # the process ended in the meantime
            continue
        yield int(folder.name), text.rpartition(")")[2].split()


def _is_descendant(pid: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False
