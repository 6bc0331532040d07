"""Converts errors of the library to Dagster's errors; only transient errors are retried."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from paimon_orch.errors import CancelledError, UnsupportedError
from paimon_orch.orchestration.error_handling import find_next_step, may_succeed_again
from paimon_orch.safe_text import clean_line

RETRY_TRANSIENT = dg.RetryPolicy(
    max_retries=2, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""Policy for :func:`raise_dagster_errors`; the library itself retries commit conflicts."""

ExecutionContext = dg.OpExecutionContext | dg.AssetExecutionContext | dg.AssetCheckExecutionContext


@contextmanager
def raise_dagster_errors(
    table: str, context: ExecutionContext | None = None, policy: dg.RetryPolicy = RETRY_TRANSIENT
) -> Iterator[None]:
    """Request a retry after transient and I/O errors; after other errors, fail the run.

    This function applies the policy. Do not set it on the op: Dagster would also retry a step that
    was terminated. Without a ``context``, transient errors are raised unchanged.
    """
    try:
        yield
    except (dg.Failure, dg.RetryRequested):
        raise
    except CancelledError as error:
        # Python raises this error if Spark's interrupt handler has replaced that of Dagster.
        raise dg.DagsterExecutionInterruptedError from error
    except Exception as error:
        if not may_succeed_again(error):
            raise _build_failure(table, error) from error
        if context is None:
            raise
        delay = policy.calculate_delay(get_op_context(context).retry_number + 1)
        raise dg.RetryRequested(policy.max_retries, delay) from error


@contextmanager
def fail_if_unsupported(table: str) -> Iterator[None]:
    """Fail the run without a retry if the table requires a feature that is not supported."""
    try:
        yield
    except UnsupportedError as error:
        raise _build_failure(table, error) from error


def _build_failure(table: str, error: Exception) -> dg.Failure:
    metadata = {"dagster/table_name": table, "paimon/error": type(error).__name__}
    next_step = find_next_step(error)
    if next_step is not None:
        metadata["paimon/next_step"] = next_step
    return dg.Failure(
        clean_line(f"{type(error).__name__}: {error}"), metadata=metadata, allow_retries=False
    )


def get_op_context(context: ExecutionContext) -> dg.OpExecutionContext:
    """Return the op context of an op, an asset or an asset check."""
    return context if isinstance(context, dg.OpExecutionContext) else context.op_execution_context
