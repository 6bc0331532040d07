"""Errors of the library in Dagster's terms: what another attempt may cure is retried, the rest is not."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from paimon_orch.errors import TransientError

RETRY_TRANSIENT = dg.RetryPolicy(
    max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""For ops that run under :func:`failures_by_type`; commit conflicts were retried by the library before."""


@contextmanager
def failures_by_type(table: str) -> Iterator[None]:
    """Let transient errors and those of files reach the op's retry policy; end the run at once for all others."""
    try:
        yield
    except (TransientError, OSError, dg.Failure):
        raise
    except Exception as error:
        raise dg.Failure(
            f"{type(error).__name__}: {error}",
            metadata={"dagster/table_name": table, "paimon/error": type(error).__name__},
            allow_retries=False,
        ) from error
