"""Progress of long steps in the event log."""

import time

import dagster as dg

from paimon_orch.steps.common.executor import Progress

LOG_INTERVAL_SECONDS = 10.0


def build_progress_logger(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    what: str,
    *,
    interval_seconds: float = LOG_INTERVAL_SECONDS,
) -> Progress:
    """Return what logs how many units of work are done, no more often than the interval; short work logs nothing."""
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= interval_seconds:
            last = time.monotonic()
            context.log.info("%s: %d of %d work units done", what, done, total)

    return progress
