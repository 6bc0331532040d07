"""A driver in a process of its own, which runs steps on a cluster or on a Spark Connect server; started by path.

The argument is the configuration of Dagster's resource, as JSON: nothing else says where Spark is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

sys.path.append(str(Path(__file__).resolve().parents[1]))
from peers.talk import serve
from spark.every_step import STEPS

from paimon_orch import Catalog
from paimon_orch.dagster import SparkSessionResource


def run(step: str, warehouse: str) -> object:
    """Do a step on the table of a warehouse, and return its figures."""
    return STEPS[step].run(resource.session(), Catalog(warehouse).table("db.t"))


def workers(tasks: int) -> list[dict[str, str]]:
    """Return which Python each task ran on, and where that found the package."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        import paimon_orch

        for _ in batches:
            found = [sys.executable], [paimon_orch.__file__], [os.environ["SPARK_LOCAL_IP"]]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, found)), ["a", "b", "c"])

    frame = resource.session().range(0, tasks, 1, tasks)
    rows = frame.mapInArrow(task, "python string, package string, host string").toArrow()
    return list(rows.to_pylist())


if __name__ == "__main__":
    resource = SparkSessionResource(**json.loads(sys.argv[1]))
    serve({"run": run, "workers": workers})
    resource.teardown_after_execution(None)  # type: ignore[arg-type] # it needs no context
