"""A small compaction and a small load from the command line: in this process, and on Spark.

The CPU seconds include the JVM and all worker processes.
"""

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from measurement import show

from paimon_orch import Catalog
from paimon_orch.demo.flights import (
    FLIGHT_BOARD_TABLE,
    ROW_KIND_COLUMN,
    WAVES,
    build_wave,
    create_flight_board,
)

MONTH = "2013-01"
PROGRAM = [sys.executable, "-m", "paimon_orch.cli"]
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Measure each command with both executors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    # processes whose parent has ended become children of this process
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        template, source = Path(folder) / "template", Path(folder) / "arrived.parquet"
        table = create_flight_board(Catalog(str(template)))
        for wave in WAVES:
            table.upsert(build_wave(wave, MONTH), row_kind=ROW_KIND_COLUMN)
        pq.write_table(build_wave("arrived", MONTH), source)
        load = ["--from", str(source), "--row-kind", ROW_KIND_COLUMN]
        rows = [
            (
                name,
                executor,
                *measure(template, [command, *options, "--executor", executor], repeat),
            )
            for name, command, options in (
                ("compact a month of the demo", "compact", []),
                (f"load {source.stat().st_size / 1e6:.1f} MB of Parquet", "ingest", load),
            )
            for executor in ("local", "spark")
        ]
    show("Small work", ("work", "executor", "CPU s", "clock s"), rows)


def measure(template: Path, arguments: list[str], repeat: int) -> tuple[str, str]:
    """Return the lowest CPU and clock seconds of a command on copies of a warehouse."""
    command, *options = arguments
    cpu, clock = list[float](), list[float]()
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            warehouse = shutil.copytree(template, Path(folder) / "warehouse")
            before, start = children_seconds(), time.perf_counter()
            subprocess.run(
                [*PROGRAM, command, str(warehouse), FLIGHT_BOARD_TABLE, *options],
                check=True,
                capture_output=True,
            )
            clock.append(time.perf_counter() - start)
            wait_for_orphans()
            cpu.append(children_seconds() - before)
    return f"{min(cpu):.2f}", f"{min(clock):.2f}"


def children_seconds() -> float:
    """Return the CPU seconds of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_for_orphans() -> None:
    """Wait until no child process is left."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
