"""Wall-clock time of compaction on Spark, compared with ``CALL sys.compact`` of Paimon's connector.

    python benchmarks/compaction_on_spark.py [--rows 10000000] [--repeat 3] [--keys bigint]
        [--engines deduplicate] [--peer paimon-spark | paimon-spark-0.9]

Both run on local[2] and commit. They compact copies of the table of compaction.py: 4 buckets, files
written by our writer (zstd 1, row groups of 262,144 rows, dictionaries for columns with repeated
values). Sessions are warm; the time to start a session and to compact a thousand rows is printed
separately. ``paimon-spark`` is release 1.4 on Spark 4.0, or the jar that PAIMON_SPARK_JAR names.
``paimon-spark-0.9`` is release 0.9 on Spark 3.5, which supports only full compaction.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from compaction import ENGINES, MODES, create_table
from java_paimon import JavaOnSpark
from measurement import console, show
from support.peers.environments import OLD_SPARK, SPARK, PeerUnavailableError

from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, spark_session
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.compact import CompactionStrategy

MASTER = "local[2]"


@dataclass(frozen=True)
class Contestant:
    """An implementation that compacts tables."""

    name: str
    compact: Callable[[Path, str, CompactionStrategy], None]

    def time_compaction(self, warehouse: Path, table: str, strategy: CompactionStrategy) -> float:
        """Return the wall-clock seconds of compacting a copy of the table."""
        copy = warehouse.with_name("copy")
        shutil.copytree(warehouse, copy)
        start = time.perf_counter()
        self.compact(copy, table, strategy)
        seconds = time.perf_counter() - start
        shutil.rmtree(copy)
        return seconds


def compact_with_ours(warehouse: Path, table: str, strategy: CompactionStrategy) -> None:
    """Compact with our executor on the session of this process."""
    executor = SparkExecutor(spark_session(MASTER))
    compact.compact(Catalog(str(warehouse)).table(table), executor, strategy=strategy)


def time_session_start(contestants: list[Contestant]) -> str:
    """Return the seconds of each contestant to start a session and compact a small table."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        table = create_table(warehouse, "bigint", 1_000, {}).identifier
        return ", ".join(
            f"{contestant.name} {contestant.time_compaction(warehouse, table, 'full'):.1f} s"
            for contestant in contestants
        )


def measure(
    contestants: list[Contestant], warehouse: Path, table: str, mode: str, repeat: int
) -> tuple[str, ...]:
    """Return a row of the result: input rows, median seconds and Mrows/s of each, speedup.

    The first run of each contestant is a warm-up and does not count.
    """
    strategy: compact.CompactionStrategy = "full" if mode == "full" else "minor"
    plan = compact.plan(
        Catalog(str(warehouse)).table(table), compact.CompactRequest(strategy=strategy)
    )
    rows = sum(unit.rows for unit in plan.units)
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(1 + repeat):
        for contestant in contestants:
            seconds[contestant.name].append(contestant.time_compaction(warehouse, table, strategy))
    medians = [statistics.median(runs[1:]) for runs in seconds.values()]
    columns = [f"{median:.1f} ({rows / median / 1e6:.2f})" for median in medians]
    ours, *others = medians
    speedups = [f"{other / ours:.1f}" for other in others]
    return f"{rows:,}", *columns, *speedups


def main(
    rows: Annotated[int, typer.Option(help="Rows on the highest level.")] = 10_000_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
    keys: Annotated[str, typer.Option(help="Key types, separated by commas.")] = "bigint",
    engines: Annotated[str, typer.Option(help="Merge engines, separated by commas.")] = ",".join(
        ENGINES
    ),
    peer: Annotated[str, typer.Option(help="Connector to compare with.")] = SPARK,
) -> None:
    """Measure and print."""
    contestants = [Contestant("ours", compact_with_ours)]
    try:
        java = JavaOnSpark(peer, MASTER)
        contestants.append(Contestant("Java", java.compact))
    except PeerUnavailableError as error:
        console.print(f"Skipped Java: {error}")
    console.print(f"Session start and compaction of 1,000 rows: {time_session_start(contestants)}")
    modes = [mode for mode in MODES if mode == "full" or peer != OLD_SPARK]
    lines = []
    for key_type, engine, mode in product(keys.split(","), engines.split(","), modes):
        options = {"merge-engine": engine, **ENGINES[engine], **MODES[mode]}
        with tempfile.TemporaryDirectory() as folder:
            warehouse = Path(folder) / "warehouse"
            table = create_table(warehouse, key_type, rows, options).identifier
            line = measure(contestants, warehouse, table=table, mode=mode, repeat=repeat)
            lines.append((f"{mode} {engine}, {key_type}", *line))
            console.print(*lines[-1], sep=" | ")
    if len(contestants) > 1:
        java.close()
    columns = ("", "rows in", "ours s (Mrows/s)", "Java s (Mrows/s)", "speedup")
    show(
        f"Compaction on Spark {MASTER}, compared with {peer}, wall-clock",
        columns[: len(lines[0])],
        lines,
    )


if __name__ == "__main__":
    typer.run(main)
