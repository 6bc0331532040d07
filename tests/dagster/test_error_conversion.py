"""Dagster does not retry all errors of the library."""

import dagster as dg
import pytest

from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.errors import CommitOutcomeUnknownError


def test_a_commit_with_an_unknown_outcome_is_not_retried() -> None:
    context = dg.build_op_context()
    expected = pytest.raises(dg.Failure, match="CommitOutcomeUnknownError")
    with expected as failure, raise_dagster_errors("db.t", context):
        raise CommitOutcomeUnknownError("no answer")
    assert not failure.value.allow_retries
