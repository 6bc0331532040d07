"""A small compaction and a small load from the command line: in this process, and on Spark.

The CPU seconds include the JVM and all worker processes.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from measurement import measure_process, show

from paimon_orch import Catalog
from paimon_orch.demo.flights import (
    FLIGHT_BOARD_TABLE,
    ROW_KIND_COLUMN,
    WAVES,
    build_wave,
    create_flight_board,
)

MONTH = "2013-01"
PROGRAM = [sys.executable, "-m", "paimon_orch"]


def main() -> None:
    """Measure each command with both executors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
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
    usages = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            warehouse = shutil.copytree(template, Path(folder) / "warehouse")
            call = [*PROGRAM, command, str(warehouse), FLIGHT_BOARD_TABLE, *options]
            usages.append(measure_process(call))
    cpu = min(usage.cpu_seconds for usage in usages)
    clock = min(usage.wall_seconds for usage in usages)
    return f"{cpu:.2f}", f"{clock:.2f}"


if __name__ == "__main__":
    main()
