"""An overlay of a store: changes stay in its directory, and reads are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_orch.errors import UnsupportedError
from paimon_orch.storage import LocalFileIO
from paimon_orch.storage.overlay import OverlayFileIO


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"first")
    (folder / "sub" / "b").write_bytes(b"second")
    return folder


@pytest.fixture
def overlay(base: Path, tmp_path: Path) -> OverlayFileIO:
    return OverlayFileIO(base=LocalFileIO(), directory=str(tmp_path / "changes"))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_changes_are_seen_through_the_overlay_only(base: Path, overlay: OverlayFileIO) -> None:
    before = contents(base)

    overlay.write(f"{base}/a", b"changed")
    assert overlay.create(f"{base}/new/c", b"third")
    assert not overlay.create(f"{base}/sub/b", b"other")
    with overlay.open_output(f"{base}/sub/d") as file:
        file.write(b"fourth")
    assert overlay.move(f"{base}/sub/b", f"{base}/moved")
    assert not overlay.move(f"{base}/a", f"{base}/moved")

    assert contents(base) == before
    assert overlay.read_bytes(f"{base}/a") == b"changed"
    assert overlay.read_bytes(f"{base}/moved") == b"second"
    assert sorted(info.path for info in overlay.list_dir(str(base))) == [
        f"{base}/{name}" for name in ("a", "moved", "new", "sub")
    ]
    assert [info.name for info in overlay.list_dir(f"{base}/sub")] == ["d"]
    assert overlay.size(f"{base}/sub/d") == 6


def test_a_deleted_file_is_hidden_until_it_is_written_again(
    base: Path, overlay: OverlayFileIO
) -> None:
    overlay.delete_many([f"{base}/a", f"{base}/missing"])

    assert not overlay.exists(f"{base}/a")
    assert not overlay.file_exists(f"{base}/a")
    with pytest.raises(FileNotFoundError):
        overlay.open_input(f"{base}/a")
    assert (base / "a").exists()
    assert overlay.create(f"{base}/a", b"again")
    assert overlay.read_bytes(f"{base}/a") == b"again"


def test_directories_are_neither_deleted_nor_renamed(base: Path, overlay: OverlayFileIO) -> None:
    with pytest.raises(UnsupportedError, match="deletes no directories"):
        overlay.delete_dir(str(base))
    with pytest.raises(UnsupportedError, match="renames no directories"):
        overlay.rename_dir(str(base), f"{base}2")
    assert not overlay.delete_empty_dir(f"{base}/sub")
    assert not overlay.make_dir(f"{base}/sub")
    assert overlay.make_dir(f"{base}/empty")
    assert overlay.exists(f"{base}/empty")
    assert not (base / "empty").exists()


def test_reads_are_counted_as_requests_of_an_object_store(
    base: Path, overlay: OverlayFileIO
) -> None:
    (base / "large").write_bytes(bytes(8 << 20))

    with overlay.open_input(f"{base}/sub/b") as file:
        assert (file.read(3), file.read()) == (b"sec", b"ond")
    assert (overlay.counts.files, overlay.counts.requests, overlay.counts.bytes) == (1, 1, 6)
    with overlay.open_input(f"{base}/large", 8 << 20) as file:
        file.read(10)
        file.read(10)

    assert (overlay.counts.files, overlay.counts.requests) == (2, 3)  # the end, and one block
    assert overlay.counts.bytes < 2 << 20


def test_a_confined_copy_has_the_same_changes(base: Path, overlay: OverlayFileIO) -> None:
    confined = overlay.confine([str(base / "sub")])

    confined.write(f"{base}/sub/b", b"changed")

    assert overlay.read_bytes(f"{base}/sub/b") == b"changed"
    assert confined.roots == (str(base / "sub"),)
