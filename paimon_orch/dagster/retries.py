"""Errors of the library in Dagster's terms: what another attempt may cure is retried, the rest is not."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from paimon_orch.errors import CancelledError, TransientError, UnsupportedError

RETRY_TRANSIENT = dg.RetryPolicy(
    max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""For steps that run under :func:`raise_dagster_errors`; commit conflicts were retried by the library before."""

ExecutionContext = dg.OpExecutionContext | dg.AssetExecutionContext


@contextmanager
def raise_dagster_errors(
    table: str, context: ExecutionContext | None = None, policy: dg.RetryPolicy = RETRY_TRANSIENT
) -> Iterator[None]:
    """Ask for another attempt after transient errors and those of files; end the run at once for all others.

    The policy is applied here, and must not be the op's own: Dagster would do a step again that was told to stop.
    Without a ``context`` transient errors are raised as they are.
    """
    try:
        yield
    except (TransientError, OSError) as error:
        if context is None:
            raise
        delay = policy.calculate_delay(get_op_context(context).retry_number + 1)
        raise dg.RetryRequested(policy.max_retries, delay) from error
    except (dg.Failure, dg.RetryRequested):
        raise
    except CancelledError as error:
        # Spark's own handler of Ctrl-C, where it has taken the place of Dagster's.
        raise dg.DagsterExecutionInterruptedError from error
    except Exception as error:
        raise _build_failure(table, error) from error


@contextmanager
def fail_if_unsupported(table: str) -> Iterator[None]:
    """End the run without a retry if the table needs a feature that is not implemented."""
    try:
        yield
    except UnsupportedError as error:
        raise _build_failure(table, error) from error


def _build_failure(table: str, error: Exception) -> dg.Failure:
    return dg.Failure(
        f"{type(error).__name__}: {error}",
        metadata={"dagster/table_name": table, "paimon/error": type(error).__name__},
        allow_retries=False,
    )


def get_op_context(context: ExecutionContext) -> dg.OpExecutionContext:
    """Return the context of the op, also of an asset's."""
    return (
        context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context
    )
