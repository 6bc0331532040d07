"""What an orchestrator does after an error of a step: run again, or say what to do next."""

from collections.abc import Mapping

from paimon_orch.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    MissingFileError,
    PaimonError,
    TransientError,
)

_NEXT_STEPS: Mapping[type[PaimonError], str] = {
    CommitOutcomeUnknownError: "Look for the commit in the newest snapshots of the table. If it is "
    "not there, start the run again.",
    MissingFileError: "Start the run again: the snapshot that it read may have expired meanwhile. If "
    "the file is missing again, run `paimon-orch doctor --deep`, which also reads the data files, to "
    "see what is damaged, and the command that repairs it.",
    CorruptFileError: "Run `paimon-orch doctor --deep`, which also reads the data files, to see what "
    "is damaged, and the command that repairs it.",
    AccessDeniedError: "Check the credentials of the catalog and the permissions of the user.",
}
"""What to do after errors whose messages do not say it."""


def may_succeed_again(error: BaseException) -> bool:
    """Return whether the same step may succeed later without a change by its user.

    The library itself retries conflicts of commits. After an unknown outcome of a commit, a second
    run could commit the same rows again.
    """
    if isinstance(error, CommitOutcomeUnknownError):
        return False
    return isinstance(error, TransientError | OSError)


def find_next_step(error: BaseException) -> str | None:
    """Return a sentence on what to do after an error, or None if its message says it."""
    steps = (text for kind, text in _NEXT_STEPS.items() if isinstance(error, kind))
    return next(steps, None)
