"""Compaction on Spark: ours beside ``CALL sys.compact`` of Paimon's own connector, both on local[2], by the clock.

    python benchmarks/compaction_on_spark.py [--rows 10000000] [--repeat 3] [--keys bigint] [--engines deduplicate]
        [--peer paimon-spark | paimon-spark-0.9]

The workload of compaction.py: copies of one table of 4 buckets, whose files our writer wrote (zstd 1, row groups of
262,144 rows, a dictionary for columns that repeat themselves); each side also commits. Sessions are warm: what starting
one takes, up to the end of a first compaction of a thousand rows, is told apart. ``paimon-spark`` is release 1.4 on
Spark 4.0 (a jar of one's own goes by the variable PAIMON_SPARK_JAR), ``paimon-spark-0.9`` release 0.9 on Spark 3.5,
which knows no compaction but the full one.
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
from compaction import ENGINES, MODES, make_table
from java_side import JavaOnSpark
from measure import console, show
from support.peers.environments import OLD_SPARK, SPARK, PeerUnavailableError

from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, spark_session
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.compact import CompactionStrategy

MASTER = "local[2]"


@dataclass(frozen=True)
class Contestant:
    """Who compacts the table of a warehouse."""

    name: str
    compact: Callable[[Path, str, CompactionStrategy], None]

    def seconds(self, warehouse: Path, table: str, strategy: CompactionStrategy) -> float:
        """Return what compacting a copy takes by the clock."""
        copy = warehouse.with_name("copy")
        shutil.copytree(warehouse, copy)
        begin = time.perf_counter()
        self.compact(copy, table, strategy)
        taken = time.perf_counter() - begin
        shutil.rmtree(copy)
        return taken


def ours(warehouse: Path, table: str, strategy: CompactionStrategy) -> None:
    """Compact with our executor, on the one session of this process."""
    executor = SparkExecutor(spark_session(MASTER))
    compact.compact(Catalog(str(warehouse)).table(table), executor, strategy=strategy)


def start_up(contestants: list[Contestant]) -> str:
    """Compact a small table with each side, which starts its session; return what that took."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        table = make_table(warehouse, "bigint", 1_000, {}).identifier
        return ", ".join(
            f"{one.name} {one.seconds(warehouse, table, 'full'):.1f} s" for one in contestants
        )


def measure(
    contestants: list[Contestant], warehouse: Path, table: str, mode: str, repeat: int
) -> tuple[str, ...]:
    """Return rows, the median seconds and million rows per second of each side, and their ratio; one run warms up."""
    strategy: compact.CompactionStrategy = "full" if mode == "full" else "minor"
    planned = compact.plan(
        Catalog(str(warehouse)).table(table), compact.CompactRequest(strategy=strategy)
    )
    rows = sum(unit.rows for unit in planned.units)
    found: dict[str, list[float]] = {one.name: [] for one in contestants}
    for _ in range(1 + repeat):
        for one in contestants:
            found[one.name].append(one.seconds(warehouse, table, strategy))
    medians = [statistics.median(runs[1:]) for runs in found.values()]
    columns = [f"{clock:.1f} ({rows / clock / 1e6:.2f})" for clock in medians]
    mine, *others = medians
    ratios = [f"{other / mine:.1f}" for other in others]
    return f"{rows:,}", *columns, *ratios


def main(
    rows: Annotated[int, typer.Option(help="Rows on the highest level.")] = 10_000_000,
    repeat: Annotated[int, typer.Option(help="Runs, of which the median counts.")] = 3,
    keys: Annotated[str, typer.Option(help="Which keys, with commas between.")] = "bigint",
    engines: Annotated[str, typer.Option(help="Which merge engines.")] = ",".join(ENGINES),
    peer: Annotated[str, typer.Option(help="Which connector.")] = SPARK,
) -> None:
    """Measure and print."""
    contestants = [Contestant("ours", ours)]
    try:
        java = JavaOnSpark(peer, MASTER)
        contestants.append(Contestant("Java", java.compact))
    except PeerUnavailableError as error:
        console.print(f"Java is left out: {error}")
    console.print(f"Start-up, with a first compaction of 1,000 rows: {start_up(contestants)}")
    modes = [mode for mode in MODES if mode == "full" or peer != OLD_SPARK]
    lines = []
    for kind, engine, mode in product(keys.split(","), engines.split(","), modes):
        options = {"merge-engine": engine, **ENGINES[engine], **MODES[mode]}
        with tempfile.TemporaryDirectory() as folder:
            warehouse = Path(folder) / "warehouse"
            table = make_table(warehouse, kind, rows, options).identifier
            line = measure(contestants, warehouse, table=table, mode=mode, repeat=repeat)
            lines.append((f"{mode} {engine}, {kind}", *line))
            console.print(*lines[-1], sep=" | ")
    if len(contestants) > 1:
        java.close()
    columns = ("", "rows in", "ours s (Mrows/s)", "Java s (Mrows/s)", "times as fast")
    show(f"Compaction on Spark {MASTER}, {peer}", columns[: len(lines[0])], lines)


if __name__ == "__main__":
    typer.run(main)
