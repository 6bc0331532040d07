"""Dagster does not retry all errors of the library."""

import dagster as dg
import pytest

from paimon_orch.dagster.error_conversion import raise_dagster_errors
from paimon_orch.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    InputError,
    MissingFileError,
    PaimonError,
)


def test_a_commit_with_an_unknown_outcome_is_not_retried() -> None:
    context = dg.build_op_context()
    expected = pytest.raises(dg.Failure, match="CommitOutcomeUnknownError")
    with expected as failure, raise_dagster_errors("db.t", context):
        raise CommitOutcomeUnknownError("no answer")
    assert not failure.value.allow_retries


@pytest.mark.parametrize(
    ("error", "next_step"),
    [
        (MissingFileError("manifest-1", "does not exist"), "Start the run again"),
        (CorruptFileError("manifest-1", "is empty"), "Run `paimon-orch doctor --deep`"),
        (AccessDeniedError("forbidden"), "Check the credentials"),
    ],
)
def test_a_failure_has_the_next_step(error: PaimonError, next_step: str) -> None:
    with pytest.raises(dg.Failure) as failure, raise_dagster_errors("db.t"):
        raise error

    assert str(failure.value.metadata["paimon/next_step"].value).startswith(next_step)


def test_a_failure_whose_message_says_what_to_do_has_no_other_next_step() -> None:
    with pytest.raises(dg.Failure) as failure, raise_dagster_errors("db.t"):
        raise InputError("no column b; the columns are a")

    assert "paimon/next_step" not in failure.value.metadata
