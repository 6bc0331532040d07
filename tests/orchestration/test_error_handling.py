"""Only errors that may go away by themselves are a reason to run a step again."""

from __future__ import annotations

import pytest

from paimon_orch.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    InputError,
    StorageError,
)
from paimon_orch.orchestration.error_handling import find_next_step, may_succeed_again


@pytest.mark.parametrize(
    ("error", "again", "next_step"),
    [
        (StorageError("the store answers 503"), True, None),
        (CommitConflictError("another commit"), True, None),
        (ConnectionResetError("reset"), True, None),
        (CommitOutcomeUnknownError("no answer"), False, "Look for the commit"),
        (CorruptFileError("manifest-1", "it is empty"), False, "paimon-orch doctor"),
        (AccessDeniedError("403"), False, "credentials"),
        (InputError("no such column"), False, None),
        (ValueError("a bug"), False, None),
    ],
)
def test_an_error_has_a_next_step_or_may_go_away(
    error: Exception, again: bool, next_step: str | None
) -> None:
    assert may_succeed_again(error) is again
    text = find_next_step(error)
    assert (text is None) if next_step is None else (text is not None and next_step in text)
