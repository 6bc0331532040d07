"""Compacts a table in a process of its own, commits nothing, and tells time and peak memory: WAREHOUSE db.t [MASTER]."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from memory_side import peak

from paimon_orch import Catalog
from paimon_orch.spark import SparkExecutor, spark_session
from paimon_orch.steps.common.executor import Executor, InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files


def seconds_of(table: Table, executor: Executor) -> float:
    """Return how long the parts of a full compaction take."""
    planned = compact.plan(table, compact.CompactRequest(strategy="full"))
    begin = time.perf_counter()
    results = executor.map(partial(compact.run, planned.reader), planned.units, label="compact")
    seconds = time.perf_counter() - begin
    discard_written_files(
        table.stores.reader(), [CommitMessage.decode(result) for result in results]
    )
    return seconds


def main(warehouse: str, name: str, master: str | None = None) -> None:
    """Print the best time of two, as sessions start slowly, and the memory of this process as JSON."""
    table = Catalog(warehouse).table(name)
    executor: Executor = InProcessExecutor()
    if master is not None:
        executor = SparkExecutor(spark_session(master))
    before = peak()
    seconds = [seconds_of(table, executor) for _ in range(1 if master is None else 2)]
    parts = len(compact.plan(table, compact.CompactRequest(strategy="full")).units)
    found = {"seconds": min(seconds), "mb": peak(), "base": before, "parts": parts}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
