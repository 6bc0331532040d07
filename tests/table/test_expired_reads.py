"""What reads the newest snapshot is called again if files are missing, but not for lost files."""

from __future__ import annotations

import pytest

from paimon_orch.errors import CorruptFileError, MissingFileError
from paimon_orch.table.expired_reads import repeat_if_expired


class Reader:
    """Fails with these errors, then returns the states that it was given."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.states = list(errors), list[object]()

    @repeat_if_expired
    def read(self, *, state: object) -> list[object]:
        self.states.append(state)
        if self.errors:
            raise self.errors.pop(0)
        return self.states


def test_a_read_with_other_missing_files_each_time_is_repeated_without_the_given_state() -> None:
    reader = Reader(MissingFileError("a", "is missing"), MissingFileError("b", "is missing"))

    assert reader.read(state="loaded") == ["loaded", None, None]


def test_a_file_that_is_missing_twice_is_lost() -> None:
    reader = Reader(*[MissingFileError("a", "is missing") for _ in range(3)])

    with pytest.raises(MissingFileError, match=r"^a: is missing"):
        reader.read(state="loaded")

    assert reader.states == ["loaded", None]


def test_reads_end_if_every_snapshot_expires() -> None:
    reader = Reader(*[MissingFileError(str(n), "is missing") for n in range(100)])

    with pytest.raises(MissingFileError):
        reader.read(state="loaded")

    assert len(reader.states) == 5


def test_a_damaged_file_is_not_read_again() -> None:
    reader = Reader(CorruptFileError("a", "is empty"))

    with pytest.raises(CorruptFileError):
        reader.read(state="loaded")

    assert reader.states == ["loaded"]
