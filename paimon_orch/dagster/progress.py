"""Logs the progress of long-running steps in the event log."""

import time

import dagster as dg

from paimon_orch.steps.common.executor import Progress

LOG_INTERVAL_SECONDS = 10.0


def build_progress_logger(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    name: str,
    *,
    interval_seconds: float = LOG_INTERVAL_SECONDS,
) -> Progress:
    """Return a callback that logs the progress of work, at most once per interval."""
    last = time.monotonic()

    def progress(completed: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= interval_seconds:
            last = time.monotonic()
            context.log.info("%s: %d of %d work units done", name, completed, total)

    return progress
