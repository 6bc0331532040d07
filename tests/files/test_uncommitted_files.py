"""Files of a writer are kept or deleted at the end of its ``with`` block."""

from pathlib import Path

import pytest

from paimon_orch.files.uncommitted_files import UncommittedFiles


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
