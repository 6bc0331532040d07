"""Identifies the commits of a job.

See docs/format/commit.md#duplicates-after-a-restart.
"""

from dataclasses import dataclass
from uuid import uuid4

from paimon_orch.errors import InputError
from paimon_orch.format.argument_checks import check_text, to_whole_number
from paimon_orch.format.options.core_options import COMMIT_USER_PREFIX
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER


@dataclass(frozen=True, slots=True)
class CommitId:
    """Identifies one commit of a job, so that a repeated commit, e.g. after a crash, has no effect.

    An identifier counts as committed if the user has committed it or a greater one.

    See docs/format/commit.md#duplicates-after-a-restart.
    """

    user: str
    """The name of the job: the same in all its runs, and different from all other jobs."""

    identifier: int
    """A number that increases with each commit, such as a date or an offset."""

    def __post_init__(self) -> None:
        check_text("the user of a commit", self.user, "nightly load")
        if to_whole_number("the identifier of a commit", self.identifier) is None:
            raise InputError("the identifier of a commit must be a whole number, not None")
        if not self.user.strip():
            raise InputError("the user of a commit must not be blank")
        if not 0 <= self.identifier < BATCH_COMMIT_IDENTIFIER:
            raise InputError(
                f"commit identifier {self.identifier} must be from 0 to "
                f"{BATCH_COMMIT_IDENTIFIER - 1}"
            )


def create_commit_user(schema: TableSchema) -> str:
    """Return a new unique commit user, which every batch commit needs.

    See docs/format/commit.md#duplicates-after-a-restart.
    """
    prefix = schema.typed_options.get(COMMIT_USER_PREFIX)
    return f"{prefix}_{uuid4()}" if prefix else str(uuid4())
