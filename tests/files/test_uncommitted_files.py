"""Files of a writer are kept or deleted at the end of its ``with`` block."""

from pathlib import Path

import pytest

from paimon_orch.errors import StorageError
from paimon_orch.files.uncommitted_files import UncommittedFiles, UncommittedPaths
from paimon_orch.storage import LocalFileIO


class OneFile(UncommittedFiles):
    """Writes one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def delete_files(self) -> None:
        self.path.unlink()


def test_files_are_kept_after_a_block_without_error(tmp_path: Path) -> None:
    with OneFile(tmp_path / "a") as writer:
        pass

    assert writer.path.exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_files_are_deleted_after_any_error(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), OneFile(tmp_path / "a"):
        raise error

    assert list(tmp_path.iterdir()) == []


def create_files(io: LocalFileIO, root: Path, error: BaseException | None) -> None:
    """Create two files; the second file of three names was never written."""
    with UncommittedPaths(io) as created:
        for name in "abc":
            created.paths.append(str(root / name))
            if name != "b":
                io.write(str(root / name), b"1")
        if error is not None:
            raise error


def test_created_files_are_kept_without_an_error_and_deleted_after_one(tmp_path: Path) -> None:
    create_files(LocalFileIO(), tmp_path, None)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "c"}

    for error in (StorageError("the disk is full"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            create_files(LocalFileIO(), tmp_path, error)
        assert caught.value is error
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "left"),
    [
        (PermissionError(13, "denied"), {"a"}),
        # each further call would also wait for a store that is unavailable
        (StorageError("gone"), {"a", "c"}),
    ],
)
def test_a_file_that_cannot_be_deleted_does_not_hide_the_error(
    tmp_path: Path, failure: Exception, left: set[str]
) -> None:
    class Failing(LocalFileIO):
        def delete(self, path: str) -> None:
            if path.endswith("a"):
                raise failure
            super().delete(path)

    with pytest.raises(ValueError, match="the first error"):
        create_files(Failing(), tmp_path, ValueError("the first error"))

    assert {path.name for path in tmp_path.iterdir()} == left
