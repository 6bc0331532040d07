"""Runs a full compaction in a separate process without committing it: WAREHOUSE db.t [MASTER].

Prints the time and the peak memory as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from read_memory_worker import peak_memory

from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, spark_session
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files


def time_compaction(table: Table, executor: Executor) -> float:
    """Return the wall-clock seconds that the units of a full compaction take."""
    plan = compact.plan(table, compact.CompactRequest(strategy="full"))
    start = time.perf_counter()
    results = executor.map(partial(compact.run, plan.reader), plan.units, label="compact")
    seconds = time.perf_counter() - start
    discard_written_files(
        table.stores.reader(), [CommitMessage.decode(result) for result in results]
    )
    return seconds


def main(warehouse: str, name: str, master: str | None = None) -> None:
    """Print the time and the peak memory of this process.

    With Spark, the compaction runs twice, because the first run starts the session; the faster
    run counts.
    """
    table = Catalog(warehouse).table(name)
    executor: Executor = InProcessExecutor()
    if master is not None:
        executor = SparkExecutor(spark_session(master))
    memory_before = peak_memory()
    seconds = [time_compaction(table, executor) for _ in range(1 if master is None else 2)]
    units = len(compact.plan(table, compact.CompactRequest(strategy="full")).units)
    result = {
        "seconds": min(seconds),
        "peak_mb": peak_memory(),
        "mb_before": memory_before,
        "units": units,
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
