"""Errors of the data source in Spark's Python workers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from paimon_orch.errors import PaimonError

_HIDE_TRACEBACK_VARIABLE = "SPARK_HIDE_TRACEBACK"  # what Spark's setting hideTraceback sets
_WORKER_VARIABLE = "PYTHON_WORKER_FACTORY_SECRET"  # Spark sets it for its workers


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Let Spark report a :class:`PaimonError` without the traceback of the worker.

    The traceback is only useful for other errors, which keep it. A worker ends after an error, so
    the variable has no effect on the errors of other work.
    """
    try:
        yield
    except PaimonError:
        if _WORKER_VARIABLE in os.environ:
            os.environ[_HIDE_TRACEBACK_VARIABLE] = "1"
        raise
