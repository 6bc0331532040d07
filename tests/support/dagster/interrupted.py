"""A compaction that is told to stop while its units sleep on Spark, as a terminated run of Dagster is."""

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
from paimon_orch.steps.common.executor import Executor, InProcessExecutor

SLEEP = 60.0


class SleepingExecutor(InProcessExecutor):
    """Lets each unit sleep before it works; a file ``started`` says that one does, ``ended`` that it was left alone."""

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor, self._folder = executor, folder

    def map(self, run: Callable[[Any], bytes], units: Sequence[Any], **given: Any) -> list[bytes]:
        folder, seconds = self._folder, SLEEP

        def slowly(unit: Any) -> bytes:
            (folder / "started").touch()
            time.sleep(seconds)
            (folder / "ended").touch()
            return run(unit)

        return self._executor.map(slowly, units, **given)


def interrupt_compaction(
    warehouse: str, folder: Path, remote: str | None, signal: Signals
) -> tuple[type[BaseException] | None, float]:
    """Compact lake.orders, send the signal to this process when a unit runs, and return what was raised and how soon."""

    class Slow(SparkSessionResource):
        def executor(self) -> Executor:
            return SleepingExecutor(super().executor(), folder)

    told = list[float]()

    def interrupt() -> None:
        while not (folder / "started").exists():
            time.sleep(0.05)
        told.append(time.monotonic())
        os.kill(os.getpid(), signal)

    threading.Thread(target=interrupt, daemon=True).start()
    resources = {
        "paimon": PaimonCatalogResource(warehouse=warehouse),
        "spark": Slow(master="local[2]", remote=remote),
    }
    raised = None
    try:
        dg.materialize([build_compaction_asset("lake.orders")], resources=resources)
    except BaseException as error:  # noqa: BLE001 - an interruption is none of Exception
        raised = type(error)
    return raised, time.monotonic() - told[0]


if __name__ == "__main__":
    kind, seconds = interrupt_compaction(
        sys.argv[1], Path(sys.argv[2]), "local[2]", Signals.SIGTERM
    )
    sys.stdout.write(f"{kind.__name__ if kind else None} {seconds < SLEEP / 2}\n")
