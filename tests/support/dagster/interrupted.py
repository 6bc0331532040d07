"""A compaction that is interrupted while its units run, like a terminated Dagster run."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals
from typing import Any

import dagster as dg

from paimon_orch.dagster import PaimonCatalogResource, SparkSessionResource, build_compaction_asset
from paimon_orch.dagster.resources import ExecutorChoice
from paimon_orch.steps.common.executor import Executor, InProcessExecutor

SLEEP = 60.0


class SleepingExecutor(InProcessExecutor):
    """Makes each unit create a file ``started``, sleep, and create a file ``ended``."""

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor, self._folder = executor, folder

    def map(self, run: Callable[[Any], bytes], units: Sequence[Any], **options: Any) -> list[bytes]:
        folder, seconds = self._folder, SLEEP

        def run_after_sleep(unit: Any) -> bytes:
            (folder / "started").touch()
            time.sleep(seconds)
            (folder / "ended").touch()
            return run(unit)

        # the units of an unknown size do not run in the calling thread
        return self._executor.map(run_after_sleep, units, **options | {"work_bytes": None})


def interrupt_compaction(
    warehouse: str,
    folder: Path,
    *,
    signal: Signals,
    executor: ExecutorChoice,
    remote: str | None = None,
) -> type[BaseException] | None:
    """Compact lake.orders, send the signal to this process while a unit runs; return the error."""

    class SleepingSparkResource(SparkSessionResource):
        def build_executor(self, choice: object = None) -> Executor:  # noqa: ARG002
            return SleepingExecutor(super().build_executor(executor), folder)

    def interrupt() -> None:
        while not (folder / "started").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal)

    threading.Thread(target=interrupt, daemon=True).start()
    resources = {
        "paimon": PaimonCatalogResource(warehouse=warehouse),
        "spark": SleepingSparkResource(master="local[2]", remote=remote),
    }
    try:
        dg.materialize([build_compaction_asset("lake.orders")], resources=resources)
    except BaseException as error:  # noqa: BLE001 - an interruption is not an Exception
        return type(error)
    return None


if __name__ == "__main__":
    raised = interrupt_compaction(
        sys.argv[1],
        Path(sys.argv[2]),
        signal=Signals.SIGTERM,
        executor=ExecutorChoice.spark,
        remote="local[2]",
    )
    sys.stdout.write(f"{raised.__name__ if raised else None}\n")
