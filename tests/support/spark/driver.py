"""A driver process that runs steps on a cluster or a Spark Connect server; started by its path.

The argument is the configuration of the Dagster resource as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.peers.protocol import serve
from support.spark.step_cases import STEP_CASES

from paimon_orch import Catalog, errors
from paimon_orch.dagster import SparkSessionResource
from paimon_orch.spark import SparkExecutor

_SECONDS = 270  # a test and the calling process have longer timeouts


def run(step: str, warehouse: str) -> object:
    """Run a step on the table of a warehouse, and return its result."""
    return STEP_CASES[step].run(resource.session(), Catalog(warehouse).table("db.t"))


def workers(tasks: int) -> list[dict[str, str]]:
    """Return the Python of each task, and the path from which it imported the package."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        import paimon_orch

        for _ in batches:
            values = [sys.executable], [paimon_orch.__file__], [os.environ["SPARK_LOCAL_IP"]]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, values)), ["a", "b", "c"])

    frame = resource.session().range(0, tasks, 1, tasks)
    rows = frame.mapInArrow(task, "python string, package string, host string").toArrow()
    return list(rows.to_pylist())


def units(folder: str) -> list[object]:
    """Map units that succeed, fail, and are cancelled while they run; return each outcome."""
    executor, started = SparkExecutor(resource.session()), Path(folder) / "started"
    progress_calls: list[tuple[int, int]] = []

    def square(unit: int) -> bytes:
        return str(unit * unit).encode()

    def fail(_: int) -> bytes:
        raise errors.CorruptFileError("/t", "cut off")

    def wait(_: int) -> bytes:
        started.touch()
        time.sleep(60)
        return b"left alone"

    def cancel() -> None:
        while not started.exists():
            time.sleep(0.05)
        executor.cancel()

    def outcome(run: Callable[[int], bytes]) -> str:
        try:
            return str(executor.map(run, [1], label="compact"))
        except errors.PaimonError as error:
            return type(error).__name__

    results = executor.map(
        square, [1, 2, 3], label="a, b", progress=lambda *counts: progress_calls.append(counts)
    )
    threading.Thread(target=cancel, daemon=True).start()
    return [b" ".join(results).decode(), progress_calls[-1], outcome(fail), outcome(wait)]


def run_after_release() -> list[str]:
    """Release the session on the server, as in a timeout; return the errors of the next steps."""
    session = resource.session()
    session.client.release_session()
    try:
        SparkExecutor(session).map(lambda _: b"", [1], label="too late")
    except errors.PaimonError as error:
        return [str(error), str(resource.session() is session)]
    return []


def with_timeout(command: Callable[..., object]) -> Callable[..., object]:
    """Wrap a command: if it hangs, print the stack of each thread and exit."""

    def run(**arguments: object) -> object:
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        try:
            return command(**arguments)
        finally:
            faulthandler.cancel_dump_traceback_later()

    return run


if __name__ == "__main__":
    resource = SparkSessionResource(**json.loads(sys.argv[1]))
    commands: dict[str, Callable[..., object]] = {
        "run": run,
        "workers": workers,
        "units": units,
        "released": run_after_release,
    }
    serve({name: with_timeout(command) for name, command in commands.items()})
    resource.teardown_after_execution(None)  # type: ignore[arg-type] # it needs no context
